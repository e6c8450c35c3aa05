"""`highwater.register`: decorators by which a plugin names its parts. They keep what they decorate.

The names and options of the parts were read from the source before (`read_source`); here they get their code.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Registered:
    """Code of a part."""

    kind: str
    name: str
    code: Any
    """The function or class that was registered."""
    options: type | None
    """Dataclass of its options; None if it has none."""
    facts: dict[str, Any]
    """Further arguments of the decorator."""

    def options_at(self, values: dict[str, Any]) -> Any:
        """The options as an instance of their dataclass; None if the part has none."""
        return None if self.options is None else self.options(**values)


REGISTERED: dict[tuple[str, str], Registered] = {}
"""By kind and name, as plugins are run."""


def _keep(kind: str, name: str, options: type | None, **facts: Any) -> Callable[[T], T]:
    def decorate(code: T) -> T:
        REGISTERED[kind, name] = Registered(kind, name, code, options, facts)
        return code

    return decorate


def model(name: str, *, options: type | None = None) -> Callable[[T], T]:
    """Register a model: `arch=NAME`. Decorates an nn.Module class.

    Args:
        options: dataclass of its options, typed as own.NAME.OPTION.
    """
    return _keep("model", name, options)


def arch_option(key: str, name: str) -> Callable[[T], T]:
    """Register a value of a key of `arch`: `arch.activation=NAME` for a function of a tensor.

    Args:
        key: activation.
    """
    return _keep("arch_option", name, None, key=key)


def optimizer(name: str, *, options: type | None = None) -> Callable[[T], T]:
    """Register an optimizer: `optimizer=NAME`. Decorates a function (groups, optimizer, options) that returns
    a torch.optim.Optimizer.
    """
    return _keep("optimizer", name, options)


def schedule(name: str, *, options: type | None = None) -> Callable[[T], T]:
    """Register a schedule: `schedule=NAME`. Decorates a function (step, total_steps, warmup_steps, options)
    that returns the learning rate of the step as a share of its peak.
    """
    return _keep("schedule", name, options)


def dataset(name: str, *, options: type | None = None) -> Callable[[T], T]:
    """Register a dataset: `dataset=NAME`. Decorates a generator function (options) of
    documents, each a str.
    """
    return _keep("dataset", name, options)


def tokenizer(name: str, *, options: type | None = None) -> Callable[[T], T]:
    """Register a tokenizer: `tokenizer=NAME`. Decorates a function (options) that returns a
    tokenizers.Tokenizer.
    """
    return _keep("tokenizer", name, options)


def metric(
    name: str, *, unit: str = "", at: str = "evaluation", options: type | None = None
) -> Callable[[T], T]:
    """Register a metric: `logging.metrics=[NAME]`. Decorates a function (logits, labels, options) that
    returns a value for each label, or their mean; or, with at="step", a function (view, options) that returns
    a number.

    Args:
        unit: for tables and axes, such as `%` or `nats`.
        at: evaluation, or step.
    """
    return _keep("metric", name, options, unit=unit, at=at)


def callback(name: str, *, options: type | None = None) -> Callable[[T], T]:
    """Register a callback: `training.callbacks=[NAME]`. Decorates a class with any of `on_step`, `on_eval`,
    `on_checkpoint`, `state_dict` and `load_state_dict`.
    """
    return _keep("callback", name, options)


def step(name: str, *, options: type | None = None) -> Callable[[T], T]:
    """Register what one step computes: `training.step=NAME`. Decorates a function (model, batch, options)
    that returns the loss of a micro-batch, or (loss, {"lm_loss": lm_loss}).
    """
    return _keep("step", name, options)
