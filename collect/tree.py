"""A rollout as a tree: who called whom, with code, observations, tokens and seconds."""

from rich.text import Text
from rich.tree import Tree

from flywheel.records import AgentRun, Call, Rollout

_COLOURS = {"supervisor": "cyan", "wiki_search": "magenta", "page_search": "yellow"}


def graded_tree(rollout: Rollout) -> Tree:
    """The whole rollout with its verdict."""
    verdict = rollout.verdict
    head = Text(f"{rollout.question.question}\n", style="bold")
    head.append(f"answer {rollout.answer!r}, gold {rollout.question.answer!r}: ", style="default")
    right = "right" if verdict.match else "wrong"
    head.append(
        right if rollout.status == "finished" else f"failed: {rollout.failure}",
        style="green" if verdict.match else "red",
    )
    head.append(f" ({verdict.reason}, F1 {verdict.f1:.2f}, {rollout.seconds:.1f} s, {rollout.id})", style="dim")
    return run_tree(head, rollout.runs)


def run_tree(head: Text, runs: tuple[AgentRun, ...]) -> Tree:
    """Agent runs below a heading, each under the step whose code called it."""
    tree = Tree(head)
    children: dict[str | None, list[AgentRun]] = {}
    for run in runs:
        children.setdefault(run.parent_call, []).append(run)
    for run in children.get(None, []):
        _add_run(tree, run, children)
    return tree


def step_lines(run: AgentRun, call: Call) -> Text:
    """One step for a screen that only scrolls: who, what it wrote, what it saw."""
    text = Text(f"{run.role} step {call.index + 1}", style=f"bold {_COLOURS.get(run.role, 'blue')}")
    text.append(f" ({call.completion_tokens} tokens, {call.seconds:.2f} s)\n", style="dim")
    text.append(call.completion.strip(), style="default")
    if call.observation is not None:
        text.append(f"\n{call.observation}", style="red" if call.error else "green")
    return text


def _add_run(parent: Tree, run: AgentRun, children: dict[str | None, list[AgentRun]]) -> None:
    model = run.calls[0].model if run.calls else "no call yet"
    label = Text(run.role, style=f"bold {_COLOURS.get(run.role, 'blue')}")
    label.append(f" ({model}, {run.status if run.report else 'not finished'}): ", style="dim").append(
        run.task.replace("\n", " | "), style="default"
    )
    branch = parent.add(label)
    for call in run.calls:
        text = Text(call.completion.strip())
        text.append(f"\n{call.completion_tokens} tokens, {call.seconds:.2f} s", style="dim")
        step = branch.add(text)
        for child in children.get(call.id, []):
            _add_run(step, child, children)
        if call.observation is not None:
            step.add(Text(call.observation, style="red" if call.error else "green"))
    if run.report:
        branch.add(Text(f"report: {run.report}", style="bold"))
