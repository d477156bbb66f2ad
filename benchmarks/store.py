"""Size of the trace store against plain JSON Lines, and how fast it is written and read: python -m benchmarks.store

Rollouts of the scripted teacher with the long prompts, in both kinds of history, as the records stand in the store.
"""

import tempfile
import time
from pathlib import Path

from collect.collector import collect
from flywheel.config import validate
from flywheel.questions import read_questions
from flywheel.store import TraceStore
from flywheel.teacher import teacher_engine


def run(history: str, count: int) -> None:
    """Collect, and compare."""
    settings = {
        "team": {"prompt": "full", "history": history},
        "source": {"kind": "corpus", "path": "embedded", "passages": 8},
    }
    questions = read_questions("embedded", "train", limit=count)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with TraceStore(folder / "traces.sqlite") as store:
            config = validate(settings, "benchmark")
            engine = teacher_engine(questions)
            collect(questions, config, engine, store, folder, round=0, samples=1, temperature=0.0)
            started = time.perf_counter()
            rows = list(store.rollouts())
            reading = time.perf_counter() - started
        started = time.perf_counter()
        with TraceStore(folder / "again.sqlite") as store:
            for row in rows:
                store.add(row)
        writing = time.perf_counter() - started
        lines = sum(len(row.model_dump_json()) + 1 for row in rows)
        size = sum(path.stat().st_size for path in folder.glob("again.sqlite*"))
    print(
        f"{history:10s}: {lines / size:4.1f} times smaller than JSON Lines ({lines / len(rows) / 1000:.1f} kB a "
        f"rollout, {size / len(rows) / 1000:.1f} kB stored); written at {len(rows) / writing:.0f}, read at "
        f"{len(rows) / reading:.0f} rollouts a second"
    )


def main() -> None:
    """Print the figures."""
    for history in ("summarised", "full"):
        run(history, 400)


if __name__ == "__main__":
    main()
