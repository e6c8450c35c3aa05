"""Token files stay what they were when they were opened: looked at while they are read."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

from experiment_utils.errors import UserError

_EVERY_S = 0.0005
"""Of several files: a look costs a microsecond, and a batch may be of as many files as windows."""
_RESTORE = (
    "A token file must not change under a run. Restore it (pretokenize_dataset.py verify says whether it is "
    "whole), and type the same command again to go on from the last checkpoint"
)


class Unchanged:
    """Sizes and modification times of files, compared at each read; of several files at most every
    0.5 ms for each.

    A file that is replaced by rename is no change: what is open or mapped stays the old one.
    """

    def __init__(self, paths: Sequence[Path | None]) -> None:
        self._paths = paths
        self._states = [_state(path) if path is not None else None for path in paths]
        self._looked = [0.0] * len(paths)
        self._every_s = _EVERY_S if len(paths) > 1 else 0.0

    def open(self, number: int) -> int:
        """A descriptor of one of the files, later than the set was opened.

        Raises:
            UserError: it is gone, or another one has its name.
        """
        path = self._paths[number]
        assert path is not None
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise UserError(
                f"{path} cannot be read any more ({error.strerror}): it was there when its set was opened. "
                f"{_RESTORE}",
                code="file-unreadable",
            ) from error
        found = os.fstat(descriptor)
        if (found.st_ino, found.st_size, found.st_mtime_ns) != self._states[number]:
            os.close(descriptor)
            raise UserError(
                f"{path} is another file than its set was opened with ({found.st_size:,} bytes). {_RESTORE}",
                code="file-replaced",
            )
        return descriptor

    def check(self, number: int) -> None:
        """Look at one of the files.

        Raises:
            UserError: it is shorter, longer or newer than it was; names both sides.
        """
        path, now = self._paths[number], time.monotonic()
        if path is None or now - self._looked[number] < self._every_s:
            return
        self._looked[number] = now
        before, state = self._states[number], _state(path)
        if before is None or state is None or state[0] != before[0] or state == before:
            return
        _, size, _ = state
        how = "modified" if size == before[1] else "truncated" if size < before[1] else "written to"
        raise UserError(
            f"{path} was {how} while it was read: it had {before[1]:,} bytes when it was opened, now it has "
            f"{size:,}. {_RESTORE}",
            code="changed-while-read",
        )


def _state(path: Path) -> tuple[int, int, int] | None:
    """(inode, bytes, modification time); None where nothing is there any more."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
