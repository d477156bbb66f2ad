"""Serving over HTTP, engine against engine: python -m benchmarks.serving DEMO_WORKSPACE [--vllm COMMAND]

`flywheel serve` runs with the adapters of `flywheel demo`, and the agent runs that the demo recorded are asked for once
more as an agent asks: call after call, streamed, several runs at once. Measured are tokens a second, seconds to the
first text, what a kept prefix saves although other roles were served in between, and memory (proportional set size:
what processes share is divided among them) of one server with three roles against the base alone and against a server
for each role.
"""

import argparse
import contextlib
import itertools
import random
import statistics
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import psutil

from flywheel.engines import CompletionRequest, Watch
from flywheel.records import BASE, AgentRun, Message
from flywheel.store import TraceStore
from flywheel.workspace import ROLES, Workspace
from serve.openai_engine import OpenAIEngine
from serve.server import running

TOKENS, CLIENTS = 40, (1, 4, 16)
CONTEXT, BATCH = 1024, 16


@dataclass(frozen=True)
class Speed:
    """What clients saw."""

    tokens: float
    """Completion tokens a second, of all clients together."""
    first: float
    """Median seconds to the first text of a completion."""


class Fleet:
    """One server for all roles, or one for each."""

    def __init__(self, urls: Sequence[str]) -> None:
        clients = [OpenAIEngine(url, "", timeout=600, model=BASE) for url in urls]
        for client in clients:
            client.refresh_models()
        self._of = {name: client for client in clients for name in client.models()}

    def complete(self, messages: tuple[Message, ...], name: str, session: str) -> tuple[int, float]:
        """Tokens, and seconds to the first text."""
        begun, first = time.perf_counter(), 0.0

        def note(_: str) -> None:
            nonlocal first
            first = first or time.perf_counter() - begun

        request = CompletionRequest(
            messages=messages, model=name, max_tokens=TOKENS, stop=("</code>",), session=session
        )  # fmt: skip
        completion = self._of[name].complete(request, Watch(note))
        return completion.completion_tokens, first or time.perf_counter() - begun


@contextlib.contextmanager
def fleet(workspace: Workspace, overrides: Sequence[str], groups: Sequence[Sequence[str]]) -> Iterator[Fleet]:
    """A server for each group of adapters."""
    settings = (f"engine.context={CONTEXT}", f"engine.batch={BATCH // len(groups)}", *overrides)
    with contextlib.ExitStack() as stack:
        yield Fleet([stack.enter_context(running(workspace.folder, group, settings)) for group in groups])


def speed(served: Fleet, runs: Iterator[AgentRun], names: Sequence[str], clients: int) -> Speed:
    """Ask for so many agent runs at once, each call after call."""
    chosen = list(itertools.islice(runs, max(8, 2 * clients)))
    names = list(itertools.islice(itertools.cycle(names), len(chosen)))

    def ask(run: AgentRun, name: str) -> list[tuple[int, float]]:
        session = f"{name} {run.id} {random.random()}"
        return [served.complete(call.messages, run.role if name == ROLE else name, session) for call in run.calls]

    begun = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        seen = [one for part in pool.map(ask, chosen, names) for one in part]
    seconds = time.perf_counter() - begun
    return Speed(sum(tokens for tokens, _ in seen) / seconds, statistics.median(first for _, first in seen))


ROLE = "each run's own role"


def kept_prefix(served: Fleet, runs: Sequence[AgentRun]) -> float:
    """Seconds to the first text of a role's next prompt against its first, with all other roles asked in between."""
    shares = []
    for number in range(4):
        for role in ROLES:
            messages = next(run for run in runs if run.role == role).calls[0].messages
            long = Message(role="system", content=messages[0].content + f" Number {number} {role}. " * 60)
            question = messages[1].content
            _, cold = served.complete((long, Message(role="user", content=question)), role, "")
            for other in (BASE, *ROLES):
                if other != role:
                    served.complete(messages, other, "")
            _, warm = served.complete((long, Message(role="user", content=f"Again: {question}")), role, "")
            shares.append(warm / cold)
    return statistics.median(shares)


def memory() -> float:
    """Megabytes of all servers that run now."""
    return float(sum(child.memory_full_info().pss for child in psutil.Process().children(recursive=True)) / 1e6)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving")
    parser.add_argument("workspace", type=Path, help="made by: flywheel demo --quick")
    parser.add_argument("--engine", action="append", choices=["transformers", "llamacpp"], help="only this one")
    parser.add_argument("--vllm", help="the command of a vLLM that is to be measured as well")
    arguments = parser.parse_args()
    workspace = Workspace(arguments.workspace)
    adapters = [name for name in workspace.adapters() if name.partition("@")[0] in ROLES]
    with TraceStore(workspace.traces, read_only=True) as store:
        runs = [run for rollout in store.rollouts() for run in rollout.runs if run.calls]
    random.Random(0).shuffle(runs)
    engines = {"transformers": ["engine.kind=transformers"], "llamacpp": ["engine.kind=llamacpp"]}
    if arguments.vllm:
        engines["vllm"] = ["engine.kind=vllm", f"engine.vllm={arguments.vllm}"]
    for kind, overrides in engines.items():
        if arguments.engine and kind not in arguments.engine:
            continue
        measure(workspace, kind, overrides, runs, adapters)


def measure(
    workspace: Workspace, kind: str, overrides: Sequence[str], runs: Sequence[AgentRun], adapters: Sequence[str]
) -> None:
    """Everything of one engine."""
    stock = itertools.cycle(runs)
    one_role = [run for run in runs if run.role == "page_search"]
    print(f"\n{kind}", flush=True)
    with fleet(workspace, overrides, [[]]) as served:
        speed(served, stock, [BASE], 4)
        alone = memory()
    with fleet(workspace, overrides, [adapters]) as served:
        reference = 0.0
        for title, source, names in (
            ("base", stock, [BASE]), ("1 role", itertools.cycle(one_role), [ROLE]), ("3 roles", stock, [ROLE]),
        ):  # fmt: skip
            for clients in CLIENTS:
                found = speed(served, iter(source), names, clients)
                reference = reference or found.tokens
                show(f"{title}, {clients} at once", found, reference)
        print(f"  a kept prefix: first text after {kept_prefix(served, runs):.0%} of the time without")
        together = memory()
    with fleet(workspace, overrides, [[name] for name in adapters]) as served:
        # three processes that compute at once share the cores badly: more clients take very long
        show("3 roles on 3 servers, 4 at once", speed(served, stock, [ROLE], 4), reference)
        apart = memory()
    print(f"  memory: base alone {alone:.0f} MB; with three roles {together / alone:.2f} x; three servers ", end="")
    print(f"{apart / alone:.2f} x", flush=True)


def show(title: str, found: Speed, reference: float) -> None:
    """One line."""
    share = found.tokens / reference
    print(f"  {title:34s} {found.tokens:5.0f} tokens/s {share:5.1f} x   first text {found.first:5.2f} s", flush=True)


if __name__ == "__main__":
    main()
