"""Finished runs whose code has changed since: their results are those of the earlier code."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from experiment_utils.errors import UserError
from experiment_utils.quantities import counted
from training.attempt.begin import describe_changes
from training.attempt.code_record import RecordedCode, changes_since, code_of_attempt
from training.attempt.code_version import code_version
from training.attempt.run_files import read_run, read_status


def earlier_code(folders: Iterable[Path], command: str) -> list[str]:
    """A line for each version of the code that finished runs of these folders were made with and that is not
    the code of now.

    Args:
        command: what runs them again.
    """
    code_version.cache_clear()  # it can have been edited while the runs were computed
    now = code_version().hash
    versions: dict[str, list[tuple[Path, RecordedCode]]] = {}
    for folder in dict.fromkeys(folders):
        try:
            if read_status(folder).get("state") != "done":
                continue
            attempts = read_run(folder).get("attempts") or [{}]
        except UserError:
            continue
        before = code_of_attempt(folder, attempts[-1])
        if before is not None and before.version.hash != now:
            versions.setdefault(before.version.hash, []).append((folder, before))
    lines = []
    for runs in versions.values():
        folder, before = runs[0]
        which = folder.name if len(runs) == 1 else counted(len(runs), "run")
        changes = describe_changes(changes_since(folder, before))
        lines.append(f"{which}: computed by earlier code, which has changed since: {changes}")
    if lines:
        lines.append(f"To run {'it' if len(versions) == 1 and len(runs) == 1 else 'them'} again: {command}")
    return lines
