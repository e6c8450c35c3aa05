"""A small file whose space on the disk is reserved before it is written."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from typing import Any

from experiment_utils.atomic_files import fsync_folder, to_json, write_bytes


def allocate(file: int, size: int) -> None:
    """Reserve `size` bytes for an open file, so that it can be written when the disk has filled up.

    Raises:
        OSError: the disk is full.
    """
    try:
        os.posix_fallocate(file, 0, size)
    except AttributeError:  # macOS
        os.ftruncate(file, size)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
            raise
        os.ftruncate(file, size)


class Reserved:
    """Disk space for a small file that is written later, in a hidden file of the same folder."""

    def __init__(self, path: str, size: int) -> None:
        """Reserve `size` bytes for `path`; if that fails, `write_json` writes without a reservation."""
        folder, name = os.path.split(path)
        self._path, self._size = path, size
        self._reserved = os.path.join(folder, f".{name}.reserved")
        self._file: int | None = None
        with suppress(OSError):
            self._file = os.open(self._reserved, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
            allocate(self._file, size)
            return
        self.drop()

    def write_json(self, value: Any) -> None:
        """Write the file, whole or not at all.

        Raises:
            OSError: it cannot be written: the disk is full and the reservation is too small, or failed.
        """
        content = to_json(value).encode("utf-8")
        try:
            self._write(content)
        except OSError:
            self.drop()
            write_bytes(self._path, content)

    def _write(self, content: bytes) -> None:
        if self._file is None or len(content) > self._size or os.write(self._file, content) < len(content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.ftruncate(self._file, len(content))
        os.fsync(self._file)
        os.close(self._file)
        self._file = None
        os.replace(self._reserved, self._path)
        fsync_folder(os.path.dirname(self._path) or ".")

    def drop(self) -> None:
        """Release the reservation."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
        with suppress(OSError):
            os.unlink(self._reserved)
