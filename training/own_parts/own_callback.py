"""Callbacks of the user's: code that watches a run and changes none of its losses.

Contract: `CLASS()`, or `CLASS(options)` if it has options, has any of `on_step(view)`, `on_eval(view)` and
`on_checkpoint(view)`, each of which gets a StepView. With `state_dict()` and `load_state_dict(state)` its
state is in checkpoints: a dict of tensors and of values that JSON can hold. Only the first rank calls it.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from conf import Config
from conf.own_parts.call import called
from conf.own_parts.in_use import parts_in_use
from conf.own_parts.load import code_of, options_of
from conf.parts_table import Part
from experiment_utils.errors import Problem, UserError
from training.own_parts.step_view import Guard, StepView

if TYPE_CHECKING:
    from training.checkpoint.checkpoints import Checkpoint

EVENTS = ("on_step", "on_eval", "on_checkpoint")
_TENSORS = "callback."
"""Prefix of their tensors in training.safetensors."""


class Callbacks:
    """The callbacks of a run, in the order of its configuration.

    Args:
        folder: of their files, in which each has a folder of its name.
    """

    def __init__(self, config: Config, guard: Guard, folder: Path) -> None:
        self._guard, self._folder = guard, folder
        self._all = [(part, built(config, part)) for part in callbacks_of(config)]
        for part, _ in self._all:
            (folder / part.name).mkdir(parents=True, exist_ok=True)

    def handle(self, event: str, view: StepView) -> None:
        """Call the method of this name of each callback that has it.

        Raises:
            UserError: one fails or changes the weights; names FILE:LINE.
        """
        for part, one in self._all:
            method = getattr(one, event, None)
            if method is not None:
                self._guard.call(part, method, replace(view, folder=self._folder / part.name))

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """State for a checkpoint: tensors by name, and the plain values of each callback.

        Raises:
            UserError: a state is no dict of tensors and plain values.
        """
        tensors: dict[str, Tensor] = {}
        values: dict[str, Any] = {}
        for part, one in self._all:
            if not hasattr(one, "state_dict"):
                continue
            state = checked_state(part, self._guard.call(part, one.state_dict))
            own = {key: value for key, value in state.items() if isinstance(value, Tensor)}
            tensors |= {
                f"{_TENSORS}{part.name}.{key}": value.detach().clone().contiguous()
                for key, value in own.items()
            }
            values[part.name] = {key: value for key, value in state.items() if key not in own}
        return tensors, values

    def load(self, checkpoint: Checkpoint) -> None:
        """Give each callback its state; one that the checkpoint does not have begins as it was built."""
        saved = checkpoint.state.get("callbacks", {})
        for part, one in self._all:
            if part.name not in saved or not hasattr(one, "load_state_dict"):
                continue
            prefix = f"{_TENSORS}{part.name}."
            tensors = {
                name.removeprefix(prefix): tensor
                for name, tensor in checkpoint.training.items()
                if name.startswith(prefix)
            }
            self._guard.call(part, one.load_state_dict, {**saved[part.name], **tensors})


def callbacks_of(config: Config) -> list[Part]:
    """Callbacks that a configuration names."""
    return [part for part in parts_in_use(config) if part.kind == "callback"]


def built(config: Config, part: Part) -> Any:
    """An instance of a callback's class."""
    registered = code_of("callback", part.name)
    return called(part, registered.code, *([] if registered.options is None else [options_of(config, part)]))


def checked_state(part: Part, state: Any) -> dict[str, Any]:
    """The state of a callback.

    Raises:
        UserError: it is no dict of tensors and of values that JSON can hold.
    """
    wrong = None
    if not isinstance(state, dict):
        wrong = f"returned {type(state).__name__}"
    else:
        wrong = next(
            (
                f"has {key!r}: {type(value).__name__}"
                for key, value in state.items()
                if not (isinstance(key, str) and (isinstance(value, Tensor) or _is_plain(value)))
            ),
            None,
        )
    if wrong is not None:
        what = (
            f"callback {part.name}: state_dict() {wrong}; expected a dict of names to tensors, numbers, "
            "texts, None, or lists and dicts of these without tensors"
        )
        raise UserError(Problem(part.place, what, "callback-state"))
    return dict(state)


def _is_plain(value: Any) -> bool:
    """Whether JSON gives it back as it is."""
    if isinstance(value, list):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(one) for key, one in value.items())
    return value is None or isinstance(value, bool | int | float | str)
