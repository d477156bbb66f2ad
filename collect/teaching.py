"""Who plays: the workspace's engine, a teacher who helps a base that solves nothing to its first traces, or both."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from flywheel.config import EngineConfig
from flywheel.engines import Engine, open_engine
from flywheel.engines.routed import TEACHER, RoutedEngine
from flywheel.errors import InputError
from flywheel.options import engine_config
from flywheel.records import BASE, Question
from flywheel.teacher import teacher_engine
from flywheel.workspace import ROLES

SCRIPTED = "scripted"
"""The teacher that needs no model, but questions with evidence."""


@dataclass(frozen=True)
class Teaching:
    """A teacher, and the roles that it plays.

    Args:
        engine: `scripted`, or KIND[:MODEL or URL] of another engine; empty for no teacher.
        roles: those that it plays; all if empty.

    Raises:
        InputError: for roles without a teacher.
    """

    engine: str = ""
    roles: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        if self.roles and not self.engine:
            raise InputError("--teacher-role needs --teacher")

    @property
    def whole(self) -> bool:
        """Whether it plays every role."""
        return bool(self.engine) and not set(ROLES) - set(self.roles or ROLES)

    def names(self) -> dict[str, str]:
        """What each of its roles is asked for."""
        if not self.engine:
            return {}
        return {role: TEACHER + (role if self.engine == SCRIPTED else BASE) for role in self.roles or ROLES}

    def describe(self) -> str:
        """What a round's settings say of it."""
        if not self.engine:
            return ""
        return "teacher" if self.whole and self.engine == SCRIPTED else f"{self.engine} for {', '.join(self.names())}"

    def able(self, questions: Sequence[Question]) -> list[Question]:
        """The questions that it can play; a scripted teacher only knows what comes as evidence with a question.

        Raises:
            InputError: when there is none.
        """
        if self.engine != SCRIPTED:
            return list(questions)
        able = [question for question in questions if question.evidence]
        if not able:
            raise InputError(f"--teacher needs questions with evidence, and {questions[0].id} has none")
        return able

    def open(self, config: EngineConfig, adapters: Mapping[str, Path], questions: Sequence[Question]) -> Engine:
        """Open the engine, with the teacher in it.

        Raises:
            InputError: when an engine cannot be opened.
        """
        if not self.engine:
            return open_engine(config, adapters)
        if self.engine == SCRIPTED:
            teacher: Engine = teacher_engine(questions)
        else:
            teacher = open_engine(engine_config(config, self.engine))
        try:
            own = None if self.whole else open_engine(config, adapters)
        except BaseException:
            teacher.close()
            raise
        return RoutedEngine(own, teacher, self.engine)
