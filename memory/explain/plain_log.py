"""A log as its program wrote it: without colours, and without what others put before each of its lines.

torchrun and torch.distributed write `[rank0]: `, `srun --label` `0: `, mpirun `[1,0]<stderr>:`, docker and
kubectl a time. An error is known by how its line begins, and stands behind these all the same.
"""

from __future__ import annotations

import re

_COLOURS = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\))")
_OF_ONE_PROCESS = re.compile(r"^(?:\[[A-Za-z_]{0,20}\d{1,6}\]:|\[\d{1,6},\d{1,6}\]<std(?:out|err)>:) ?", re.M)
"""Nobody writes so but who runs several: taken from each line that has it."""
_OF_ALL = tuple(
    re.compile(pattern, re.M)
    for pattern in (
        r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[-+]\d\d:?\d\d)? ",
        r"^ {0,5}\d{1,6}: ?",
    )
)
"""May be a program's own: taken away only where nearly every line has it."""
_NEARLY_ALL = 0.9
_IN_A_GROUP = re.compile(r"^(?: {2}){1,20}\| ?", re.M)
"""Of Python's exception groups."""


def plain(log: str) -> str:
    """The same lines, each from where its program began to write."""
    if "\x1b" in log:
        log = _COLOURS.sub("", log)
    log = _OF_ONE_PROCESS.sub("", log)
    for label in _OF_ALL:
        lines = sum(1 for line in log.splitlines() if line.strip())
        if lines > 1 and sum(1 for _ in label.finditer(log)) >= _NEARLY_ALL * lines:
            log = label.sub("", log)
    return _IN_A_GROUP.sub("", log) if "Exception Group Traceback" in log else log
