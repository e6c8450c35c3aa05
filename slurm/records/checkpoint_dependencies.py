"""Which checkpoints other runs are still to begin from (`restore.from`): nobody may take those away."""

from __future__ import annotations

import re
from pathlib import Path

from experiment_utils import atomic_files
from experiment_utils.errors import UserError
from training.attempt.run_files import read_config, read_status
from training.checkpoint.checkpoints import checkpoint_steps

_BEGINS_FROM = re.compile(r"^restore:\n(?:  .*\n)*?  from: (?!null\b)\S", re.MULTILINE)
"""In a config.yaml, as it is written: most have none, and to read one whole takes a hundred times as long."""


def wanted_checkpoints(runs_dir: Path) -> dict[Path, Path]:
    """Folder of a checkpoint to a run that begins from it: one that is not done and has none of its own yet.

    Of all studies below runs_dir. A config that is damaged, or that its owner has closed to this user, names
    none.

    Raises:
        atomic_files.Unreadable: an error of the file system hides what a run begins from.
    """
    wanted: dict[Path, Path] = {}
    for path in sorted(runs_dir.glob("*/*/config.yaml")):
        run = path.parent
        try:
            with atomic_files.reading(path):
                found = _begins_from(run)
        except atomic_files.Unreadable as error:
            if not isinstance(error.__cause__, PermissionError):
                raise
        except (OSError, UserError, ValueError, KeyError, TypeError):
            continue
        else:
            if found is not None:
                wanted.setdefault(found, run)
    return wanted


def _begins_from(run: Path) -> Path | None:
    """The checkpoint that a run is still to begin from; None: none."""
    if not _BEGINS_FROM.search((run / "config.yaml").read_text(encoding="utf-8")) or _has_begun(run):
        return None
    asked = read_config(run)["restore"]
    return _checkpoint(Path(asked["from"]), asked["step"])


def _has_begun(run: Path) -> bool:
    """It goes on from a checkpoint of its own, or not at all."""
    is_done = read_status(run).get("state") == "done"
    return is_done or bool(checkpoint_steps(run / "checkpoints"))


def _checkpoint(begins_from: Path, step: int | None) -> Path | None:
    """begins_from: the folder of a run, or of a checkpoint."""
    if (begins_from / "state.json").is_file():
        return begins_from.resolve()
    inside = begins_from / "checkpoints"
    step = max(checkpoint_steps(inside), default=None) if step is None else step
    return None if step is None else (inside / f"step-{step:08d}").resolve()
