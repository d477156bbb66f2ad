"""The teams of an evaluation, and their rollouts on the same questions with the same seeds."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import click

from flywheel import __version__
from flywheel.base_model import model_hash
from flywheel.config import Config
from flywheel.engines import Engine
from flywheel.errors import DataError, InfrastructureError, InputError
from flywheel.files import now, sha256, write_text
from flywheel.records import BASE, Prompt, Question, Rollout
from flywheel.stages import stage
from flywheel.store import RolloutFilter, TraceStore
from flywheel.workspace import Workspace, read_card, read_record

from .results import Evaluation, compare, hash_questions
from .settings import all_settings, compared_settings


@dataclass(frozen=True)
class Arm:
    """A team to evaluate: who plays the roles, and with which prompts."""

    name: str
    config: Config
    model: str = ""
    """`base` to let the base play every role."""
    versions: dict[str, str] = field(default_factory=dict)
    """`role@version` by role; a role that is missing is played by the base."""
    prompts: dict[str, Prompt] = field(default_factory=dict)
    """Which prompt a role gets, where not the team's."""
    weights: dict[str, str] = field(default_factory=dict)
    """SHA-256 of each version's weights."""

    def digest(self) -> str:
        """Fingerprint of everything that decides what the team answers."""
        others = {role: prompt for role, prompt in self.prompts.items() if prompt != self.config.team.prompt}
        return sha256(json.dumps(
            [all_settings(self.config), self.model, self.versions, self.weights, others], sort_keys=True
        ))  # fmt: skip

    def weighed(self, workspace: Workspace) -> "Arm":
        """The same with the hashes of its versions' weights."""
        weights = {name: read_card(workspace.adapter(name)).weights_hash for name in self.versions.values()}
        return replace(self, weights=weights)


def run_arm(
    arm: Arm, questions: Sequence[Question], engine: Engine, folder: Path, cache: Path, earlier: Sequence[Path] = ()
) -> list[Rollout]:
    """Run a team on the questions at temperature 0; what an earlier call finished is not run again.

    Args:
        earlier: stores of other reports; what the same team answered there under the same settings is taken from them.

    Raises:
        InfrastructureError: when rollouts failed; the same call tries them again.
        InputError: when the folder holds this arm's rollouts with other adapters or settings.
    """
    versions = {role.name: arm.versions.get(role.name, BASE) for role in stage("collect.team").WIKIPEDIA.roles}
    with TraceStore(arm_store(folder, arm.name)) as store:
        _prepare(store, folder, arm, questions, earlier)
        summary = stage("collect.collector").collect(
            questions, arm.config, engine, store, cache, round=0, samples=1, temperature=0.0, model=arm.model,
            versions=versions, prompts=arm.prompts, title=f"evaluate {arm.name}",
        )  # fmt: skip
        if summary.interrupted:
            raise KeyboardInterrupt
        if summary.infrastructure:
            raise InfrastructureError(f"{summary.infrastructure} rollouts of {arm.name} failed: {summary.failure}")
        by_id = {rollout.question.id: rollout for rollout in store.rollouts(RolloutFilter(round=0))}
    return [by_id[question.id] for question in questions]


def _prepare(store: TraceStore, folder: Path, arm: Arm, questions: Sequence[Question], earlier: Iterable[Path]) -> None:
    """See that the store in this folder is the arm's, and put in what other stores have of it.

    Raises:
        InputError: when it holds rollouts with other adapters or settings, or on other questions.
    """
    if (store.meta("arm") or arm.digest()) != arm.digest():
        raise InputError(f"{folder} holds results of other adapters or settings; choose another --name for these")
    asked = {question.id: question for question in questions}
    for done in store.rollouts(RolloutFilter(round=0)):
        if done.question != asked.get(done.question.id, done.question):
            raise InputError(
                f"{folder} holds results on another question {done.question.id!r}; choose another --name for these"
            )
    if store.meta("arm") is None:
        store.set_meta("arm", arm.digest())
        store.set_meta("made with", _made_with(arm.config))
    missing = asked.keys() - {id for id, _ in store.verdicts(0)}
    if missing and (found := store.merge(_known(arm, [asked[id] for id in missing], earlier))["new"]):
        click.echo(f"{arm.name}: {found} of {len(asked)} answers are in an earlier report", err=True)


def _known(arm: Arm, questions: Iterable[Question], stores: Iterable[Path]) -> Iterator[Rollout]:
    """What the same team answered to these questions, in the first store that has it."""
    wanted, made_with = {question.id: question for question in questions}, _made_with(arm.config)
    if not made_with:
        return
    for path in stores:
        with suppress(DataError), TraceStore(path, read_only=True) as store:
            if (store.meta("arm"), store.meta("made with")) != (arm.digest(), made_with):
                continue
            for rollout in store.rollouts(RolloutFilter(round=0)):
                if rollout.status == "finished" and wanted.get(rollout.question.id) == rollout.question:
                    del wanted[rollout.question.id]
                    yield rollout


def _made_with(config: Config) -> str:
    """This Flywheel and the base's weights; empty where another server holds them, which may change unseen."""
    return "" if config.engine.kind == "openai" else f"flywheel {__version__}, base {model_hash(config.engine.model)}"


def evaluate_arms(
    workspace: Workspace, arms: Sequence[Arm], questions: Sequence[Question], engine: Engine, name: str,
    pairs: Sequence[tuple[str, str]], fresh: bool = False,
) -> tuple[Evaluation, dict[str, list[Rollout]]]:  # fmt: skip
    """Run the teams on the questions, and keep the results as a report of that name.

    Args:
        engine: one that serves the adapters of all teams.
        pairs: names of the teams that are tested against each other.
        fresh: take no answers from other reports.

    Raises:
        InfrastructureError: when rollouts failed; the same call tries them again.
        InputError: when the report holds results of other teams, settings or questions.
    """
    folder = workspace.reports / name
    with suppress(DataError):
        found = read_record(folder / "evaluation.json", Evaluation)
        if found.questions_hash != hash_questions(questions):
            raise InputError(f"{folder} is an evaluation on other questions; choose another --name for this one")
    arms = [arm.weighed(workspace) for arm in arms]
    earlier = [] if fresh else sorted(workspace.reports.glob("*/*.sqlite"))
    results = {arm.name: run_arm(arm, questions, engine, folder, workspace.cache, earlier) for arm in arms}
    evaluation = compare_arms(arms, results, pairs, now())
    write_text(folder / "evaluation.json", evaluation.as_json())
    return evaluation, results


def compare_arms(
    arms: Sequence[Arm], results: Mapping[str, Sequence[Rollout]], pairs: Iterable[tuple[str, str]], created: str
) -> Evaluation:
    """Summarise and test, and say who played with which settings: what a promotion goes by."""
    found = compare(results, pairs, created)
    played = [
        result.model_copy(update={"versions": arm.versions, "weights": arm.weights, "prompts": arm.prompts})
        for arm, result in zip(arms, found.arms, strict=True)
    ]
    return found.model_copy(update={"arms": tuple(played), "settings": compared_settings(arms[0].config)})


def arm_store(folder: Path, name: str) -> Path:
    """Where an arm's rollouts are kept, for `flywheel show --store`."""
    return folder / f"{re.sub(r'[^A-Za-z0-9@=.]+', '-', name)}.sqlite"
