"""Finds the passages of a page that are closest to a query: chunks, sentence embeddings, FAISS."""

import threading
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flywheel.base_model import quiet
from flywheel.config import SourceConfig
from flywheel.errors import InputError
from flywheel.files import sha256
from flywheel.packaged_models import packaged_embedder

if TYPE_CHECKING:
    import faiss

_PAGES_KEPT = 2000


def split_passages(text: str, size: int, overlap: int) -> list[str]:
    """Cut a text into passages of at most `size` characters, each sharing about `overlap` with the one before.

    Cuts fall on white space where there is some, so that no word or number is torn.
    """
    passages = []
    start = 0
    while start < len(text):
        end = min(start + size, len(text))
        if end < len(text) and (space := max(text.rfind(" ", start, end), text.rfind("\n", start, end))) > start:
            end = space
        if passage := text[start:end].strip():
            passages.append(passage)
        if end == len(text):
            break
        after = max(end - overlap, start + 1)
        space = text.find(" ", after, end)
        start = space + 1 if space >= 0 else after
    return passages


class PassageFinder:
    """Semantic search inside pages. Indexes are kept per text, so a page is embedded once. Safe to use from threads.

    A page with no more passages than are asked for is shown whole, in reading order, without embedding anything.
    """

    def __init__(self, config: SourceConfig) -> None:
        if config.passage_overlap >= config.passage_characters:
            raise InputError("source.passage_overlap must be smaller than source.passage_characters")
        self._config = config
        self._lock = threading.Lock()
        self._model: Any = None
        self._pages: OrderedDict[str, tuple[list[str], faiss.Index | None]] = OrderedDict()

    def find(self, text: str, query: str) -> list[str]:
        """The passages closest to the query by cosine similarity, the closest first."""
        key = sha256(text)
        with self._lock:
            if key not in self._pages:
                passages = split_passages(text, self._config.passage_characters, self._config.passage_overlap)
                self._pages[key] = passages, None
                if len(self._pages) > _PAGES_KEPT:
                    self._pages.popitem(last=False)
            self._pages.move_to_end(key)
            passages, index = self._pages[key]
            if len(passages) <= self._config.passages:
                return passages
            if index is None:
                index = self._index(passages)
                self._pages[key] = passages, index
            _, found = index.search(self._embed([query]), self._config.passages)
            return [passages[position] for position in found[0]]

    def _index(self, passages: list[str]) -> "faiss.Index":
        import faiss

        vectors = self._embed(passages)
        index = faiss.IndexFlatIP(vectors.shape[1])
        index.add(vectors)
        return index

    def _embed(self, texts: list[str]) -> Any:
        """Unit vectors, float32, of shape (texts, dimensions)."""
        if self._model is None:
            quiet()
            from sentence_transformers import SentenceTransformer

            name = self._config.embedder
            folder = packaged_embedder() if name == "embedded" else Path(name)
            try:
                self._model = SentenceTransformer(str(folder), device="cpu")
            except (OSError, ValueError) as error:
                raise InputError(f"cannot load the embedder {name}: {str(error).splitlines()[0]}") from error
        return self._model.encode(texts, normalize_embeddings=True, convert_to_numpy=True, show_progress_bar=False)
