"""What did not work of what was to come after a submission's runs (`then=`, `notify=`): status tells it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from experiment_utils import atomic_files
from slurm.records import SUBMISSIONS, Submission

_FILE = "then.json"


def note_failures(submission: Submission, failures: Sequence[str]) -> None:
    """Write down what did not work, or that all did."""
    atomic_files.write_json(submission.folder / _FILE, {"version": 1, "failures": list(failures)})


def failures(study: Path) -> list[str]:
    """Of the newest submission of which it is known."""
    for path in sorted((study / SUBMISSIONS).glob(f"*/{_FILE}"))[-1:]:
        try:
            told = json.loads(path.read_text(encoding="utf-8"))["failures"]
            return [str(one) for one in told]
        except (OSError, ValueError, LookupError, TypeError):
            return []
    return []
