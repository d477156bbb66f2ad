"""A completion's text while it grows: where it stops, and which part of it is certain."""

from collections.abc import Callable, Sequence


def cut_at_stop(text: str, stops: Sequence[str]) -> tuple[str, str]:
    """Cut a text before the first stop text in it.

    Returns:
        The text, and the stop text found (empty if none was).
    """
    found = [(position, stop) for stop in stops if stop and (position := text.find(stop)) >= 0]
    if not found:
        return text, ""
    position, stop = min(found)
    return text[:position], stop


class Pieces:
    """Hands a growing text on piece by piece; keeps back what may yet become a stop text.

    Args:
        give: takes each piece.
    """

    def __init__(self, give: Callable[[str], None], stops: Sequence[str]) -> None:
        self._give = give
        self._stops = [stop for stop in stops if stop]
        self._text = ""
        self._given = 0

    def add(self, text: str) -> None:
        """More of the text, in which no stop text has ended yet."""
        self._text += text
        self._hand_on(len(self._text) - self._pending())

    def end(self, whole: str) -> None:
        """The text as it is in the end, without the stop text."""
        self._text = whole
        self._hand_on(len(whole))

    def _hand_on(self, end: int) -> None:
        if end > self._given:
            self._give(self._text[self._given : end])
            self._given = end

    def _pending(self) -> int:
        """Characters at the end that are the beginning of a stop text."""
        longest = max(map(len, self._stops), default=1) - 1
        for length in range(min(longest, len(self._text) - self._given), 0, -1):
            if any(stop.startswith(self._text[-length:]) for stop in self._stops):
                return length
        return 0
