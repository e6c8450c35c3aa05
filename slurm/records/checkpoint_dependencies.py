"""Checkpoints from which other runs will start (`restore.from`): they must not be removed."""

from __future__ import annotations

import re
from pathlib import Path

from experiment_utils import atomic_files
from experiment_utils.errors import UserError
from training.attempt.run_files import read_config, read_status
from training.checkpoint.checkpoints import checkpoint_steps

_RESTORES = re.compile(r"^restore:\n(?:  .*\n)*?  from: (?!null\b)\S", re.MULTILINE)
"""In a config.yaml as it is written: most have none, and to parse one takes a hundred times as long."""


def wanted_checkpoints(runs_dir: Path) -> dict[Path, Path]:
    """Folder of a checkpoint to a run of any study that will start from it, and has no checkpoint of its own.

    A config that is damaged, or that its owner has closed to this user, names none.

    Raises:
        atomic_files.Unreadable: an error of the file system hides a config.
    """
    wanted: dict[Path, Path] = {}
    for path in sorted(runs_dir.glob("*/*/config.yaml")):
        try:
            with atomic_files.reading(path):
                found = _starts_from(path.parent)
        except atomic_files.Unreadable as error:
            if not isinstance(error.__cause__, PermissionError):
                raise
        except (OSError, UserError, ValueError, KeyError, TypeError):
            continue
        else:
            if found is not None:
                wanted.setdefault(found, path.parent)
    return wanted


def _starts_from(run: Path) -> Path | None:
    """The checkpoint that a run will start from, None without one."""
    if not _RESTORES.search((run / "config.yaml").read_text(encoding="utf-8")):
        return None
    if read_status(run).get("state") == "done" or checkpoint_steps(run / "checkpoints"):
        return None
    restore = read_config(run)["restore"]
    origin, step = Path(restore["from"]), restore["step"]  # a run or a checkpoint
    if (origin / "state.json").is_file():
        return origin.resolve()
    inside = origin / "checkpoints"
    step = max(checkpoint_steps(inside), default=None) if step is None else step
    return None if step is None else (inside / f"step-{step:08d}").resolve()
