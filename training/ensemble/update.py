"""Gradients and optimizers of the runs of a stack: clipped and stepped together, each by its own settings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from models.stacked import StackedModel

_ALIGNED = 16
"""Numbers per vector. Kernels of a CPU round the rest of a tensor, after its last vector, differently."""


def clip_each(gradients: list[Tensor], limits: Tensor) -> tuple[Tensor, Tensor]:
    """Clip the gradients of each member to its own norm.

    Args:
        gradients: (members, ...) of each parameter.
        limits: fp32 (members,), largest norm of each.

    Returns:
        The norms before (members,), and those of each parameter (members, parameters).
    """
    import torch

    with torch.no_grad():
        of_each = torch.stack(
            [torch.linalg.vector_norm(gradient.flatten(1), dim=1) for gradient in gradients], dim=1
        )
        norms = torch.linalg.vector_norm(of_each, dim=1)
        factors = (limits / (norms + 1e-6)).clamp(max=1.0)
        torch._foreach_mul_(
            gradients, [factors.view(-1, *[1] * (gradient.ndim - 1)) for gradient in gradients]
        )
    return norms, of_each


@dataclass
class _Slice:
    """A parameter of adjacent members with equal settings, with its optimizer state."""

    parameter: Tensor
    state: dict[str, Any]
    of_members: list[dict[str, Any]]
    plain: list[str]
    """Names of the state's values that are no tensors."""


class StackedOptimizer:
    """The optimizers of the members of a stack as one: a step is one call for all that have equal settings.

    Each optimizer keeps its own state, whose moments become views into stacks, with the values that its own
    step would give, bit for bit. Optimizers that look at whole matrices (Muon, Adafactor) step one by one, as
    all do in the first step of a run, which makes their moments.
    """

    def __init__(self, optimizers: Sequence[torch.optim.Optimizer], stack: StackedModel) -> None:
        """The states of the optimizers are not replaced until `release`."""
        from training.optimizers import is_elementwise

        self._optimizers, self._stack = list(optimizers), stack
        self._parameters = [list(member.parameters()) for member in stack.members]
        self._places = {id(parameter): place for place, parameter in enumerate(self._parameters[0])}
        self._is_elementwise = is_elementwise(optimizers[0])
        self._joined = _like(optimizers[0])
        self._moments: list[dict[str, Tensor]] = []
        self._slices: list[_Slice] = []
        self._pattern: object = None

    def step(self, lrs: Mapping[int, float]) -> None:
        """Step these members, whose groups have their learning rates already.

        Args:
            lrs: learning rate by number of the member.
        """
        if not self._moments and not (self._is_elementwise and self._stack_moments()):
            for number in lrs:
                self._optimizers[number].step()
            return
        first: dict[float, int] = {}
        pattern = {number: first.setdefault(lr, number) for number, lr in lrs.items()}
        if pattern != self._pattern:
            self._slice(pattern)
            self._pattern = pattern
        for group in self._joined.param_groups:
            group["lr"] = group["source"]["lr"]
        self._joined.step()
        for one in self._slices:
            for name in one.plain:
                for state in one.of_members:
                    state[name] = one.state[name]

    def release(self) -> None:
        """Give each optimizer moments of its own again."""
        for place, moments in enumerate(self._moments):
            for state in self._states(place):
                state.update({name: state[name].clone() for name in moments})
        self._moments, self._pattern = [], None

    def _states(self, place: int) -> list[dict[str, Any]]:
        """State of each member for the parameter at this place of a model; empty before its first step."""
        return [
            optimizer.state.get(parameters[place], {})
            for optimizer, parameters in zip(self._optimizers, self._parameters, strict=True)
        ]

    def _stack_moments(self) -> bool:
        """Make the moments of the members views into stacks; False where some have none yet."""
        import torch

        places = [self._states(place) for place in range(len(self._parameters[0]))]
        if not all(state for states in places for state in states):
            return False
        for states, parameter in zip(places, self._parameters[0], strict=True):
            names = [name for name, value in states[0].items() if _is_moment(value, parameter)]
            self._moments.append({name: torch.stack([state[name] for state in states]) for name in names})
            for name, whole in self._moments[-1].items():
                for state, own in zip(states, whole, strict=True):
                    state[name] = own
        return True

    def _slice(self, pattern: Mapping[int, int]) -> None:
        """Make the joined optimizer one of members with equal settings.

        Args:
            pattern: by member that moves, the first one with the same learning rate.
        """
        self._slices, self._joined.state = [], defaultdict(dict)
        groups: dict[object, dict[str, Any]] = {}
        for index, first_group in enumerate(self._optimizers[0].param_groups):
            places = [self._places[id(parameter)] for parameter in first_group["params"]]
            counts = [_plain(state, self._moments[places[0]]) for state in self._states(places[0])]
            runs: dict[object, list[int]] = {}
            for number, first in pattern.items():
                group = self._optimizers[number].param_groups[index]
                settings = {name: group[name] for name in group if name not in ("params", "lr")}
                values = tuple(float(value) for value in counts[number].values())
                key: object = (first, values, tuple(settings.items()))
                groups.setdefault(key, {**settings, "lr": group["lr"], "source": group, "params": []})
                runs.setdefault(key, []).append(number)
            for key, numbers in runs.items():
                for place in places:
                    for run in self._adjacent(numbers, place):
                        self._slices.append(self._slice_of(place, run))
                        groups[key]["params"].append(self._slices[-1].parameter)
        self._joined.param_groups = list(groups.values())

    def _adjacent(self, numbers: Sequence[int], place: int) -> list[range]:
        """Members as ranges, each of which can be computed as one tensor."""
        stack = self._stack.stacks[place]
        if stack.is_cpu and stack[0].numel() % _ALIGNED:
            return [range(number, number + 1) for number in numbers]
        found = [range(numbers[0], numbers[0])]
        for number in numbers:
            if number != found[-1].stop:
                found.append(range(number, number))
            found[-1] = range(found[-1].start, number + 1)
        return found

    def _slice_of(self, place: int, members: range) -> _Slice:
        import torch

        part, stack = slice(members.start, members.stop), self._stack.stacks[place]
        assert stack.grad is not None
        parameter, moments = stack.data[part], self._moments[place]
        parameter.grad = stack.grad[part]
        states = self._states(place)[part]
        plain = _plain(states[0], moments)
        # Counts on the device advance with the slice: its members share one that no other slice has.
        shared = {name: v.clone() for name, v in plain.items() if isinstance(v, torch.Tensor)}
        for state in states:
            state.update(shared)
        state = self._joined.state[parameter]
        state.update({name: whole[part] for name, whole in moments.items()}, **(plain | shared))
        return _Slice(parameter, state, states, [name for name in plain if name not in shared])


def _is_moment(value: object, parameter: Tensor) -> bool:
    return getattr(value, "shape", None) == parameter.shape


def _plain(state: Mapping[str, Any], moments: Mapping[str, object]) -> dict[str, Any]:
    """Values of a state that are no moments: counts of steps and the like."""
    return {name: value for name, value in state.items() if name not in moments and value is not None}


def _like(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """Another one of its kind, without parameters or state."""
    found = object.__new__(type(optimizer))
    found.__dict__.update(optimizer.__dict__, state=defaultdict(dict), param_groups=[])
    return found
