"""From logits to the next token of each sequence, and how likely it was."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from flywheel.engines import CompletionRequest, TokenLogprob


@dataclass(frozen=True)
class Draw:
    """How the next token of a sequence is chosen."""

    temperature: float
    top_p: float
    generator: torch.Generator | None
    """None takes the likeliest token."""

    @classmethod
    def of(cls, request: CompletionRequest) -> "Draw":
        """What a request asks for; its random numbers follow from its seed alone."""
        generator = None if request.greedy else torch.Generator().manual_seed(request.seed)
        return cls(request.temperature, request.top_p, generator)


def next_tokens(logits: Tensor, draws: Sequence[Draw]) -> list[int]:
    """The likeliest token where the temperature is 0, else one drawn with the request's own seed.

    Drawing by inverting the cumulative distribution needs one uniform number per row, so the rows of a batch are drawn
    together and still do not depend on each other.

    Args:
        logits: shape (draws, vocabulary), float32.
    """
    tokens: list[int] = logits.argmax(-1).tolist()
    drawn = [row for row, draw in enumerate(draws) if draw.generator is not None]
    if drawn:
        temperatures = torch.tensor([[draws[row].temperature] for row in drawn], device=logits.device)
        probabilities = (logits[drawn] / temperatures).softmax(-1)
        top_p = torch.tensor([[draws[row].top_p] for row in drawn], device=logits.device)
        if (top_p < 1).any():
            probabilities = _nucleus(probabilities, top_p)
        cumulative = probabilities.cumsum(-1)
        uniform = torch.cat([torch.rand(1, 1, generator=draws[row].generator) for row in drawn]).to(logits.device)
        found = torch.searchsorted(cumulative, uniform * cumulative[:, -1:], right=True).clamp(max=logits.shape[1] - 1)
        for row, token in zip(drawn, found[:, 0].tolist(), strict=True):
            tokens[row] = token
    return tokens


def _nucleus(probabilities: Tensor, top_p: Tensor) -> Tensor:
    """Zero for all but the likeliest tokens that together reach `top_p` (Holtzman et al., ICLR 2020)."""
    ordered, order = probabilities.sort(-1, descending=True)
    kept = ordered.cumsum(-1) - ordered < top_p
    return torch.zeros_like(probabilities).scatter(-1, order, ordered * kept)


def token_logprob(logits: Tensor, token: int, top: int, tokenizer: Any) -> TokenLogprob:
    """How likely a token was, and the likeliest ones.

    Args:
        logits: shape (vocabulary), float32.
    """
    logprobs = logits.log_softmax(-1)
    best = logprobs.topk(top) if top else None
    pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True) if best else ()
    return TokenLogprob(
        token=tokenizer.decode([token]),
        logprob=logprobs[token].item(),
        top=tuple((tokenizer.decode([other]), value) for other, value in pairs),
    )
