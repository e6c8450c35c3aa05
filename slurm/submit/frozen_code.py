"""The copy of the code that a submission ran with, and how the checkout differs from it now."""

from __future__ import annotations

import filecmp
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conf import Config
from conf.composing.check import plain_to_yaml, to_plain
from experiment_utils import atomic_files
from experiment_utils.errors import UserError
from experiment_utils.modules import IMPORT_ROOT, rooms_in
from experiment_utils.quantities import counted
from slurm.launch.code_snapshot import is_there
from slurm.records.submissions import Submission
from training.attempt.code_record import RecordedCode, changes_since, read_manifest
from training.attempt.code_version import ROOT, code_version
from training.attempt.run_files import read_config

FROZEN, NOW = "frozen", "now"
CHOICES = (FROZEN, NOW)


_SHOWN = 5


@dataclass(frozen=True)
class MovedOn:
    """Differences of the checkout from a copy of the code."""

    copy: Path
    changes: tuple[str, ...] = ()
    """Files that decide numbers, with lines added and removed if known."""
    others: int = 0
    """Number of other files of the copy that differ or are gone."""

    def __bool__(self) -> bool:
        return bool(self.changes or self.others)

    @property
    def words(self) -> str:
        """`core.py (+3 -1), 2 other files`."""
        count = self.others + len(self.changes[_SHOWN:])
        others = counted(count, "other file" if self.changes else "file") if count else ""
        return ", ".join(filter(None, [*self.changes[:_SHOWN], others]))

    def to_json(self) -> dict[str, Any]:
        return {"copy": str(self.copy), "changes": list(self.changes), "other_files": self.others}


def copy_of(submission: Submission) -> Path | None:
    """The copy of the code that the submission ran with; None if it had none.

    Raises:
        UserError: the copy is gone, or files of it are.
    """
    if submission.snapshot is None:
        return None
    copy = Path(submission.snapshot)
    files = _files(copy)
    if not files or not all(is_there(copy / name, size_bytes) for name, size_bytes in files.items()):
        raise UserError(
            f"{copy}: the copy of the code that the runs were submitted with is gone or not whole. Submit "
            f"them with the code of the checkout: --code {NOW}",
            code="copy-not-whole",
        )
    return copy


def moved_on(copy: Path, run: Path, root: Path = ROOT) -> MovedOn:
    """Compare the checkout with the copy. run: folder of a run that was submitted with it."""
    before = RecordedCode(code_version(rooms_in(copy)), snapshot=copy.name)
    changes = changes_since(run, before, root)
    compared = {*before.version.files, *(change.path for change in changes)}
    names = [name for name in _files(copy) if name not in compared]
    _, differ, missing = filecmp.cmpfiles(copy, IMPORT_ROOT if root == ROOT else root, names, shallow=False)
    return MovedOn(copy, tuple(map(str, changes)), len(differ) + len(missing))


def keep_known_keys(folder: Path, before: dict[str, Any]) -> None:
    """Drop the keys from a run's config.yaml that its earlier one lacks, if they have their default value.

    The program may be newer than the copy of the code that runs, which refuses keys that it does not know.

    Args:
        folder: of the run.
        before: content of the earlier config.yaml.
    """
    now = read_config(folder)
    kept = _known(now, before, to_plain(Config()))
    if kept != now:
        atomic_files.write_text(folder / "config.yaml", plain_to_yaml(kept))


def _known(now: dict[str, Any], before: dict[str, Any], default: dict[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for name, value in now.items():
        if isinstance(value, dict) and isinstance(before.get(name), dict):
            kept[name] = _known(value, before[name], default.get(name) or {})
        elif name in before or value != default.get(name):
            kept[name] = value
    return kept


def _files(copy: Path) -> dict[str, int]:
    """Size in bytes by path; empty if the copy is gone."""
    found = (read_manifest(copy) or {}).get("files")
    return found if isinstance(found, dict) else {}
