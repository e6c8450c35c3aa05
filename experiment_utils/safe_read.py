"""Open files of run folders safely: a regular file or an error, never a wait.

Other programs write into these folders. Opening a FIFO waits for a writer, a device (`log.txt` as a link to
/dev/zero) has no end, and a file that grew without limit would fill the memory of its reader.
"""

from __future__ import annotations

import errno
import os
import stat

MOST_BYTES = 256 << 20
"""Limit of a file that is read whole; the largest that a run writes has some megabytes."""
_NOT_PLAIN = "not a plain file"


def is_copy(folder: str | os.PathLike[str], recorded: object) -> bool:
    """Whether a folder is a copy of the one at the path `recorded`, which still exists.

    A folder that was moved is no copy: nothing is at the old path. Inodes alone are compared: a file system
    that is mounted twice can have two device numbers.
    """
    try:
        return isinstance(recorded, str) and os.stat(recorded).st_ino != os.stat(folder).st_ino
    except (OSError, ValueError):
        return False


def changed_s(path: str | os.PathLike[str]) -> float:
    """Time of the last change of a file (Unix time of the file system), 0 if it cannot be read."""
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0


def plain_only(path: str | os.PathLike[str], flags: int) -> int:
    """A descriptor, for `open(path, opener=plain_only)`.

    Raises:
        OSError: it cannot be opened, or is a FIFO, a socket, a device or a folder.
    """
    try:
        descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a socket, a FIFO without a reader
            raise OSError(errno.EINVAL, _NOT_PLAIN, os.fspath(path)) from None
        raise
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    number = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
    why = os.strerror(number) if stat.S_ISDIR(mode) else _NOT_PLAIN
    raise OSError(number, why, os.fspath(path))


def read_plain(path: str | os.PathLike[str], most_bytes: int = MOST_BYTES) -> bytes:
    """All of it.

    Raises:
        OSError: as `plain_only`, or it is larger than that.
    """
    with open(path, "rb", buffering=0, opener=plain_only) as file:
        if os.fstat(file.fileno()).st_size > most_bytes:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), os.fspath(path))
        return file.read()


def read_plain_text(path: str | os.PathLike[str], most_bytes: int = MOST_BYTES) -> str:
    """The same as text; what is no UTF-8 is replaced."""
    return read_plain(path, most_bytes).decode("utf-8", "replace")


def read_end(path: str | os.PathLike[str], most_bytes: int, begin: int = 0) -> bytes:
    """The last bytes of a file, none of them before offset `begin`, which counts 0 if the file is shorter.

    Raises:
        OSError: as `plain_only`.
    """
    with open(path, "rb", opener=plain_only) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(begin if begin <= size else 0, size - most_bytes))
        return file.read()
