"""An evaluation on the terminal."""

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from .results import ArmResult, Comparison, Evaluation


def print_evaluation(evaluation: Evaluation, console: Console, level: float = 0.05) -> None:
    """Teams with 95% bootstrap intervals, by kind of question, by role, where failures began, and the tests."""
    table = Table(title=f"{len(evaluation.questions)} held-out questions", box=SIMPLE_HEAD)
    table.add_column("team")
    for column in ("exact match", "F1", "match", "calls", "failed steps"):
        table.add_column(column, justify="right")
    for arm in evaluation.arms:
        table.add_row(
            arm.name, percent(arm.exact_match, arm.exact_match_interval), percent(arm.f1, arm.f1_interval),
            f"{arm.match:.0%}", f"{arm.calls:.1f}", f"{arm.failed_steps:.0%}",
        )  # fmt: skip
    console.print(table)
    _print_groups("kind of question", evaluation.arms, [arm.by_kind for arm in evaluation.arms], console)
    _print_groups("supporting facts", evaluation.arms, [arm.by_hops for arm in evaluation.arms], console)
    for pair in evaluation.comparisons:
        console.print(describe(pair, level), markup=False)


def print_roles(arm: ArmResult, console: Console) -> None:
    """How each role of a team went about its work, and where its failures began."""
    table = Table(title=f"roles of {arm.name}", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("role", no_wrap=True)
    for column in ("runs", "steps", "no code", "failed", "repeated", "report used", "tokens", "seconds"):
        table.add_column(column, justify="right", min_width=max(map(len, column.split())))
    for role, health in arm.roles.items():
        table.add_row(
            role, str(health.runs), f"{health.steps:.1f}", f"{health.without_code:.0%}", f"{health.failed:.0%}",
            f"{health.repeated:.0%}", f"{health.used:.0%}", f"{health.tokens:.0f}", f"{health.seconds:.1f}",
        )  # fmt: skip
    console.print(table)
    for line in describe_origins(arm):
        console.print(line, markup=False)


def describe_origins(arm: ArmResult) -> list[str]:
    """Where wrong rollouts went wrong, the role that lost most first; empty where that is not known."""
    by_role = arm.lost_by()
    if not by_role:
        return []
    ((worst, lost),), total = by_role.most_common(1), by_role.total()
    lines = [f"{worst} lost {lost / total:.0%} of the {total} failures of {arm.name}: train it next"]
    lines += [f"  {count:4d}  {origin}" for origin, count in arm.origins.items()]
    return lines


def _print_groups(
    title: str, arms: Sequence[ArmResult], counts: Sequence[dict[str, tuple[int, int]]], console: Console
) -> None:
    groups = sorted({group for found in counts for group in found})
    if len(groups) < 2:
        return
    table = Table(title=f"exact matches by {title}", box=SIMPLE_HEAD)
    table.add_column("team")
    for group in groups:
        table.add_column(escape(group.replace("_", " ")), justify="right")
    for arm, found in zip(arms, counts, strict=True):
        table.add_row(arm.name, *("{}/{}".format(*found.get(group, (0, 0))) for group in groups))
    console.print(table)


def describe(pair: Comparison, level: float = 0.05) -> str:
    """A comparison in words; what cannot be told apart is said to be so."""
    verdict = f"{pair.better} is better" if pair.p < level and pair.better else "not distinguishable"
    return (
        f"{pair.first} against {pair.second}: only the first right {pair.only_first}, "
        f"only the second {pair.only_second}, McNemar {pair.shown_p}: {verdict}"
    )


def percent(value: float, interval: tuple[float, float]) -> str:
    """A share with its interval, such as `47% [37, 56]`."""
    return f"{value:.0%} [{100 * interval[0]:.0f}, {100 * interval[1]:.0f}]"
