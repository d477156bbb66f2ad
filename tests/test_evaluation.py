"""Teams on held-out questions, where failures began, and the gate that adapters pass to become active."""

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from flywheel.cli import flywheel as group
from flywheel.errors import DataError, FlywheelError, InputError
from flywheel.evaluation.arms import Arm, compare_arms
from flywheel.evaluation.held_out import freeze
from flywheel.evaluation.origins import find_origin
from flywheel.evaluation.results import Evaluation, compare
from flywheel.evaluation.tables import describe_origins
from flywheel.evaluation.teams import parse_team, parse_teams, swaps
from flywheel.files import write_text
from flywheel.questions import read_questions
from flywheel.records import AgentRun, Question, Rollout, Support
from flywheel.registry import GateRefused, Registry
from flywheel.statistics import detectable_difference, mcnemar_exact
from flywheel.store import TraceStore
from flywheel.workspace import ROLES, Workspace

from .adapters import make_adapter


def run(*arguments: object, code: int = 0) -> str:
    """What a command prints; a failure has the text of its error."""
    result = CliRunner().invoke(group, [str(argument) for argument in arguments])
    if code:
        assert isinstance(result.exception, FlywheelError), result.output
        assert result.exception.exit_code == code
        return result.output + str(result.exception)
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output


@pytest.fixture
def workspace(qwen2: Path, make_workspace: Callable[..., Workspace]) -> Workspace:
    """With a first version of every role."""
    made = make_workspace(qwen2)
    for seed, role in enumerate(ROLES):
        make_adapter(made.folder / "adapters", qwen2, role, 1, seed)
    return made


def test_a_team_is_what_its_text_says() -> None:
    active, candidate = {"supervisor": "supervisor@1"}, {"page_search": "page_search@4"}
    assert parse_team("base", active, candidate) == {}
    assert parse_team("active", active, candidate) == active
    assert parse_team("candidate", active, candidate) == active | candidate
    assert parse_team("page_search@2", active, candidate) == active | {"page_search": "page_search@2"}
    assert parse_team("candidate,supervisor=base", active, candidate) == candidate
    for wrong in ("pilot@1", "supervisor", "base,active", "supervisor@x", ""):
        with pytest.raises(InputError, match="none of base, active"):
            parse_team(wrong, active, candidate)


def test_teams_can_be_named() -> None:
    teams = parse_teams(
        ["base", "old: active", "new:supervisor@2", "supervisor@3", "base"], {"supervisor": "supervisor@1"}, {}
    )
    assert list(teams) == ["base", "old", "new", "supervisor@3"]
    assert teams["old"] == {"supervisor": "supervisor@1"} and teams["new"] == {"supervisor": "supervisor@2"}
    for wrong in (":base", "base:active", "candidate: base", "New:base", "a b:base", "../a:base", "a" * 31 + ":base"):
        with pytest.raises(InputError, match="a name has at most 30"):
            parse_teams([wrong], {}, {})
    with pytest.raises(InputError, match="another team has this name"):
        parse_teams(["new:base", "new:supervisor@1"], {}, {})


def test_the_matrix_takes_one_role_away_at_a_time() -> None:
    old = {role: f"{role}@1" for role in ROLES}
    new = old | {"page_search": "page_search@2"}
    assert swaps(old, new) == {
        "supervisor base": {role: new[role] for role in ("wiki_search", "page_search")},
        "wiki_search base": {role: new[role] for role in ("supervisor", "page_search")},
        "page_search old": old,
        "page_search base": {role: old[role] for role in ("supervisor", "wiki_search")},
    }


@pytest.mark.parametrize(("size", "disagree"), [(40, 0.25), (50, 0.25), (110, 0.25), (300, 0.1)])
def test_the_detectable_difference_is_found_as_often_as_promised(size: int, disagree: float) -> None:
    """By drawing pairs of outcomes, a little less rarely than the promise at most."""
    import random

    difference = detectable_difference(size, disagree)
    assert difference
    dice, found = random.Random(0), 0
    for _ in range(1000):
        discordant = sum(dice.random() < disagree for _ in range(size))
        wins = sum(dice.random() < 0.5 + difference / (2 * disagree) for _ in range(discordant))
        first, second = [True] * (discordant - wins) + [False] * wins, [False] * (discordant - wins) + [True] * wins
        found += mcnemar_exact(first, second)[2] < 0.05 and wins > discordant / 2
    assert 0.76 < found / 1000 < 0.9
    assert detectable_difference(20, 0.25) is None
    assert detectable_difference(5000, 0.25)


def _two_hop(traces: Sequence[Rollout]) -> Rollout:
    return min((rollout for rollout in traces if rollout.question.kind == "two_hop"), key=lambda rollout: rollout.id)


def _changed(rollout: Rollout, change: Callable[[AgentRun], AgentRun | None]) -> Rollout:
    """A rollout with its runs changed, or left out."""
    runs = tuple(changed for run in rollout.runs if (changed := change(run)))
    return rollout.model_copy(update={"runs": runs, "answer": "something else"})


def _blind(run: AgentRun, value: str) -> AgentRun:
    """A run that has not seen a value, nor reports it."""
    calls = tuple(
        call.model_copy(update={"observation": (call.observation or "").replace(value, "nothing")})
        for call in run.calls
    )  # fmt: skip
    return run.model_copy(update={"calls": calls, "report": run.report.replace(value, "nothing")})


def test_where_a_failure_began(traces: Sequence[Rollout]) -> None:
    """A teacher's right rollout, broken at one place after the other."""
    rollout = _two_hop(traces)
    first, last = rollout.question.evidence[0].value, rollout.question.evidence[-1].value
    supervisor, wiki_search, page_search = ROLES
    assert str(find_origin(_changed(rollout, lambda run: run))) == "supervisor: facts reported, not used"

    def origin(*blind: str, unreported: str = "") -> str:
        """The given roles have not seen the last value; one of them has, but does not report it."""

        def change(run: AgentRun) -> AgentRun:
            if run.role == unreported:
                return run.model_copy(update={"report": run.report.replace(last, "nothing")})
            return _blind(run, last) if run.role in blind else run

        return str(find_origin(_changed(rollout, change)))

    assert origin(supervisor, wiki_search) == "wiki_search: reported to it, not passed on"
    assert origin(supervisor, wiki_search, unreported=page_search) == "page_search: retrieved, not reported"
    assert origin(*ROLES) == "page_search: page opened, fact not retrieved"
    assert first != last
    only_first_hop = _changed(rollout, lambda run: _blind(run, last) if run.parent_call is None else None)
    assert str(find_origin(only_first_hop)) == "supervisor: never asked for"
    without_readers = _changed(rollout, lambda run: None if run.role == page_search else _blind(run, last))
    assert str(find_origin(without_readers)) in (
        "wiki_search: page found, not opened", "wiki_search: reported to it, not passed on",
    )  # fmt: skip
    bare = rollout.question.model_copy(update={"evidence": ()})
    assert find_origin(rollout.model_copy(update={"question": bare})) is None


def test_who_lost_one_of_two_like_facts(traces: Sequence[Rollout]) -> None:
    """The same was to be found out of two things, and perhaps they even have it in common."""
    kinds = ("comparison", "yes_no", "difference")
    rollout = min((one for one in traces if one.question.kind in kinds), key=lambda one: one.id)
    first, last = rollout.question.evidence

    def second(run: AgentRun) -> bool:
        """Whether a run serves the second fact."""
        return run.parent_call is not None and last.page in run.task

    unasked = _changed(rollout, lambda run: None if second(run) else _blind(run, last.value))
    assert str(find_origin(unasked)) == "supervisor: never asked for"
    same = rollout.question.model_copy(update={"evidence": (first, last.model_copy(update={"value": first.value}))})
    twins = rollout.model_copy(update={"question": same})
    lost = _changed(twins, lambda run: None if second(run) else run)
    assert str(find_origin(lost)) == "supervisor: never asked for"
    cut = _changed(rollout, lambda run: run if run.parent_call else run.model_copy(update={"status": "max_steps"}))
    assert str(find_origin(cut)) == "supervisor: ended without an answer"


def test_supporting_sentences_tell_as_well(traces: Sequence[Rollout]) -> None:
    rollout = _two_hop(traces)
    facts = rollout.question.evidence
    sentences = tuple(Support(page=fact.page, text=f"It is known for {fact.value}.") for fact in facts)
    question = rollout.question.model_copy(update={"evidence": (), "supporting": sentences})
    rollout = rollout.model_copy(update={"question": question})
    assert str(find_origin(_changed(rollout, lambda run: run))) == "supervisor: facts reported, not used"
    blind = _changed(rollout, lambda run: _blind(run, facts[-1].value))
    assert str(find_origin(blind)) == "page_search: page opened, fact not retrieved"


def test_an_evaluation_says_how_each_role_went_about_it(traces: Sequence[Rollout]) -> None:
    wrong = [
        _changed(rollout, lambda run: run).model_copy(
            update={"verdict": rollout.verdict.model_copy(update={"exact_match": False, "match": False})}
        )
        for rollout in traces
    ]
    evaluation = compare({"right": traces, "wrong": wrong}, [("right", "wrong")])
    right, other = evaluation.arms
    assert (right.exact_match, other.exact_match) == (1, 0)
    assert right.origins == {} and sum(other.origins.values()) == len(traces)
    assert describe_origins(other)[0].startswith("supervisor lost 100% of the 16 failures of wrong")
    health = right.roles["wiki_search"]
    assert health.runs == sum(run.role == "wiki_search" for rollout in traces for run in rollout.runs)
    assert (health.without_code, health.failed, health.repeated, health.used) == (0, 0, 0, 1)
    assert sum(total for _, total in right.by_hops.values()) == len(traces)
    assert Evaluation.model_validate_json(evaluation.as_json()) == evaluation


def test_evaluate_freezes_its_questions_and_compares_teams(workspace: Workspace) -> None:
    at = ("-w", workspace.folder, "evaluate")
    assert "name them with --questions" in run(*at, code=2)
    for options in (("--split", "dev"), ("--shuffle", 3), ("--freeze",)):
        assert "with --questions" in run(*at, *options, code=2)
    printed = run(*at, "--questions", "embedded", "--limit", 3, "--name", "first")
    assert "3 questions are frozen" in printed and "too few to tell" in printed
    assert "base against candidate" in printed
    assert "these are not the frozen" in run(*at, "--questions", "embedded", "--limit", 2, "--shuffle", 1)
    again = run(*at, "--name", "first")
    assert "frozen as" not in again and "base against candidate" in again
    evaluation = Evaluation.model_validate_json((workspace.reports / "first" / "evaluation.json").read_text())
    assert evaluation.arms[1].versions == {role: f"{role}@1" for role in ROLES}
    assert set(evaluation.arms[1].weights) == {f"{role}@1" for role in ROLES}
    printed = run(*at, "--team", "base,page_search@1", "--matrix", "--limit", 1)
    assert "base,page_search@1" in printed and "page_search base" in printed
    printed = run(*at, "--team", "base", "--team", "one: base,page_search@1", "--limit", 1)
    assert "base against one" in printed and "one: page_search@1" in printed
    assert "there is no page_search@9" in run(*at, "--team", "page_search@9", code=2)
    assert "none of base" in run(*at, "--team", "pilot@1", code=2)


def test_what_a_team_has_answered_is_not_asked_again(workspace: Workspace, qwen2: Path) -> None:
    """Unless its weights, the base's, the settings or the question are others, or --fresh asks for it."""
    at = ("-w", workspace.folder)

    def answers(name: str, *options: object) -> tuple[str, set[tuple[str, float]], set[tuple[str, float]]]:
        """What was printed, and which rollouts of the base and of the candidate, by how long they took."""
        printed = run(*at, "evaluate", "--name", name, *options)
        taken = []
        for team in ("base", "candidate"):
            with TraceStore(workspace.reports / name / f"{team}.sqlite", read_only=True) as store:
                taken.append({(rollout.id, rollout.seconds) for rollout in store.rollouts()})
        return printed, taken[0], taken[1]

    printed, base, candidate = answers("first", "--questions", "embedded", "--limit", 3)
    assert "earlier report" not in printed
    printed, *same = answers("again")
    assert "base: 3 of 3 answers are in an earlier report" in printed and same == [base, candidate]
    printed, *same = answers("more", "--questions", "embedded", "--limit", 4)
    assert "candidate: 3 of 4 answers" in printed and base < same[0] and candidate < same[1]
    printed, *others = answers("fresh", "--fresh")
    assert "earlier report" not in printed and not others[0] & base and not others[1] & candidate
    changed = [question.model_copy(update={"answer": "other"}) for question in read_questions("embedded", "test", 3)]
    path = workspace.folder / "changed.jsonl"
    path.write_text("".join(question.model_dump_json() + "\n" for question in changed))
    printed, *others = answers("changed", "--questions", path)
    assert "earlier report" not in printed
    with_settings = ("-o", "engine.max_tokens=9", "evaluate", "--name", "settings")
    assert "earlier report" not in run(*at, *with_settings)
    make_adapter(workspace.folder / "adapters", qwen2, "supervisor", 2, 7)
    printed, *others = answers("weights")
    assert "base: 3 of 3" in printed and printed.count("earlier report") == 1
    base_weights = next(Path(workspace.config.engine.model).glob("*.safetensors"))
    other = workspace.folder / "base"
    shutil.copytree(base_weights.parent, other)
    settings = ("-o", f"engine.model={other}", "evaluate", "--team", "base")
    run(*at, *settings, "--name", "copy")
    assert "3 of 3" in run(*at, *settings, "--name", "copy-again")
    weights = (other / base_weights.name).read_bytes()
    (other / base_weights.name).write_bytes(weights[:-1] + bytes([weights[-1] ^ 1]))
    assert "earlier report" not in run(*at, *settings, "--name", "other")


def _evaluate(
    workspace: Workspace, name: str, rights: dict[tuple[str, ...], str], created: str = "2026",
    questions: list[Question] | None = None,
) -> None:  # fmt: skip
    """Write a report in which each team (its versions) had the questions marked 1 right."""
    questions = questions or read_questions("embedded", "test", len(next(iter(rights.values()))))
    if not workspace.held_out.exists():
        freeze(workspace, questions)
    results, arms = {}, []
    for team, right in rights.items():
        label = " ".join(team) or "base"
        versions = {name.partition("@")[0]: name for name in team}
        arms.append(Arm(label, workspace.config, versions=versions).weighed(workspace))
        results[label] = [_rollout(question, mark == "1") for question, mark in zip(questions, right, strict=True)]
    evaluation = compare_arms(arms, results, [], created)
    write_text(workspace.reports / name / "evaluation.json", evaluation.as_json())


def _rollout(question: Question, right: bool) -> Rollout:
    verdict = {"exact_match": right, "f1": float(right), "match": right, "reason": ""}
    return Rollout.model_validate({
        "id": question.id, "question": question.model_dump(), "sample": 0, "seed": 0, "round": 0, "runs": (),
        "status": "finished", "answer": "x", "verdict": verdict, "seconds": 1, "prompt": "compact", "history": "full",
    })  # fmt: skip


ALL = tuple(f"{role}@1" for role in ROLES)


def test_only_what_is_better_becomes_active(workspace: Workspace) -> None:
    at = ("-w", workspace.folder)
    assert "no evaluation on the held-out questions" in run(*at, "promote", code=3)
    _evaluate(workspace, "even", {(): "0000000000", ALL: "1110000000"}, "2026-01")
    assert "not distinguishable from what is active" in run(*at, "promote", code=3)
    assert Registry(workspace).active() == {}
    _evaluate(workspace, "worse", {(): "1111111111", ALL: "0000000000"}, "2026-02")
    for options in ((), ("--allow-equal",)):
        assert "is worse with" in run(*at, "promote", *options, code=3)
    _evaluate(workspace, "better", {(): "0000000000", ALL: "1111111000"}, "2026-03")
    assert "better in better" in run(*at, "promote")
    assert Registry(workspace).active() == {role: f"{role}@1" for role in ROLES}
    assert "there are no candidates" in run(*at, "promote", code=2)
    assert "active already" in run(*at, "promote", "supervisor", code=2)


def test_what_cannot_be_told_apart_is_taken_only_if_asked(workspace: Workspace, qwen2: Path) -> None:
    at = ("-w", workspace.folder)
    run(*at, "promote", "--force", "--why", "to begin with")
    make_adapter(workspace.folder / "adapters", qwen2, "page_search", 2, 7)
    new = (*ALL[:2], "page_search@2")
    _evaluate(workspace, "both", {(): "0000000000", ALL: "1111100000", new: "1111110000"})
    assert "not distinguishable" in run(*at, "promote", code=3)
    assert "which was allowed" in run(*at, "promote", "--allow-equal")
    listed = run(*at, "adapters")
    assert "retired" in listed and "to begin with" in listed and "page_search@2" in listed
    assert "page_search@1" in run(*at, "rollback")
    assert Registry(workspace).candidates() == {}, "what was active once is no candidate any more"
    run(*at, "promote", "page_search@2", "--force", "--why", "again")
    for _ in range(2):
        run(*at, "rollback")
    assert Registry(workspace).active() == {}
    assert "nothing to go back to" in run(*at, "rollback", code=2)
    ledger = json.loads(run(*at, "adapters", "--json"))["ledger"]
    assert [entry["action"] for entry in ledger] == [
        "promote",
        "promote",
        "rollback",
        "promote",
        "rollback",
        "rollback",
    ]
    assert ledger[1]["figures"]["only_second"] == 1 and ledger[0]["forced"]


def test_an_evaluation_of_other_weights_or_questions_proves_nothing(workspace: Workspace, qwen2: Path) -> None:
    _evaluate(workspace, "better", {(): "0000000000", ALL: "1111111000"})
    freeze(workspace, read_questions("embedded", "test", 9))
    with pytest.raises(GateRefused):
        Registry(workspace).promote({"supervisor": "supervisor@1"})
    freeze(workspace, read_questions("embedded", "test", 10))
    shutil.rmtree(workspace.adapter("supervisor@1"))
    make_adapter(workspace.folder / "adapters", qwen2, "supervisor", 1, 99)
    with pytest.raises(GateRefused):
        Registry(workspace).promote({role: f"{role}@1" for role in ROLES})


def test_an_active_adapter_that_was_changed_is_not_used(workspace: Workspace, qwen2: Path, llama: Path) -> None:
    at = ("-w", workspace.folder)
    assert "--force needs --why" in run(*at, "promote", "--force", code=2)
    run(*at, "promote", "supervisor", "--force", "--why", "x")
    shutil.rmtree(workspace.adapter("supervisor@1"))
    make_adapter(workspace.folder / "adapters", qwen2, "supervisor", 1, 99)
    assert "is not what was promoted" in run(*at, "ask", "Who?", code=3)
    assert "supervisor@1" in Registry(workspace).broken()
    make_adapter(workspace.folder / "adapters", llama, "wiki_search", 2, 1)
    with pytest.raises(DataError, match="was trained on"):
        Registry(workspace).force({"wiki_search": "wiki_search@2", "supervisor": "supervisor@1"}, "x")


def test_other_weights_become_active_by_no_other_way(workspace: Workspace, qwen2: Path) -> None:
    """Neither by a rollback to them, nor by a promotion or pruning beside them, nor by an evaluation."""
    at, adapters = ("-w", workspace.folder), workspace.folder / "adapters"
    run(*at, "promote", "supervisor", "--force", "--why", "x")
    make_adapter(adapters, qwen2, "supervisor", 2, 5)
    make_adapter(adapters, qwen2, "supervisor", 3, 6)
    run(*at, "promote", "supervisor@2", "--force", "--why", "y")
    shutil.rmtree(workspace.adapter("supervisor@2"))
    make_adapter(adapters, qwen2, "supervisor", 2, 99)
    assert "is not what was promoted" in run(*at, "promote", "wiki_search", "--force", "--why", "z", code=3)
    questions = ("--questions", "embedded", "--limit", 2)
    assert "is not what was promoted" in run(*at, "evaluate", *questions, "--team", "active", code=3)
    run(*at, "adapters", "--prune", 1)
    assert "supervisor@2" in Registry(workspace).broken()
    assert "active, unusable" in run(*at, "adapters")
    run(*at, "promote", "supervisor@3", "--force", "--why", "mended")
    assert "supervisor@1 (rolled back by hand; passed over supervisor@2" in run(*at, "rollback")
    assert "nothing to go back" in run(*at, "rollback") or Registry(workspace).active() == {}


def test_what_is_gone_does_not_block_the_way_back(workspace: Workspace) -> None:
    at = ("-w", workspace.folder)
    run(*at, "promote", "supervisor", "--force", "--why", "x")
    shutil.rmtree(workspace.adapter("supervisor@1"))
    assert "go back with: flywheel rollback" in run(*at, "ask", "Who?", code=3)
    assert "active, unusable" in run(*at, "adapters")
    assert "go back with" in run(*at, "evaluate", "--questions", "embedded", "--limit", 2, "--team", "active", code=3)
    assert "the base plays every role" in run(*at, "rollback")
    run(*at, "promote", "wiki_search", "--force", "--why", "x")
    (workspace.adapter("page_search@1") / "adapter_model.safetensors").write_bytes(b"x")
    assert "candidate, unusable" in run(*at, "adapters")


def test_a_ledger_that_was_cut_off_goes_on(workspace: Workspace) -> None:
    at, ledger = ("-w", workspace.folder), workspace.folder / "adapters" / "ledger.jsonl"
    run(*at, "promote", "supervisor", "--force", "--why", "x")
    with ledger.open("a") as file:
        file.write('{"time": "2026-01-01T00:00:00Z", "wh')
    assert Registry(workspace).active() == {"supervisor": "supervisor@1"}
    run(*at, "promote", "wiki_search", "--force", "--why", "y")
    assert len(ledger.read_text().splitlines()) == len(Registry(workspace).entries) == 2
    ledger.write_bytes(ledger.read_bytes()[:-1])
    run(*at, "promote", "page_search", "--force", "--why", "z")
    assert len(Registry(workspace).entries) == 3
    ledger.write_text('{"time": 1}\n' + ledger.read_text())
    assert "ledger.jsonl:1 is damaged" in run(*at, "adapters", code=3)


def test_an_evaluation_under_other_settings_proves_nothing(workspace: Workspace) -> None:
    _evaluate(workspace, "better", {(): "0000000000", ALL: "1111111000"})
    at = ("-w", workspace.folder)
    shorter = ("-o", "engine.max_tokens=5")
    assert "better does, but with another engine.max_tokens" in run(*at, *shorter, "promote", code=3)
    assert "with another team.prompt" in run(*at, "-o", "team.prompt=full", "promote", code=3)
    assert "right alone 7 against 0); for the release)" in run(*at, "promote", "--why", "for the release")
    run(*at, "rollback")
    card = workspace.adapter("supervisor@1") / "card.json"
    card.write_text(card.read_text().replace('"compact"', '"full"'))
    with pytest.raises(GateRefused):
        Registry(workspace).promote({role: f"{role}@1" for role in ROLES})


def test_questions_that_were_trained_on_prove_nothing(workspace: Workspace) -> None:
    at = ("-w", workspace.folder)
    run(*at, "collect", "--questions", "embedded", "--limit", 6, "--teacher", "--round", 0)
    questions = read_questions("embedded", "train", 10)
    renamed = [question.model_copy(update={"id": f"x{question.id}", "split": "test"}) for question in questions]
    freeze(workspace, renamed)
    _evaluate(workspace, "better", {(): "0000000000", ALL: "1111111000"}, questions=renamed)
    assert "6 questions that were trained on are held out or near" in run(*at, "promote", code=3)
    path = workspace.folder / "again.jsonl"
    path.write_text("".join(question.model_dump_json() + "\n" for question in renamed[:1]))
    assert "this is no proof" in run(*at, "evaluate", "--questions", path, "--freeze", "--name", "leak")


def test_kinds_of_questions_are_shown_as_they_are(workspace: Workspace, tmp_path: Path) -> None:
    path = tmp_path / "odd.jsonl"
    rows = [
        {"question": f"Who? {kind}", "answer": "Bob", "kind": kind, "split": "test"} for kind in ("[/b]", "[bold]k")
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    printed = run("-w", workspace.folder, "evaluate", "--questions", path, "--team", "base", "--team", "candidate")
    assert "[/b]" in printed and "[bold]k" in printed


def test_results_are_not_taken_for_those_of_others(workspace: Workspace, qwen2: Path, tmp_path: Path) -> None:
    """Neither of other weights, settings, questions nor golds under the same names."""
    at = ("-w", workspace.folder)
    row = {"id": "one", "question": "Who wrote it?", "answer": "Bob", "split": "test"}
    path, other = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    path.write_text(json.dumps(row) + "\n")
    other.write_text(json.dumps(row | {"answer": "Ann"}) + "\n")
    teams = ("--team", "base", "--team", "candidate")
    run(*at, "evaluate", "--questions", path, *teams, "--name", "one")
    assert "an evaluation on other questions" in run(
        *at, "evaluate", "--questions", other, *teams, "--name", "one", code=2
    )
    (workspace.reports / "one" / "evaluation.json").unlink()
    assert "holds results on another question 'one'" in run(
        *at, "evaluate", "--questions", other, *teams, "--name", "one", code=2
    )
    for change in ("engine.max_tokens=5", "engine.context=700", "collect.seed=3"):
        refused = run(*at, "-o", change, "evaluate", "--questions", path, *teams, "--name", "one", code=2)
        assert "other adapters or settings" in refused
    shutil.rmtree(workspace.adapter("supervisor@1"))
    make_adapter(workspace.folder / "adapters", qwen2, "supervisor", 1, 99)
    assert "other adapters or settings" in run(*at, "evaluate", *teams, "--name", "one", code=2)
    before = set(workspace.reports.glob("evaluation-*"))
    run(*at, "evaluate", *teams)
    assert len(set(workspace.reports.glob("evaluation-*")) - before) == 1


def test_candidates_are_not_used_unless_named(workspace: Workspace) -> None:
    printed = run("-w", workspace.folder, "collect", "--questions", "embedded", "--limit", 1)
    assert "are candidates. Prove them" in printed
    printed = run("-w", workspace.folder, "ask", "Who?", "--adapter", "page_search", "--json")
    assert "candidates" not in printed


def test_old_versions_go_only_by_command(workspace: Workspace, qwen2: Path) -> None:
    for version in (2, 3, 4):
        make_adapter(workspace.folder / "adapters", qwen2, "supervisor", version, version)
    at = ("-w", workspace.folder)
    run(*at, "promote", "supervisor@2", "--force", "--why", "x")
    assert "pruned: supervisor@1, supervisor@3" in run(*at, "adapters", "--prune", 1)
    assert workspace.versions("supervisor") == [2, 4]
    assert workspace.next_version("supervisor") == 5
