"""The wheel on real questions: python -m benchmarks.two_wiki WORKSPACE --train FILE --dev FILE --model MODEL

2WikiMultihopQA questions about all paragraphs of both files, which are the corpus. A scripted teacher plays the first
round from the fact triples that come with the questions; a second round the team collects itself, on other questions.
Both are turns of `flywheel turn`. Stopped, it goes on where it was; at its end it prints every team that was evaluated,
with 95% bootstrap intervals, and McNemar's exact test of each against the base.
"""

import argparse
import itertools
import json
import random
import subprocess
import sys
from pathlib import Path

from rich.console import Console

from flywheel.evaluation.results import ArmResult, Evaluation, pair_test
from flywheel.evaluation.tables import print_evaluation, print_roles
from flywheel.workspace import Workspace, read_record

SETTINGS = """\
[team]
prompt = "compact"
history = "full"
supervisor_steps = 7
wiki_search_steps = 4
page_search_steps = 3

[engine]
kind = "transformers"
model = "{model}"
context = 2048
batch = 48
max_tokens = 100

[source]
kind = "corpus"
path = "{corpus}"
summary_characters = 120
passages = 4

[collect]
concurrency = 48
"""


def prepare(arguments: argparse.Namespace) -> tuple[Workspace, list[Path]]:
    """The workspace, and the questions of the two rounds."""
    folder: Path = arguments.workspace
    rounds = [folder / "taught.jsonl", folder / "own.jsonl"]
    if (folder / "workspace.json").exists():
        return Workspace(folder), rounds
    corpus = folder / "corpus.jsonl"
    workspace = Workspace.create(folder, SETTINGS.format(model=arguments.model.resolve(), corpus=corpus.resolve()))
    lines = arguments.train.read_text(encoding="utf-8").splitlines()
    corpus.write_text("\n".join([*lines, *arguments.dev.read_text(encoding="utf-8").splitlines()]) + "\n", "utf-8")
    random.Random(0).shuffle(lines)
    size = arguments.taught
    for path, part in zip(rounds, (lines[:size], lines[size : size + arguments.own]), strict=True):
        path.write_text("\n".join(part) + "\n", encoding="utf-8")
    return workspace, rounds


def turn(workspace: Workspace, questions: Path, dev: Path, steps: int, *options: str) -> None:
    """One turn of the wheel, on or after the first; what is finished is left."""
    command = [sys.executable, "-m", "flywheel", "-w", str(workspace.folder), "turn", "--questions", str(questions)]
    command += ["--split", "", "--held-out", str(dev), "--steps", str(steps), "--jobs", "2", *options]
    if code := subprocess.run(command, check=False).returncode:
        sys.exit(code)


def summary(workspace: Workspace) -> Evaluation:
    """All teams of all turns' evaluations as one, tested against the first."""
    found = {
        path.parent.name: read_record(path, Evaluation)
        for path in sorted(workspace.reports.glob("round-*/evaluation.json"))
    }
    arms: dict[tuple[str, ...], ArmResult] = {}
    for name, evaluation in found.items():
        for arm in evaluation.arms:
            players = tuple(arm.versions.values())
            arms.setdefault(players, arm.model_copy(update={"name": name if players else "base"}))
    right = {arm.name: arm.right for arm in arms.values()}
    first, *others = right
    pairs = [(first, other) for other in others] + list(itertools.pairwise(others))
    tests = tuple(pair_test(one, other, right) for one, other in pairs)
    return found["round-0"].model_copy(update={"arms": tuple(arms.values()), "comparisons": tests})


def main() -> None:
    """Turn twice, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workspace", type=Path, help="made if it is not there")
    parser.add_argument("--train", type=Path, required=True, help="2WikiMultihopQA with paragraphs and evidences")
    parser.add_argument("--dev", type=Path, required=True, help="held-out questions, in the same format")
    parser.add_argument("--model", type=Path, required=True, help="a Hugging Face folder or a GGUF file")
    parser.add_argument("--taught", type=int, default=200, help="training questions of the teacher's round [200]")
    parser.add_argument("--own", type=int, default=300, help="further ones, of the team's own round [300]")
    parser.add_argument("--steps", type=int, default=150, help="optimiser steps of each role and round [150]")
    arguments = parser.parse_args()
    workspace, (taught, own) = prepare(arguments)
    turned = [json.loads(path.read_text("utf-8")) for path in sorted((workspace.folder / "turns").glob("*.json"))]
    if not any(state["round"] == 0 and state["finished"] for state in turned):
        turn(workspace, taught, arguments.dev, arguments.steps, "--teacher")
    if not any(state["round"] == 1 and state["finished"] for state in turned):
        turn(workspace, own, arguments.dev, arguments.steps)
    evaluation, console = summary(workspace), Console()
    print_evaluation(evaluation, console)
    for arm in evaluation.arms:
        print_roles(arm, console)


if __name__ == "__main__":
    main()
