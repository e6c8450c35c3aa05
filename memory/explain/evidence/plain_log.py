"""A log as its program wrote it, without colours and without labels that launchers put before each line."""

from __future__ import annotations

import re

_REMOVED = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\))"  # colours
    r"|^(?:\[[A-Za-z_]{0,20}\d{1,6}\]:|\[\d{1,6},\d{1,6}\]<std(?:out|err)>:) ?",  # torchrun, mpirun
    re.M,
)
_OFTEN_OWN = (
    re.compile(
        r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[-+]\d\d:?\d\d)? ", re.M
    ),  # docker, kubectl
    re.compile(r"^ {0,5}\d{1,6}: ?", re.M),  # srun --label
)
"""Can be the program's own: removed only if nearly every line has it."""
_NEARLY_ALL = 0.9
_IN_A_GROUP = re.compile(r"^(?: {2}){1,20}\| ?", re.M)
"""Margin of Python's exception groups."""


def plain(log: str) -> str:
    """Remove what the program did not write."""
    log = _REMOVED.sub("", log)
    lines = sum(1 for line in log.splitlines() if line.strip())
    for label in _OFTEN_OWN:
        if lines > 1 and sum(1 for _ in label.finditer(log)) >= _NEARLY_ALL * lines:
            log = label.sub("", log)
    return _IN_A_GROUP.sub("", log) if "Exception Group Traceback" in log else log
