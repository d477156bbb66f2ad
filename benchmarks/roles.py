"""What each adapter has learned: python -m benchmarks.roles DEMO_WORKSPACE

The base against each role's adapter on rows that neither has seen: a scripted teacher's steps on held-out questions.
Loss is the mean over tokens; an action is exact if greedy decoding writes the very code that the teacher wrote.
"""

import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel

from collect.collector import collect
from flywheel.base_model import load_model, load_tokenizer, quiet, resolve_folder
from flywheel.engines import CompletionRequest, Engine, open_engine
from flywheel.questions import read_questions
from flywheel.records import Call
from flywheel.store import TraceStore
from flywheel.teacher import teacher_engine
from flywheel.workspace import ROLES, Workspace
from train.rows import Row
from train.tree import Tree

QUESTIONS, ROWS = 40, 60


def steps(workspace: Workspace) -> dict[str, list[Call]]:
    """The teacher's calls on held-out questions, by role."""
    questions = read_questions("embedded", "test", limit=QUESTIONS, shuffle_seed=2)
    found: dict[str, list[Call]] = {role: [] for role in ROLES}
    with tempfile.TemporaryDirectory() as name, TraceStore(Path(name) / "traces.sqlite") as store:
        engine = teacher_engine(questions)
        collect(questions, workspace.config, engine, store, Path(name), round=0, samples=1, temperature=0.0)
        for rollout in store.rollouts():
            for run in rollout.runs:
                found[run.role] += run.calls
    return {role: calls[:ROWS] for role, calls in found.items()}


def loss(model: Any, tokenizer: Any, calls: list[Call]) -> float:
    """Mean cross entropy of the completions' tokens."""
    from flywheel.chat import encode, end_of_turn, prompt_ids

    total = count = 0.0
    for call in calls:
        completion = encode(tokenizer, call.completion + end_of_turn(tokenizer))
        given = Tree.of([Row(prompt_ids(tokenizer, call.messages), completion, 1.0, "")]).inputs()
        predictors, logit, labels, weights = (given.pop(name) for name in ("predictors", "logit", "labels", "weights"))
        with torch.no_grad():
            logits = model(**given, logits_to_keep=predictors).logits[0].float()
        total += (torch.nn.functional.cross_entropy(logits[logit], labels, reduction="none") * weights).sum().item()
        count += len(completion)
    return total / count


def exact(engine: Engine, model: str, calls: list[Call]) -> float:
    """Share of steps in which the model writes the teacher's code."""

    def same(call: Call) -> bool:
        request = CompletionRequest(messages=call.messages, model=model, max_tokens=80, stop=("</code>",))
        text = engine.complete(request).text
        return text.partition("<code>")[2].strip() == (call.code or "").strip()

    with ThreadPoolExecutor(16) as pool:
        return sum(pool.map(same, calls)) / len(calls)


def main() -> None:
    """Print the table."""
    if len(sys.argv) != 2:
        sys.exit("usage: python -m benchmarks.roles DEMO_WORKSPACE (make one with: flywheel demo)")
    quiet()
    workspace = Workspace(Path(sys.argv[1]))
    adapters = workspace.adapters()
    calls = steps(workspace)
    folder = resolve_folder(workspace.config.engine.model)
    tokenizer = load_tokenizer(folder)
    losses: dict[str, tuple[float, float]] = {}
    for name, path in adapters.items():
        role = name.partition("@")[0]
        base = load_model(folder)
        before = loss(base, tokenizer, calls[role])
        losses[role] = before, loss(PeftModel.from_pretrained(base, str(path)), tokenizer, calls[role])
    engine = open_engine(workspace.config.engine, adapters)
    print(f"{'role':12s} {'steps':>5s} {'base loss':>10s} {'adapter':>8s} {'base exact':>11s} {'adapter':>8s}")
    for name in adapters:
        role = name.partition("@")[0]
        rates = exact(engine, "base", calls[role]), exact(engine, name, calls[role])
        before, after = losses[role]
        print(f"{role:12s} {len(calls[role]):5d} {before:10.3f} {after:8.3f} {rates[0]:11.0%} {rates[1]:8.0%}")
    engine.close()


if __name__ == "__main__":
    main()
