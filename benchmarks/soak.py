"""A server under mixed requests for a while: python -m benchmarks.soak DEMO_WORKSPACE [--minutes 30] [--engine KIND]

Clients ask for all roles and the base, streamed and whole, briefly and at length; every fifth leaves in the middle, and
some send what must be refused. Twice a minute the second version of a role is taken away or given back, and the server
told to reload. Each version's likelihood of a canary's first token is compared with what it was at first, all along.
Printed are requests, errors, canaries that were off, and the server's memory over time.
"""

import argparse
import contextlib
import random
import shutil
import statistics
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import psutil

from flywheel.records import AgentRun
from flywheel.store import TraceStore
from flywheel.workspace import ROLES
from serve.server import running

CLIENTS, TOLERANCE = 6, 0.05


class Soak:
    """Clients of one server, and what they saw."""

    def __init__(self, url: str, runs: list[AgentRun]) -> None:
        self._url = url
        self._runs = runs
        self._over = threading.Event()
        self._first: dict[str, float] = {}
        self.seen: Counter[str] = Counter()
        self.errors: list[str] = []

    def work(self, seed: int) -> None:
        """One client, until the end."""
        dice = random.Random(seed)
        with httpx.Client(timeout=120) as client:
            while not self._over.is_set():
                kind = dice.choices(("whole", "streamed", "left", "refused", "canary"), (4, 4, 2, 1, 2))[0]
                try:
                    getattr(self, f"_{kind}")(client, dice)
                    self.seen[kind] += 1
                except Exception as error:  # whatever it is, it is a finding
                    self.fault(f"{kind}: {type(error).__name__} {error}")

    def fault(self, text: str) -> None:
        """Something went wrong."""
        self.errors.append(text)
        print(f"  {text[:300]}", flush=True)

    def end(self) -> None:
        """Let the clients finish."""
        self._over.set()

    def _body(self, dice: random.Random, **options: Any) -> dict[str, Any]:
        run = dice.choice(self._runs)
        call = dice.choice(run.calls)
        return {
            "model": dice.choice((run.role, "base")), "max_tokens": dice.choice((1, 8, 40)), "stop": ["</code>"],
            "temperature": dice.choice((0, 0.7)), "prompt_cache_key": dice.choice(("", run.id)),
            "messages": [message.model_dump() for message in call.messages], **options,
        }  # fmt: skip

    def _whole(self, client: httpx.Client, dice: random.Random) -> None:
        reply = client.post(f"{self._url}/chat/completions", json=self._body(dice))
        assert reply.status_code == 200, reply.text
        assert reply.json()["usage"]["completion_tokens"] >= 1

    def _streamed(self, client: httpx.Client, dice: random.Random) -> None:
        with client.stream("POST", f"{self._url}/chat/completions", json=self._body(dice, stream=True)) as reply:
            lines = [line for line in reply.iter_lines() if line]
        assert lines[-1] == "data: [DONE]", lines[-1]

    def _left(self, client: httpx.Client, dice: random.Random) -> None:
        body = self._body(dice, max_tokens=200, stop=None, stream=dice.random() < 0.5)
        with contextlib.suppress(httpx.ReadTimeout), httpx.Client(timeout=dice.uniform(0.1, 2)) as brief:
            brief.post(f"{self._url}/chat/completions", json=body)

    def _refused(self, client: httpx.Client, dice: random.Random) -> None:
        bad: dict[str, Any] = dice.choice(({"model": "nobody"}, {"max_tokens": -1}, {"n": 3}, {"messages": []}))
        status = client.post(f"{self._url}/chat/completions", json=self._body(dice) | bad).status_code
        assert status in (400, 404), status

    def _canary(self, client: httpx.Client, dice: random.Random) -> None:
        messages = [message.model_dump() for message in self._runs[0].calls[0].messages]
        body = {"model": dice.choice((*ROLES, "base")), "messages": messages, "max_tokens": 1, "temperature": 0}
        reply = client.post(f"{self._url}/chat/completions", json=body | {"logprobs": True})
        version = reply.headers["X-Flywheel-Served-By"]
        logprob = reply.json()["choices"][0]["logprobs"]["content"][0]["logprob"]
        if abs(logprob - self._first.setdefault(version, logprob)) > TOLERANCE:
            self.fault(f"canary: {version} {logprob:.3f}, at first {self._first[version]:.3f}")


def main() -> None:
    """Print what came of it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak")
    parser.add_argument("workspace", type=Path, help="made by: flywheel demo (two versions of each role)")
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--engine", default="transformers")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "workspace"
        shutil.copytree(arguments.workspace, folder)
        with TraceStore(folder / "traces.sqlite", read_only=True) as store:
            runs = [run for rollout in store.rollouts() for run in rollout.runs if run.calls]
        with running(folder, list(ROLES), [f"engine.kind={arguments.engine}", "engine.context=1024"]) as url:
            soak = Soak(url, runs)
            clients = [threading.Thread(target=soak.work, args=(seed,)) for seed in range(CLIENTS)]
            for client in clients:
                client.start()
            sizes = supervise(soak, url, folder, arguments.minutes)
            soak.end()
            for client in clients:
                client.join()
    report(soak, sizes)


def supervise(soak: Soak, url: str, folder: Path, minutes: float) -> list[float]:
    """Reload twice a minute; the server's megabytes at each reload."""
    (server,) = psutil.Process().children()
    away = folder / "away"
    sizes: list[float] = []
    begun = time.monotonic()
    while time.monotonic() - begun < 60 * minutes:
        time.sleep(30)
        here = folder / "adapters" / ROLES[len(sizes) // 2 % len(ROLES)] / "2"
        if away.exists():
            away.rename(here)
        else:
            here.rename(away)
        reply = httpx.post(f"{url.removesuffix('/v1')}/admin/reload", timeout=120)
        if reply.status_code != 200 or reply.json()["refused"]:
            soak.fault(f"reload: {reply.text}")
        soak.seen["reload"] += 1
        sizes.append(server.memory_full_info().pss / 1e6)
        minute, count = (time.monotonic() - begun) / 60, sum(soak.seen.values())
        print(f"{minute:5.1f} min {sizes[-1]:6.0f} MB {count:6d} requests {len(soak.errors)} errors", flush=True)
    return sizes


def report(soak: Soak, sizes: list[float]) -> None:
    """The summary."""
    print(", ".join(f"{count} {kind}" for kind, count in sorted(soak.seen.items())))
    third = max(1, len(sizes) // 3)
    middle, last = statistics.median(sizes[third : 2 * third] or sizes), statistics.median(sizes[-third:])
    print(f"memory: {middle:.0f} MB in the second third, {last:.0f} MB in the last ({last / middle - 1:+.1%})")
    print(f"{len(soak.errors)} errors")


if __name__ == "__main__":
    main()
