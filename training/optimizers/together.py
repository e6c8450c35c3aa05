"""Several optimizers of torch, each of its own parameters, as one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch


class Together(torch.optim.Optimizer):
    """Steps all of `parts`. Its groups and its state are theirs, one after another.

    So a checkpoint, which numbers parameters in the order of the groups, needs to know nothing of it.
    """

    def __init__(self, parts: Sequence[torch.optim.Optimizer]) -> None:
        self._parts = parts
        super().__init__([group for part in parts for group in part.param_groups], {})
        self._share()

    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """One step of each part."""
        if closure is not None:
            raise ValueError("closures are not called here: compute gradients, then step()")
        for part in self._parts:
            part.step()
        return None

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As torch's, which makes new groups: the parts get them."""
        super().load_state_dict(state_dict)
        self._share()

    def _share(self) -> None:
        first = 0
        for part in self._parts:
            last = first + len(part.param_groups)
            part.param_groups = self.param_groups[first:last]
            part.state = self.state
            first = last
