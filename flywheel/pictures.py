"""Pictures of what people would rather look at than read."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .records import DatasetCard

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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


def funnel(card: DatasetCard, path: Path) -> None:
    """Calls in, dropped by each rule, rows out, one bar for each role, as a PNG."""
    axes, save = _figure(8, 1.2 + 0.9 * len(card.calls))
    draw_funnel(axes, card, kept=_BLUE, dropped=_RED, ink="black")
    axes.set_title("From calls to training rows")
    save(path)


def draw_funnel(axes: "Axes", card: DatasetCard, *, kept: str, dropped: str, ink: str) -> None:
    """One bar for each role: what was kept in one colour, what each rule dropped in shades of another."""
    rules = list(dict.fromkeys(key.partition(".")[2] for key, count in card.dropped.items() if count))
    colours: dict[str, tuple[str, float]] = {"rows": (kept, 1.0)}
    colours |= {rule: (dropped, 0.9 - 0.7 * place / len(rules)) for place, rule in enumerate(rules)}
    roles = list(reversed(card.calls))
    left = [0] * len(roles)
    for name, colour in colours.items():
        found = card.rows if name == "rows" else {role: card.dropped.get(f"{role}.{name}", 0) for role in roles}
        counts = [found.get(role, 0) for role in roles]
        bars = axes.barh(range(len(roles)), counts, left=left, color=colour, height=0.6, label=name.replace("_", " "))
        shown = [
            f"{count:,}" if count > 0.05 * card.calls[role] else "" for role, count in zip(roles, counts, strict=True)
        ]
        axes.bar_label(bars, shown, label_type="center", fontsize=8, color=ink)
        left = [start + count for start, count in zip(left, counts, strict=True)]
    axes.set_yticks(range(len(roles)), [role.replace("_", " ") for role in roles])
    axes.set_xlabel("calls")
    axes.legend(frameon=False, fontsize=8, labelcolor=ink, loc="upper left", bbox_to_anchor=(1.0, 1.0))


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
