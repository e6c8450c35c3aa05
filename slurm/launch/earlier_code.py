"""Finished runs whose results are those of code that has changed since."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from experiment_utils.errors import UserError
from experiment_utils.quantities import counted
from training.attempt.begin import describe_changes
from training.attempt.code_record import RecordedCode, changes_since, code_of_attempt
from training.attempt.code_version import code_version
from training.attempt.plugin_copies import plugin_changes
from training.attempt.run_files import read_run, read_status


def earlier_code(folders: Iterable[Path], command: str) -> list[str]:
    """Return a line for each earlier version of the code that finished runs of these folders were made with.

    Args:
        command: what runs them again, for the last line.
    """
    code_version.cache_clear()  # it can have been edited while the runs were computed
    versions: dict[str, list[tuple[Path, RecordedCode]]] = {}
    for folder in dict.fromkeys(folders):
        before = _code_of_finished(folder)
        if before is None:
            continue
        edited = plugin_changes(folder, before.plugins)
        if edited or before.version.hash != code_version().hash:
            key = f"{before.version.hash} {sorted(before.plugins.items())}"
            versions.setdefault(key, []).append((folder, before))
    lines = []
    for (folder, before), *others in versions.values():
        runs = counted(1 + len(others), "run") if others else folder.name
        changes = describe_changes([*plugin_changes(folder, before.plugins), *changes_since(folder, before)])
        lines.append(f"{runs}: computed by earlier code, which has changed since: {changes}")
    again = "it" if sum(map(len, versions.values())) == 1 else "them"
    return [*lines, f"To run {again} again: {command}"] if lines else []


def _code_of_finished(folder: Path) -> RecordedCode | None:
    """Code of a run's last attempt; None if it is not finished or that is not known."""
    try:
        if read_status(folder).get("state") != "done":
            return None
        attempts = read_run(folder).get("attempts") or [{}]
    except UserError:
        return None
    return code_of_attempt(folder, attempts[-1])
