"""What the gateway counts, for Prometheus."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from flywheel.engines import Completion
from flywheel.records import BASE
from flywheel.workspace import ROLES

_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)


class Metrics:
    """Counters of one gateway, by role (the model's name without its version)."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        registry = self._registry
        self._requests = Counter("flywheel_requests", "Requests answered.", ["role", "status"], registry=registry)
        self._tokens = Counter("flywheel_tokens", "Tokens read and written.", ["role", "kind"], registry=registry)
        self._seconds = Histogram(
            "flywheel_request_seconds", "Seconds from request to answer.", ["role"], buckets=_SECONDS, registry=registry
        )
        self._first = Histogram(
            "flywheel_first_token_seconds", "Seconds to the first text of a stream.", ["role"], buckets=_SECONDS,
            registry=registry,
        )  # fmt: skip
        self._running = Gauge("flywheel_in_flight", "Requests waiting or being answered.", ["role"], registry=registry)

    def text(self) -> bytes:
        """In Prometheus' format."""
        return generate_latest(self._registry)

    def refused(self, model: str, status: int) -> None:
        """A request that was not taken on."""
        self._requests.labels(_role(model), str(status)).inc()

    @contextmanager
    def running(self, model: str) -> Iterator["Running"]:
        """Count a request while it runs, and what became of it."""
        role, started = _role(model), time.monotonic()
        running = Running()
        self._running.labels(role).inc()
        try:
            yield running
        finally:
            self._running.labels(role).dec()
            self._seconds.labels(role).observe(time.monotonic() - started)
            self._requests.labels(role, running.status).inc()
            if running.first:
                self._first.labels(role).observe(running.first - started)
            if running.completion:
                self._tokens.labels(role, "prompt").inc(running.completion.prompt_tokens)
                self._tokens.labels(role, "cached").inc(running.completion.cached_tokens)
                self._tokens.labels(role, "completion").inc(running.completion.completion_tokens)


class Running:
    """What is known of a request while it runs."""

    def __init__(self) -> None:
        self.status = "cancelled"
        """HTTP's, or `cancelled` where the client left."""
        self.completion: Completion | None = None
        self.first = 0.0
        """When its first text was there; 0 for none."""


def _role(model: str) -> str:
    """A label out of a fixed set: clients may send any name."""
    role = model.partition("@")[0]
    return role if role in (BASE, *ROLES) else "unknown"
