"""Failures of the commands after a submission (`then=`, `notify=`), for `status`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiment_utils import atomic_files
from experiment_utils.json_values import texts
from experiment_utils.run_folder import read_file
from slurm.records.submissions import SUBMISSIONS, Submission

_FILE = "then.json"


def note_failures(submission: Submission, failures: Sequence[str]) -> None:
    """Write what failed, or an empty list."""
    atomic_files.write_json(submission.folder / _FILE, {"version": 1, "failures": list(failures)})


def failures(study: Path) -> list[str]:
    """Failures of the newest submission that has noted any outcome."""
    for path in sorted((study / SUBMISSIONS).glob(f"*/{_FILE}"))[-1:]:
        return texts(read_file(path).value.get("failures"))
    return []
