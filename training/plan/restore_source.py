"""The checkpoint of another run that a run begins with: found and told by a plan, without torch."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conf import Config
from conf.budget import Budget
from conf.composing.differences import changes
from conf.composing.overrides import typed_at
from conf.composing.run_identity import is_in_identity
from experiment_utils import atomic_files
from experiment_utils.errors import Problem, UserError
from memory.files.file_kinds import not_expected
from training.attempt.run_files import read_run
from training.checkpoint.checkpoints import checkpoint_folder, checkpoint_steps, read_state
from training.step.schedules import course_of

_MAY_DIFFER = ("schedule.", "restore.", "training.max_", "training.tokens_per_param", "training.eval")
"""Keys in which a branch is not its trunk: budget, schedule, evaluations."""
_OF_MOMENTS = ("optimizer.name", "optimizer.lr_factor_", "model.", "arch.")
"""Keys that say which moments there are, and in which order of the parameters."""
_WITHOUT_MOMENTUM_LESS = ("sgd", "rmsprop")
"""Optimizers that keep a moment less where optimizer.momentum is 0."""


@dataclass(frozen=True)
class Origin:
    """checkpoint: its folder. what: as in restore.what. fingerprint: of all that is taken over."""

    checkpoint: str
    what: str
    step: int
    fingerprint: str

    @property
    def first_step(self) -> int:
        """Steps that the run has behind it as it begins."""
        return self.step if self.what == "run" else 0

    @property
    def folder(self) -> str:
        """Of the run, or the checkpoint's own where it lies in none."""
        checkpoint = Path(self.checkpoint)
        return str(checkpoint.parents[1] if checkpoint.parent.name == "checkpoints" else checkpoint)

    def line(self) -> str:
        """For the page of a plan."""
        taken = {
            "weights": "its weights",
            "optimizer": "its weights and moments",
            "run": f"all of it, going on at step {self.step:,}",
        }
        return f"{self.checkpoint}: {taken[self.what]}"


def find_origin(
    config: Config,
    budget: Budget,
    data_fingerprint: str | None,
    known: Mapping[str, Any] | None,
) -> Origin | None:
    """What the configuration names; None: nothing. known: of run.json, where the run has begun.

    Raises:
        UserError: there is no such checkpoint, or it cannot be gone on with.
    """
    restore = config.restore
    if restore.from_ is None:
        return None
    if known:
        return Origin(**{name: known[name] for name in ("checkpoint", "what", "step", "fingerprint")})
    last, why = None, ""
    if restore.what == "run":
        length = course_of(config, budget).length
        last = min(length.decay_from if config.schedule.name == "wsd" else budget.steps, budget.steps - 1)
        why = "this run's learning rate falls, or it ends"
        fallen = _falls_otherwise(config, budget)
        if fallen is not None and fallen < last:
            last, why = fallen, "the other run's own learning rate falls, otherwise than this one's"
    checkpoint = _checkpoint(config, last, why)
    state = _state_of(checkpoint)
    if restore.what != "weights":
        _check_other_run(config, checkpoint, data_fingerprint)
    parts = sorted(state["sha256"].items())
    if restore.what == "weights":
        parts = [part for part in parts if part[0].startswith("model.")]
    else:
        parts.append(
            ("state", hashlib.sha256(json.dumps(state["optimizer"], sort_keys=True).encode()).hexdigest())
        )
    fingerprint = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
    return Origin(str(checkpoint.resolve()), restore.what, state["step"], fingerprint)


def _falls_otherwise(config: Config, budget: Budget) -> int | None:
    """The step from which on the trunk, of wsd itself, has another learning rate than its branch, or None."""
    from conf.composing.check import to_config

    folder = _run_folder(config)
    other = read_run(folder.resolve().parents[1] if _is_checkpoint(folder) else folder)
    names = [field.name for field in dataclasses.fields(Budget)]
    if not {"config", *names} <= {*other}:
        return None
    trunk_config = to_config(other["config"])
    if trunk_config.schedule.name != "wsd":
        return None
    trunk = course_of(trunk_config, Budget(**{name: other[name] for name in names}))
    own = course_of(config, budget)
    falling = range(trunk.length.decay_from, min(trunk.length.total, own.length.total))
    return next((step for step in falling if trunk.lr_at(step) != own.lr_at(step)), None)


def _checkpoint(config: Config, last: int | None, why: str) -> Path:
    """The checkpoint's folder. last: the latest step that serves, None: any. why: none after it does."""
    folder, wanted = _run_folder(config), config.restore.step
    there = _checkpoints_of(folder)
    steps = ", ".join(f"{step:,}" for step in list(there)[-8:])
    if wanted is None:
        wanted = max((step for step in there if last is None or step <= last), default=None)
    if wanted not in there:
        needed = (
            f"but this run has to go on from {last:,} or before" if wanted is None else f"none of {wanted:,}"
        )
        raise UserError(
            Problem(
                "restore.step",
                f"{folder} has checkpoints of steps {steps}, {needed}. training.milestones= keeps them",
            )
        )
    if last is not None and wanted > last:
        raise UserError(
            Problem(
                "restore.step",
                f"{wanted:,} is too late: from step {last:,} on {why}. There are {steps}",
            )
        )
    return there[wanted]


def _checkpoints_of(folder: Path) -> dict[int, Path]:
    """By step, ascending: of a run's folder, or the one that the folder is."""
    if _is_checkpoint(folder):
        return {_state_of(folder)["step"]: folder}
    inside = folder / "checkpoints"
    there = {step: checkpoint_folder(inside, step) for step in checkpoint_steps(inside)}
    if not there:
        raise UserError(Problem("restore.from", f"{folder} has no checkpoint"))
    return there


def _is_checkpoint(folder: Path) -> bool:
    with atomic_files.reading(folder):
        return (folder / "state.json").is_file()


def _state_of(checkpoint: Path) -> dict[str, Any]:
    try:
        return read_state(checkpoint)
    except (FileNotFoundError, NotADirectoryError, ValueError) as error:
        if (other := not_expected(checkpoint / "state.json", "the state of a checkpoint")) is not None:
            raise UserError(Problem("restore.from", other)) from None
        raise UserError(Problem("restore.from", f"{checkpoint} is no whole checkpoint ({error})")) from error


def _run_folder(config: Config) -> Path:
    """The folder that is named, as a path or below runs_dir by (the beginning of) its name or identity."""
    name = str(config.restore.from_)
    with atomic_files.reading(name):
        if Path(name).is_dir():
            return Path(name)
    if Path(name).is_file():
        other = not_expected(name, "the folder of a run or of a checkpoint") or f"{name} is a file"
        raise UserError(Problem("restore.from", f"{other}. Give the folder of a run, or its name"))
    runs = Path(config.runs_dir)
    every = [path.parent for path in runs.glob("*/*/config.yaml")]
    found = [
        run for run in every if run.name.startswith(name) or run.name.rpartition("-")[2].startswith(name)
    ]
    if len(found) == 1:
        return found[0]
    known = f"{len(found)} runs below {runs} begin so" if found else "no folder, and no run begins so"
    raise UserError(Problem("restore.from", f"{name}: {known}. Expected the folder of a run, or its name"))


def _check_other_run(config: Config, checkpoint: Path, data_fingerprint: str | None) -> None:
    """A branch is its trunk but for budget, schedule, evaluations; moments are of one optimizer and model."""
    from conf.composing.check import to_config, to_plain

    other = read_run(checkpoint.resolve().parents[1])
    if not other:
        raise UserError(
            Problem("restore.from", f"{checkpoint} lies in no run, so only its weights can be taken")
        )
    is_branch = config.restore.what == "run"
    # Through the schema: the run may be older than some keys.
    before, now = to_plain(to_config(other["config"])), to_plain(config)
    differing = {
        key: values
        for key, values in changes(before, now, is_in_identity).items()
        if (not key.startswith(_MAY_DIFFER) if is_branch else key.startswith(_OF_MOMENTS))
    }
    of_each = [of_one["optimizer"] for of_one in (before, now)]
    if of_each[0]["name"] == of_each[1]["name"] in _WITHOUT_MOMENTUM_LESS:
        old, new = (one["momentum"] for one in of_each)
        if not (old and new) and old != new:
            differing["optimizer.momentum"] = (old, new)
    why = (
        "a branch differs in budget and schedule alone"
        if is_branch
        else "moments are of one optimizer and model"
    )
    problems = [
        Problem(
            key, f"is {typed_at(key, new)}, of {other_name(checkpoint)} {typed_at(key, old)}: {why}. Else: "
            "restore.what=weights"
        )
        for key, (old, new) in differing.items()
    ]  # fmt: skip
    if is_branch and data_fingerprint not in (None, (other.get("data") or {}).get("fingerprint")):
        problems.append(
            Problem("dataset", f"is not that of {other_name(checkpoint)}: {why}. Else: restore.what=weights")
        )
    if problems:
        raise UserError(*problems)


def other_name(checkpoint: Path) -> str:
    """Of the run that a checkpoint is of."""
    return checkpoint.resolve().parents[1].name
