"""The held-out questions of a workspace: frozen when they are first used, so that rounds are compared on the same."""

from pydantic import ValidationError

from flywheel.errors import DataError, explain
from flywheel.files import read_jsonl, write_jsonl
from flywheel.records import Question
from flywheel.workspace import Workspace

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
