"""Prints a rollout as a tree: who called whom, with code, observations, tokens and seconds."""

from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from flywheel.records import AgentRun, Rollout

_COLOURS = {"supervisor": "cyan", "wiki_search": "magenta", "page_search": "yellow"}


def print_rollout(rollout: Rollout, console: Console) -> None:
    """Print the whole rollout."""
    verdict = rollout.verdict
    right = "right" if verdict.match else "wrong"
    head = Text(f"{rollout.question.question}\n", style="bold")
    head.append(f"answer {rollout.answer!r}, gold {rollout.question.answer!r}: ", style="default")
    head.append(
        right if rollout.status == "finished" else f"failed: {rollout.failure}",
        style="green" if verdict.match else "red",
    )
    head.append(f" ({verdict.reason}, F1 {verdict.f1:.2f}, {rollout.seconds:.1f} s, {rollout.id})", style="dim")
    tree = Tree(head)
    children: dict[str | None, list[AgentRun]] = {}
    for run in rollout.runs:
        children.setdefault(run.parent_call, []).append(run)
    for run in children.get(None, []):
        _add_run(tree, run, children)
    console.print(tree)


def _add_run(parent: Tree, run: AgentRun, children: dict[str | None, list[AgentRun]]) -> None:
    model = run.calls[0].model if run.calls else "no call"
    label = Text(run.role, style=f"bold {_COLOURS.get(run.role, 'blue')}")
    label.append(f" ({model}, {run.status}): ", style="dim").append(run.task.replace("\n", " | "))
    branch = parent.add(label)
    for call in run.calls:
        text = Text(call.completion.strip())
        text.append(f"\n{call.completion_tokens} tokens, {call.seconds:.2f} s", style="dim")
        step = branch.add(text)
        for child in children.get(call.id, []):
            _add_run(step, child, children)
        if call.observation is not None:
            step.add(Text(call.observation, style="red" if call.error else "green"))
    branch.add(Text(f"report: {run.report}", style="bold"))
