"""Files of /proc and /sys that are read again and again, held open: to open and close them takes longer than
to read, the more so once a second, when the caches of the core hold nothing of it.

The kernel writes such a file anew for each pread(2) from its beginning. That of a process that is gone, or of
a cgroup that was removed, says so (ESRCH, ENODEV): its name is then opened anew, since another may have it.
"""

from __future__ import annotations

import errno
import fcntl
import os

from memory.files.procfs import ONE_READ_BYTES, read_file

_MOST = 160
"""A run may be allowed 1,024 open files; 65 processes and their cgroup fit."""
_BEGINS_ANEW_AFTER = 1000
"""Reads that found no room: most that is held may be of processes that are gone."""
_NUMBERS_FROM = 512
"""Of descriptors: who closes all low ones, as daemons do, and opens his own, does not meet ours there."""
_OF_THE_KERNEL = ("/proc/", "/sys/")
_GONE = (errno.ESRCH, errno.ENODEV)


class KeptFiles:
    """Of one process; any thread may read."""

    def __init__(self) -> None:
        self._open: dict[str, int] = {}
        self._without_room = 0
        self._may_keep = True

    def read(self, path: str) -> bytes | None:
        """As `read_file`: the first 64 KB, or None."""
        descriptor = self._open.pop(path, None)  # not in the table: no other thread closes it meanwhile
        if descriptor is not None:
            try:
                content = os.pread(descriptor, ONE_READ_BYTES, 0)
            except OSError as error:
                self._drop(path, descriptor, error.errno in _GONE)
            else:
                self._keep(path, descriptor)
                return content
        return self._read_anew(path)

    def close(self) -> None:
        """All; they are opened again when they are read."""
        while self._open:
            _close(self._open.popitem()[1])

    def _read_anew(self, path: str) -> bytes | None:
        if not (self._may_keep and path.startswith(_OF_THE_KERNEL)):
            return read_file(path)
        if len(self._open) >= _MOST:
            self._without_room += 1
            if self._without_room % _BEGINS_ANEW_AFTER == 0:
                self.close()
            return read_file(path)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except (OSError, ValueError):
            return None
        try:
            content = os.pread(descriptor, ONE_READ_BYTES, 0)
            self._keep(path, fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _NUMBERS_FROM))
            return content
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.EMFILE):  # no such number is allowed here
                self._may_keep = False
                return read_file(path)
            return None
        finally:
            _close(descriptor)

    def _keep(self, path: str, descriptor: int) -> None:
        if self._open.setdefault(path, descriptor) != descriptor:  # another thread was faster
            _close(descriptor)

    def _drop(self, path: str, descriptor: int, is_gone: bool) -> None:
        if is_gone:  # else it was closed by somebody, and may be another file by now
            _close(descriptor)
        folder = path[: path.rfind("/") + 1]
        for other in [name for name in list(self._open) if name.startswith(folder)]:
            below = self._open.pop(other, None)  # of the same process, whose number another may have by now
            if below is not None and is_gone:
                _close(below)


def _close(descriptor: int) -> None:
    try:
        os.close(descriptor)
    except OSError:
        return


KEPT = KeptFiles()
read_kept = KEPT.read
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=KEPT.close)
