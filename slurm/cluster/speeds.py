"""Measured speeds of earlier runs, in tokens a second, from which the time of others is predicted.

Runs of one kind have the same model, arch, seq_len, device, precision and number of ranks. If some of them
ran in the same partition, on the same GPU and with the same slurm.pack, only those count. The slowest counts:
nodes differ, and a limit that is too short costs a requeue.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conf.per_model_slurm import settle
from experiment_utils.run_folder import RunFolder

if TYPE_CHECKING:
    from training.plan.run_plan import Plan

NEWEST = 300
"""Number of runs below runs_dir that are looked at: each costs a millisecond."""
LEAST_STEPS = 10
"""Steps that a run must have: the first ones warm caches up."""
_MODEL = ("d_model", "n_layers", "n_heads")
_HERE = ("partition", "gpu_type", "pack")


@dataclass(frozen=True)
class Speed:
    """Speed of a kind of run."""

    tokens_per_s: float
    """Speed of the whole run, without evaluations."""
    runs: int
    """Number of runs that were measured."""
    nearby: bool
    """Whether they had the same partition, type of GPU and slurm.pack."""


@dataclass(frozen=True)
class _Measured:
    kind: str
    place: tuple[Any, ...]
    tokens_per_s: float


class Speeds:
    """Speeds of the runs below each runs_dir, which is read once, when it is first needed."""

    def __init__(self) -> None:
        self._measured: dict[str, list[_Measured]] = {}

    def of(self, plan: Plan, device: str, ranks: int) -> Speed | None:
        """Speed of runs like this one; None without such runs.

        Args:
            device: `cpu` or `cuda`.
            ranks: Of the whole run.
        """
        config = settle(plan.config)
        measured = self._of(config.runs_dir)
        if not measured:
            return None
        kind = _kind(vars(config.model), asdict(config.arch), vars(config.training), device, ranks)
        place = tuple(getattr(config.slurm, name) for name in _HERE)
        alike = [one for one in measured if one.kind == kind]
        nearby = [one for one in alike if one.place == place]
        found = nearby or alike
        if not found:
            return None
        return Speed(min(one.tokens_per_s for one in found), len(found), bool(nearby))

    def _of(self, runs_dir: str) -> list[_Measured]:
        if runs_dir not in self._measured:
            found = (_measured(folder) for folder in _newest(Path(runs_dir)))
            self._measured[runs_dir] = [one for one in found if one is not None]
        return self._measured[runs_dir]


def _newest(runs_dir: Path) -> list[Path]:
    dated = []
    for path in runs_dir.glob("*/*/metrics.csv"):
        try:
            dated.append((path.stat().st_mtime, path.parent))
        except OSError:
            continue
    return [folder for _, folder in sorted(dated, reverse=True)[:NEWEST]]


def _measured(folder: Path) -> _Measured | None:
    """Speed of one run; None if it has none, or its files are damaged."""
    try:
        run = RunFolder(folder)
        config, auto = run.run["config"], run.run["auto"]
        ranks = int(auto.get("world_size") or 1)
        row = run.metrics_tail.last(("step", "tokens", "seconds"))
        if row is None or row["step"] < LEAST_STEPS or row["seconds"] <= 0:
            return None
        slurm = config.get("slurm") or {}
        return _Measured(
            _kind(config["model"], config["arch"], config["training"], str(auto["device"]), ranks),
            tuple(slurm.get(name) for name in _HERE),
            row["tokens"] / row["seconds"],
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _kind(
    model: Mapping[str, Any], arch: Mapping[str, Any], training: Mapping[str, Any], device: str, ranks: int
) -> str:
    """Equal for runs of one kind."""
    computed = [arch, training["seq_len"], training["precision"], device, ranks]
    return json.dumps([[model.get(name) for name in _MODEL], *computed], sort_keys=True)
