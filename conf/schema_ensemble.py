"""The keys of `ensemble=`: in what runs differ that are trained together, as one program."""

from __future__ import annotations

from dataclasses import dataclass

from conf.schema_key import key

_AUTO = "auto"


def _values_of(path: str) -> list[str]:
    """A list of values of another key, of which each run of the ensemble has one."""
    found: list[str] = key([], f"{path} of each", as_before=[])
    return found


@dataclass
class Ensemble:
    """`ensemble.lr=[1e-3,2e-3]`: runs that differ in these numbers alone, all combinations, trained together
    (docs/sweeps.md#ensembles)."""

    lr: list[str] = _values_of("optimizer.lr")
    weight_decay: list[str] = _values_of("optimizer.weight_decay")
    beta1: list[str] = _values_of("optimizer.beta1")
    beta2: list[str] = _values_of("optimizer.beta2")
    eps: list[str] = _values_of("optimizer.eps")
    momentum: list[str] = _values_of("optimizer.momentum")
    grad_clip: list[str] = _values_of("optimizer.grad_clip")
    grad_noise: list[str] = _values_of("optimizer.grad_noise")
    warmup_fraction: list[str] = _values_of("schedule.warmup_fraction")
    warmup_steps: list[str] = _values_of("schedule.warmup_steps")
    final_lr_fraction: list[str] = _values_of("schedule.final_lr_fraction")
    decay_fraction: list[str] = _values_of("schedule.decay_fraction")
    seed: list[str] = _values_of("seed")
    seed_init: list[str] = _values_of("seed_init")
    seed_data: list[str] = _values_of("seed_data")
    together: int | str = key(
        _AUTO,
        "runs at a time; auto: as a few steps at the start tell, all of them or fewer, never to their harm",
        at_least=1,
        as_before=_AUTO,
    )
