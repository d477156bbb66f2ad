"""The vocabulary of failures. Each is caught in two places only: the rollout boundary and the command line."""

from typing import Any


class FlywheelError(Exception):
    """Something went wrong that the user can be told about in one or two lines."""

    exit_code = 1


class InputError(FlywheelError):
    """A file, flag, configuration key or name that the user gave is wrong; the text says what to change."""

    exit_code = 2


class UnknownModel(InputError):
    """A model name that is not served."""


class DataError(FlywheelError):
    """What lies in a workspace cannot be used as it is: other version, other base, nothing to train on."""

    exit_code = 3


class InfrastructureError(FlywheelError):
    """An engine, a network or a disk failed. A rollout that meets one is marked, never trained on, and tried again."""

    exit_code = 4


class ContextExceeded(FlywheelError):
    """A conversation has grown longer than the model's context; the agent run ends, other runs are not touched."""

    exit_code = 2


class Cancelled(FlywheelError):
    """Whoever asked for a completion no longer wants it."""


def explain(error: Any) -> str:
    """The first complaint of a pydantic ValidationError, as `field: what is wrong`."""
    detail = error.errors()[0]
    return f"{'.'.join(map(str, detail['loc']))}: {detail['msg']}"
