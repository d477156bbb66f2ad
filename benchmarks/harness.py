"""How much time the harness takes beside engine and source: python -m benchmarks.harness

Rollouts of the scripted teacher, whose completions take no time, one at a time and many at once; then with an engine
that takes a while, where many at once should be as fast as the longest one.
"""

import tempfile
import time
from pathlib import Path

from collect.collector import Summary, collect
from flywheel.config import validate
from flywheel.engines.scripted import ScriptedEngine
from flywheel.questions import read_questions
from flywheel.store import TraceStore
from flywheel.teacher import Teacher


def run(delay: float, concurrency: int, count: int) -> tuple[Summary, float]:
    """Collect; gives the summary and the seconds it took."""
    settings = {
        "team": {"prompt": "compact", "history": "full"},
        "source": {"kind": "corpus", "path": "embedded", "passages": 8},
        "collect": {"concurrency": concurrency},
    }
    questions = read_questions("embedded", "train", limit=count)
    engine = ScriptedEngine(Teacher(questions), delay)
    with tempfile.TemporaryDirectory() as folder, TraceStore(Path(folder) / "traces.sqlite") as store:
        started = time.perf_counter()
        summary = collect(
            questions, validate(settings, "benchmark"), engine, store, Path(folder), round=0, samples=1, temperature=0.0
        )
        return summary, time.perf_counter() - started


def main() -> None:
    """Print the figures."""
    for concurrency in (1, 8, 64):
        summary, seconds = run(0.0, concurrency, 200)
        steps = summary.calls.total()
        print(f"no engine, {concurrency:2d} at once: {1000 * seconds / steps:.2f} ms a step ({steps} steps)")
    one, alone = run(0.05, 1, 8)
    many, together = run(0.05, 64, 768)
    speedup = (many.calls.total() / together) / (one.calls.total() / alone)
    print(f"engine of 50 ms, 64 at once: {speedup:.1f} times the steps a second of 1 ({speedup / 64:.0%} of linear)")


if __name__ == "__main__":
    main()
