"""Sentence embeddings, made in batches on one thread, whoever asks."""

import queue
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy
import numpy.typing

from flywheel.base_model import quiet
from flywheel.errors import FlywheelError, InputError
from flywheel.packaged_models import packaged_embedder

Vectors = numpy.typing.NDArray[numpy.float16]

_BATCH_TEXTS = 512
"""Texts that wait together are embedded together, up to about so many."""


class Embedder:
    """A sentence-transformers model behind a queue.

    Many rollouts ask for one query each; embedding what waits in one batch is several times faster than one by one, and
    a single thread keeps OpenMP from opening a team of threads for every caller.

    Args:
        name: local folder, hub id, or `embedded` (all-MiniLM-L6-v2 out of its package).
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._waiting: queue.SimpleQueue[tuple[list[str], Future[Vectors]]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def embed(self, texts: list[str]) -> Vectors:
        """Unit vectors, float16, of shape (texts, dimensions).

        Raises:
            InputError: when the model cannot be loaded.
        """
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="embedder", daemon=True)
                self._thread.start()
        answer: Future[Vectors] = Future()
        self._waiting.put((texts, answer))
        return answer.result()

    def _work(self) -> None:
        model: Any = None
        while True:
            jobs = [self._waiting.get()]
            while sum(len(texts) for texts, _ in jobs) < _BATCH_TEXTS:
                try:
                    jobs.append(self._waiting.get_nowait())
                except queue.Empty:
                    break
            try:
                model = model or self._load()
                vectors = _encode(model, [text for texts, _ in jobs for text in texts])
            except Exception as error:  # whoever waits has to hear of it
                for _, answer in jobs:
                    answer.set_exception(error)
                continue
            start = 0
            for texts, answer in jobs:
                answer.set_result(vectors[start : start + len(texts)])
                start += len(texts)

    def _load(self) -> Any:
        quiet()
        from sentence_transformers import SentenceTransformer

        folder = packaged_embedder() if self.name == "embedded" else Path(self.name)
        try:
            return SentenceTransformer(str(folder), device="cpu")
        except FlywheelError:
            raise
        except Exception as error:  # hub, file and model errors of several libraries
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise InputError(f"cannot load the embedder {self.name}: {reason}") from error


def _encode(model: Any, texts: list[str]) -> Vectors:
    found = model.encode(texts, normalize_embeddings=True, convert_to_numpy=True, show_progress_bar=False)
    return numpy.asarray(found, dtype=numpy.float16)
