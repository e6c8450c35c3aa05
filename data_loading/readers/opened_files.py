"""Token files must stay as they were when their set was opened: they are looked at while they are read."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NamedTuple

from data_loading.readers.extents import Extents
from experiment_utils.errors import UserError

_EVERY_S = 0.01
"""Between two looks at a file: a look costs a microsecond, and a batch can be of as many files as windows."""


class State(NamedTuple):
    """Identity of a file's content, as far as stat(2) shows it."""

    inode: int
    size_bytes: int
    modified_ns: int


class OpenedFiles:
    """The files of a set; that one was replaced by rename is no change: what is open is still the old one."""

    def __init__(self, extents: Extents) -> None:
        """Raises UserError: a file is shorter than what is mapped of it."""
        self._paths, self._looked_s = extents.paths, [0.0] * len(extents.paths)
        self._states = [None if path is None else _state(path.stat()) for path in extents.paths]
        for path, state, offset, buffer in zip(
            self._paths, self._states, extents.file_offset_bytes, extents.buffers, strict=True
        ):
            if path and state and state.size_bytes < offset + len(buffer):
                raise _changed(path, offset + len(buffer), state)

    def check(self, number: int) -> None:
        """Look at a file, at most every 10 ms.

        Raises:
            UserError: it is shorter, longer or newer than it was.
        """
        path, before, now_s = self._paths[number], self._states[number], time.monotonic()
        if path is None or before is None or now_s - self._looked_s[number] < _EVERY_S:
            return
        self._looked_s[number] = now_s
        try:
            state = _state(path.stat())
        except OSError:
            return
        if state != before and state.inode == before.inode:
            raise _changed(path, before.size_bytes, state)

    def open(self, number: int) -> int:
        """Return a descriptor of a file, which is opened later than its set.

        Raises:
            UserError: the file is gone, or another one has its name.
        """
        path, before = self._paths[number], self._states[number]
        assert path is not None
        assert before is not None
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise UserError(
                f"{path} cannot be read: {error.strerror}. It was there when its set was opened: restore it",
                code="file-unreadable",
            ) from error
        state = _state(os.fstat(descriptor))
        if state != before:
            os.close(descriptor)
            raise _changed(path, before.size_bytes, state)
        return descriptor


def _changed(path: Path, before_bytes: int, now: State) -> UserError:
    return UserError(
        f"{path} changed while it was read: it had {before_bytes:,} bytes when its set was opened, now it "
        f"has {now.size_bytes:,}. A token file must not change under a run. Restore it "
        "(pretokenize_dataset.py verify checks it), and type the same command again to resume from the last "
        "checkpoint",
        code="changed-while-read",
    )


def _state(found: os.stat_result) -> State:
    return State(found.st_ino, found.st_size, found.st_mtime_ns)
