"""Charts as SVG, drawn with the colours of the page they stand in: they follow light and dark."""

import html
import io
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from flywheel.evaluation.results import Evaluation
from flywheel.pictures import draw_funnel
from flywheel.records import DatasetCard

_INK, _LINE, _GOOD, _FAINT = "#010101", "#010102", "#010103", "#010104"
_VARIABLES = {_INK: "--ink", _LINE: "--accent", _GOOD: "--good", _FAINT: "--faint"}
"""Stand-ins that matplotlib draws with, and the page's colours that they become."""


def scores(found: Sequence[tuple[str, Evaluation]]) -> str:
    """Exact match of every team of every evaluation, with 95% intervals."""
    bars = [(f"{name}: {arm.name}", arm) for name, evaluation in found for arm in evaluation.arms]
    figure, axes = _figure(7.5, 0.7 + 0.38 * len(bars))
    for place, (_, arm) in enumerate(reversed(bars)):
        low, high = arm.exact_match_interval
        axes.plot([100 * low, 100 * high], [place, place], color=_LINE, linewidth=2, solid_capstyle="round")
        axes.plot(100 * arm.exact_match, place, "o", color=_LINE, markersize=7)
        axes.plot(100 * arm.match, place, "|", color=_INK, markersize=10)
        axes.annotate(f"{arm.exact_match:.0%}", (100 * arm.exact_match, place), xytext=(0, 7),
                      textcoords="offset points", ha="center", fontsize=8, color=_INK)  # fmt: skip
    axes.set_yticks(range(len(bars)), [label for label, _ in reversed(bars)])
    axes.set(xlim=(-2, 102), ylim=(-0.6, len(bars) - 0.2), xlabel="exact match, % (the bar: match)")
    axes.grid(axis="x", color=_FAINT, linewidth=0.6)
    return _svg(figure, axes, "Exact match of each team with its 95% interval")


def funnel(card: DatasetCard) -> str:
    """From calls to rows, by role."""
    figure, axes = _figure(7.5, 0.9 + 0.55 * len(card.calls))
    draw_funnel(axes, card, kept=_GOOD, dropped=_LINE, ink=_INK)
    return _svg(figure, axes, "Calls that became rows, and calls that each rule dropped")


def shares(counts: Mapping[str, int], title: str) -> str:
    """Horizontal bars, the longest first."""
    ordered = sorted(counts.items(), key=lambda pair: pair[1])
    figure, axes = _figure(7.5, 0.6 + 0.3 * len(ordered))
    bars = axes.barh(range(len(ordered)), [count for _, count in ordered], color=_LINE, height=0.6)
    axes.bar_label(bars, padding=3, fontsize=8, color=_INK)
    axes.set_yticks(range(len(ordered)), [name.replace("_", " ") for name, _ in ordered])
    axes.margins(x=0.1)
    return _svg(figure, axes, title)


def _figure(width: float, height: float) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.add_subplot()


def _svg(figure: Any, axes: Any, title: str) -> str:
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(_FAINT)
    axes.tick_params(colors=_INK, length=0, labelsize=8)
    axes.xaxis.label.set(color=_INK, size=8)
    buffer = io.StringIO()
    from matplotlib import rc_context

    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "flywheel"}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # the browser has fonts for what ours lacks
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    for colour, variable in _VARIABLES.items():
        text = text.replace(colour, f"var({variable})")
    text = re.sub(r'(style="[^"]*?)font: [^;"]*', r"\1font: 11px system-ui, sans-serif", text)
    head = rf'<svg role="img" aria-label="{html.escape(title)}" \1>'
    return re.sub(r'<svg [^>]*?(viewBox="[^"]*")[^>]*>', head, text, count=1)
