"""Reads a role's training rows back, and refuses files that do not fit."""

from pathlib import Path

from pydantic import ValidationError

from flywheel.errors import DataError, InputError
from flywheel.files import read_jsonl
from flywheel.records import Example
from flywheel.workspace import Workspace


def read_examples(path: Path, role: str, workspace: Workspace) -> tuple[list[Example], str, str]:
    """The rows of a role, and the prompt and history modes they were collected with.

    Raises:
        InputError: when the file is missing or a row is broken; names the line.
        DataError: when there are no rows.
    """
    if not path.exists():
        raise InputError(f"{role} has no dataset {path}; make it with: flywheel select")
    examples = []
    for number, row in read_jsonl(path):
        try:
            example = Example.model_validate(row)
        except ValidationError as error:
            detail = error.errors()[0]
            place = ".".join(map(str, detail["loc"]))
            raise InputError(f"{path}:{number}: not a training row ({place}: {detail['msg']})") from error
        if example.role != role:
            raise InputError(f"{path}:{number}: a row of {example.role}, not of {role}")
        examples.append(example)
    if not examples:
        raise DataError(f"{path} has no rows")
    return examples, workspace.config.team.prompt, workspace.config.team.history
