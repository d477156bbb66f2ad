"""What makes the rollouts of a round comparable: the same settings, questions and pages."""

import json

from flywheel.config import Config
from flywheel.errors import InputError
from flywheel.records import Question
from flywheel.store import TraceStore

from .sources import content_of

_NOT_COMPARED = ("source.contact", "source.offline", "source.requests_per_second", "source.path")
"""Settings that do not change what a rollout sees; a file of pages is compared by what is in it."""


def round_settings(config: Config, temperature: float, adapters: list[str], teacher: str) -> dict[str, object]:
    """All that decides what a rollout of the round sees and how it is sampled.

    Args:
        teacher: who plays in place of the engine, if anybody does.
    """
    settings: dict[str, object] = {
        **{f"team.{key}": value for key, value in config.team.model_dump().items()},
        **{f"source.{key}": value for key, value in config.source.model_dump().items()},
        "engine.kind": teacher or config.engine.kind,
        "engine.model": teacher or config.engine.model,
        "engine.context": config.engine.context,
        "engine.dtype": config.engine.dtype,
        "source.pages": content_of(config.source),
        "engine.max_tokens": config.engine.max_tokens,
        "collect.seed": config.collect.seed,
        "collect.executor": config.collect.executor,
        "collect.grader": config.collect.grader,
        "temperature": temperature,
        "adapters": adapters,
    }
    return {key: value for key, value in settings.items() if key not in _NOT_COMPARED}


def check_unchanged(store: TraceStore, number: int, settings: dict[str, object], allow_change: bool) -> None:
    """Refuse to go on with a round under other settings: its rollouts would not be comparable."""
    key, text = f"settings of round {number}", json.dumps(settings, sort_keys=True)
    before = store.meta(key)
    if before and before != text and not allow_change and store.verdicts(number):
        try:
            old = json.loads(before)
        except ValueError:
            old = {}
        changed = [name for name in settings if name in old and settings[name] != old[name]]
        if changed:
            named = ", ".join(f"{name} was {old[name]!r}, now {settings[name]!r}" for name in changed[:3])
            more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
            raise InputError(
                f"round {number} was collected with other settings ({named}{more}); "
                "begin another round with --new, or mix them with --allow-change"
            )
    store.set_meta(key, text)


def check_same_questions(store: TraceStore, number: int, questions: list[Question]) -> None:
    """Refuse a question that goes under the id of another one: it would count as done."""
    known = {id: text for id, text, _ in store.questions(number)}
    for question in questions:
        if known.get(question.id, question.question) != question.question:
            raise InputError(
                f"round {number} has another question under the id {question.id!r} ({known[question.id][:60]!r}); "
                "begin another round with --new, or give the questions other ids"
            )
