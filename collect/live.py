"""Runs one rollout and shows it while it happens."""

import threading
from collections.abc import Callable

from rich.console import Console, Group
from rich.live import Live
from rich.segment import Segment
from rich.text import Text
from rich.tree import Tree

from flywheel.records import Rollout

from .rollout import LiveRollout
from .tree import run_tree, step_lines

_REDRAW = 0.25
"""Seconds between two looks."""


def watch(rollout: LiveRollout, console: Console) -> Rollout:
    """Run a rollout on a thread of its own; on a terminal as a growing tree, else step by step.

    Raises:
        InputError: when a model name is not served.
        KeyboardInterrupt: on Ctrl-C; the rollout's thread is left behind.
    """
    if not console.is_terminal:
        steps = _Steps(console)
        result = _run(rollout, steps.show)
        steps.show(result)
        return result
    with Live(console=console, transient=True, auto_refresh=False) as live:
        return _run(rollout, lambda now: live.update(_end_of(_tree(now), console), refresh=True))


def _run(rollout: LiveRollout, look: Callable[[Rollout], None]) -> Rollout:
    results: list[Rollout | BaseException] = []

    def work() -> None:
        try:
            results.append(rollout.run())
        except BaseException as error:
            results.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(_REDRAW)
        look(rollout.record())
    result = results[0]
    if isinstance(result, BaseException):
        raise result
    return result


def _end_of(tree: Tree, console: Console) -> Group:
    """The last lines of the tree, as many as the terminal shows: there it grows."""
    lines = console.render_lines(tree, pad=False)
    return Group(*(_line(line) for line in lines[-max(1, console.height - 2) :]))


def _line(segments: list[Segment]) -> Text:
    return Text.assemble(*((segment.text, segment.style or "") for segment in segments))


def _tree(rollout: Rollout) -> Tree:
    return run_tree(Text(rollout.question.question, style="bold"), rollout.runs)


class _Steps:
    """Prints each step once, when its observation is there."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._shown: set[str] = set()

    def show(self, rollout: Rollout) -> None:
        """Print what is new."""
        over = bool(rollout.answer)
        for run in rollout.runs:
            for call in run.calls:
                complete = call.observation is not None or bool(run.report) or over
                if complete and call.id not in self._shown:
                    self._shown.add(call.id)
                    self._console.print(step_lines(run, call))
