"""A small file whose room on the disk is reserved before it is written."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from typing import Any

from experiment_utils.atomic_files import fsync_folder, to_json, write_bytes


def allocate(file: int, size: int) -> None:
    """Room for all of a file, so that a disk that fills up later costs nothing. macOS has no such call."""
    try:
        os.posix_fallocate(file, 0, size)
    except AttributeError:
        os.ftruncate(file, size)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
            raise
        os.ftruncate(file, size)


class Reserved:
    """Room on the disk for a small file that is written later, when the disk may be full.

    It is held in a file without a name (open(2), O_TMPFILE), so that nothing is left behind by a process that
    is killed; where the file system has none, in a hidden file beside it.
    """

    def __init__(self, path: str, size: int) -> None:
        """size: bytes, which the disk has already, or it is as if nothing were reserved."""
        folder, name = os.path.split(path)
        self._path, self._size = path, size
        self._reserved = os.path.join(folder, f".{name}.reserved")
        self._file: int | None = None
        self._has_name = False
        try:
            self._file = self._opened(folder or ".")
            allocate(self._file, size)
        except OSError:
            self.drop()

    def _opened(self, folder: str) -> int:
        self._has_name = True
        if hasattr(os, "O_TMPFILE") and os.path.isdir("/proc/self/fd"):
            try:
                file = os.open(folder, os.O_WRONLY | os.O_TMPFILE | os.O_CLOEXEC, 0o666)
            except OSError:  # as NFS and older kernels answer
                pass
            else:
                self._has_name = False
                return file
        return os.open(self._reserved, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)

    def write_json(self, value: Any) -> None:
        """The file, whole or not at all, as `write_json`.

        Raises:
            OSError: it cannot be written: nothing was reserved, or more is needed.
        """
        content = to_json(value).encode("utf-8")
        try:
            self._write(content)
        except OSError:
            self.drop()
            write_bytes(self._path, content)

    def _write(self, content: bytes) -> None:
        file = self._file
        if file is None or len(content) > self._size:
            raise OSError(errno.ENOSPC, "nothing, or less, was reserved")
        if os.write(file, content) < len(content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.ftruncate(file, len(content))
        os.fsync(file)
        if not self._has_name:
            with suppress(FileNotFoundError):
                os.unlink(self._reserved)  # of an earlier attempt, where there was no other way
            os.link(f"/proc/self/fd/{file}", self._reserved, follow_symlinks=True)
            self._has_name = True
        os.replace(self._reserved, self._path)
        self._has_name = False
        self.drop()
        fsync_folder(os.path.dirname(self._path) or ".")

    def drop(self) -> None:
        """It is not needed, or not any more."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
        if self._has_name:
            with suppress(OSError):
                os.unlink(self._reserved)
            self._has_name = False
