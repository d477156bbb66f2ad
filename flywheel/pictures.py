"""Pictures of what people would rather look at than read."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_BLUE, _GREY, _RED = "#2f6fbb", "#b8bec6", "#c4574e"


def loss_curve(losses: Sequence[float], title: str, path: Path) -> None:
    """Loss by optimiser step, with a running mean, as a PNG."""
    axes, save = _figure(7, 3.2)
    steps = range(1, len(losses) + 1)
    width = len(losses) // 20
    if width > 1:
        means = [sum(losses[max(0, end - width) : end]) / min(end, width) for end in steps]
        axes.plot(steps, losses, color=_GREY, linewidth=0.8, label="one step")
        axes.plot(steps, means, color=_BLUE, linewidth=1.8, label=f"mean of {width} steps")
        axes.legend(frameon=False)
    else:
        axes.plot(steps, losses, color=_BLUE, linewidth=1.8)
    axes.set(xlabel="step", ylabel="loss", title=title, ylim=(0, None))
    save(path)


def funnel(
    calls: Mapping[str, int], dropped: Mapping[tuple[str, str], int], rows: Mapping[str, int], path: Path
) -> None:
    """Calls in, dropped by each rule, rows out, one bar for each role, as a PNG."""
    axes, save = _figure(8, 1.2 + 0.9 * len(calls))
    rules = list(dict.fromkeys(rule for _, rule in dropped if dropped[_, rule]))
    shades = [_shade(place, len(rules)) for place in range(len(rules))]
    for place, role in enumerate(reversed(list(calls))):
        parts: list[tuple[str, int, Any]] = [("rows", rows.get(role, 0), _BLUE)]
        parts += [(rule, dropped.get((role, rule), 0), shade) for rule, shade in zip(rules, shades, strict=True)]
        left = 0
        for name, count, colour in parts:
            if count:
                axes.barh(place, count, left=left, color=colour, edgecolor="white", label=name.replace("_", " "))
                if count >= 0.06 * calls[role]:
                    axes.text(
                        left + count / 2, place, f"{count:,}", ha="center", va="center", fontsize=8, color="white"
                    )
                left += count
    axes.set_yticks(range(len(calls)), [role.replace("_", " ") for role in reversed(list(calls))])
    axes.set(xlabel="calls", title="From calls to training rows")
    handles, labels = axes.get_legend_handles_labels()
    unique = dict(zip(labels, handles, strict=True))
    axes.legend(unique.values(), unique.keys(), frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    save(path)


def _shade(place: int, count: int) -> tuple[float, float, float]:
    """Warm colours for what is dropped, from dark to light."""
    share = place / max(1, count - 1)
    return (0.72 + 0.2 * share, 0.3 + 0.45 * share, 0.26 + 0.35 * share)


def _figure(width: float, height: float) -> tuple[Any, Any]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)

    def save(path: Path) -> None:
        figure.savefig(path, dpi=140)

    return axes, save
