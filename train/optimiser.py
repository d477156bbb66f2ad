"""AdamW for weights in a short type: it keeps float32 copies, so that small updates are not rounded away."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim.adamw import adamw


class MasterAdamW(torch.optim.Optimizer):
    """AdamW (Loshchilov and Hutter, ICLR 2019) on float32 copies of the weights, which are then rounded to theirs.

    In bfloat16 a weight of 1 swallows every update below 1/256. The copies and both moments are in the state, so a
    checkpoint holds them.
    """

    def __init__(
        self, parameters: Iterable[Tensor], lr: float, betas: tuple[float, float] = (0.9, 0.99), eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:  # fmt: skip
        super().__init__(list(parameters), {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """One update of all weights that have a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            weights = [weight for weight in group["params"] if weight.grad is not None]
            if weights:
                self._update(group, weights)
        return loss

    def _update(self, group: dict[str, Any], weights: list[Tensor]) -> None:
        states = [self._state_of(weight) for weight in weights]
        masters = [state["master"] for state in states]
        adamw(
            masters,
            [weight.grad.float() for weight in weights if weight.grad is not None],
            [state["mean"] for state in states],
            [state["square"] for state in states],
            [],
            [state["step"] for state in states],
            foreach=True, capturable=False, differentiable=False, fused=False, grad_scale=None, found_inf=None,
            has_complex=False, amsgrad=False, beta1=group["betas"][0], beta2=group["betas"][1], lr=group["lr"],
            weight_decay=group["weight_decay"], eps=group["eps"], maximize=False,
        )  # fmt: skip
        torch._foreach_copy_(weights, masters)

    def _state_of(self, weight: Tensor) -> dict[str, Tensor]:
        state: dict[str, Tensor] = self.state[weight]
        if not state:
            master = weight.detach().float().clone()
            state |= {
                "master": master, "mean": torch.zeros_like(master), "square": torch.zeros_like(master),
                "step": torch.zeros((), dtype=torch.float32),
            }  # fmt: skip
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore a checkpoint. PyTorch would cast the state to the weights' short type."""
        super().load_state_dict(state_dict)
        weights = [weight for group in self.param_groups for weight in group["params"]]
        for number, saved in state_dict["state"].items():
            weight = weights[number]
            self.state[weight] = {
                name: value if name == "step" else value.to(weight.device) for name, value in saved.items()
            }
