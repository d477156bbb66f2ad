"""The held-out questions of a workspace: frozen when they are first used, so that rounds are compared on the same."""

from collections.abc import Iterable

from pydantic import ValidationError

from flywheel.errors import DataError, explain
from flywheel.files import read_jsonl, sha256, write_jsonl
from flywheel.records import Question
from flywheel.stages import stage
from flywheel.store import TraceStore
from flywheel.workspace import Workspace, read_card

from .results import hash_questions


def freeze(workspace: Workspace, questions: list[Question]) -> None:
    """Make these the held-out questions of the workspace."""
    write_jsonl(workspace.held_out, (question.model_dump_json() for question in questions))


def frozen_questions(workspace: Workspace) -> list[Question]:
    """The held-out questions; empty before the first evaluation.

    Raises:
        DataError: when the file is damaged.
    """
    if not workspace.held_out.exists():
        return []
    try:
        return [Question.model_validate(row) for _, row in read_jsonl(workspace.held_out)]
    except ValidationError as error:
        raise DataError(f"{workspace.held_out} is damaged: {explain(error)}") from error


def frozen_hash(workspace: Workspace) -> str:
    """Fingerprint of the held-out questions; empty before the first evaluation."""
    questions = frozen_questions(workspace)
    return hash_questions(questions) if questions else ""


def trained_on(workspace: Workspace, adapters: Iterable[str]) -> list[str]:
    """Questions that adapters were trained on and that are held out, or near to one that is, by their ids.

    It looks into the rows that an adapter was trained on; where these are gone, at every right rollout in the traces.
    """
    if not workspace.traces.exists():
        return []
    held_out = stage("train.held_out").HeldOut(frozen_questions(workspace))
    with TraceStore(workspace.traces, read_only=True) as store:
        known = {id: text for id, text, _ in store.questions()}
        right = {id for number in store.rounds() for (id, _), good in store.verdicts(number).items() if good}
    files = {sha256(path): path for path in workspace.datasets.rglob("*.jsonl")}
    trained: set[str] = set()
    for name in adapters:
        path = files.get(read_card(workspace.adapter(name)).dataset_hash)
        trained |= {str(row.get("question")) for _, row in read_jsonl(path)} if path else right
    return sorted(id for id in trained & known.keys() if held_out.holds(id, known[id]))
