"""Progress with an ETA: a bar on a terminal, a plain line now and then elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

_PLAIN_INTERVAL = 15.0
"""Seconds between two plain lines."""


def duration(seconds: float) -> str:
    """A duration for people, such as `3m 05s`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h {minutes:02d}m"
    return f"{minutes}m {rest:02d}s" if minutes else f"{rest}s"


class Tracker:
    """Shows how far a piece of work is. Goes to standard error, so that results can be piped.

    Args:
        parallel: how many steps are under way at once; for the ETA they count as half done.
    """

    def __init__(self, title: str, total: int, parallel: int = 1) -> None:
        self._title = title
        self._total = total
        self._parallel = parallel
        self._done = 0
        self._started = self._last_line = time.monotonic()
        self._bar: Progress | None = None
        if sys.stderr.isatty():
            self._bar = Progress(
                TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
                TextColumn("ETA"), TimeRemainingColumn(), TextColumn("{task.fields[note]}"),
                console=Console(stderr=True), transient=True,
            )  # fmt: skip

    def __enter__(self) -> "Tracker":
        if self._bar:
            self._bar.start()
            self._task = self._bar.add_task(self._title, total=self._total, note="")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar:
            self._bar.stop()
        elif kind is None and self._done:
            self._line("", finished=True)

    def advance(self, steps: int = 1, note: str = "") -> None:
        """Say that so many more steps are done."""
        self._done += steps
        if self._bar:
            self._bar.update(self._task, advance=steps, note=note)
        elif time.monotonic() - self._last_line >= _PLAIN_INTERVAL and self._done < self._total:
            self._line(note)

    def _line(self, note: str, finished: bool = False) -> None:
        self._last_line = time.monotonic()
        elapsed = self._last_line - self._started
        under_way = min(self._parallel, self._total - self._done) if self._parallel > 1 else 0
        done = self._done + under_way / 2
        left = elapsed / max(done, 1) * (self._total - done)
        end = f"done in {duration(elapsed)}" if finished else f"ETA {duration(left)}"
        print(
            f"{self._title}: {self._done}/{self._total}, {end}{f', {note}' if note else ''}",
            file=sys.stderr,
            flush=True,
        )


@contextmanager
def waiting(title: str) -> Iterator[Callable[[str], None]]:
    """Shows that something is waited for whose length nobody knows; what it gives takes a note to show beside it."""
    started = last = time.monotonic()
    if sys.stderr.isatty():
        with Console(stderr=True).status(title) as status:
            yield lambda note: status.update(f"{title} ({duration(time.monotonic() - started)}) {escape(note[:100])}")
        return

    def line(note: str) -> None:
        nonlocal last
        if time.monotonic() - last >= _PLAIN_INTERVAL:
            last = time.monotonic()
            print(f"{title}: {duration(last - started)}, {note[:100]}", file=sys.stderr, flush=True)

    yield line
