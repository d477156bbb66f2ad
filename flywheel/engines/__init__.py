"""What completes messages: the protocol, how an engine is opened, and the scripted engine."""

from flywheel.engines.base import (
    Completion,
    CompletionRequest,
    Engine,
    KnowsTraining,
    TokenLogprob,
    Watch,
    open_engine,
)

__all__ = ["Completion", "CompletionRequest", "Engine", "KnowsTraining", "TokenLogprob", "Watch", "open_engine"]
