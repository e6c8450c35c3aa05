"""/dev/shm: how full it is, which of its files no process uses, and which a killed run has left.

Its files are memory that cannot be reclaimed (they count as shmem), and they outlive a killed run: the next
one finds less memory, or a full file system, which a writer to a map meets as SIGBUS. Sources: tmpfs(5),
shm_overview(7), proc(5): /proc/PID/maps and /proc/PID/fd.

A file that no process has open can still be read later: a program that copies data there closes it first. It
is stale only if no live process can have put it there: by the pid in its name, where a library writes one, or
since all processes of its owner began later.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from memory.files.procfs import list_folder, read_long_file
from memory.measure.host import dev_shm_space
from memory.measure.process import parent_of, started_at

_MAX_FILES = 5000
"""Most files whose size and users are read; all are counted."""
_DELETED = " (deleted)"
_YOUNG_S = 60.0
"""A file written less long ago may not have reached the process that opens it."""
_CLOCKS_DIFFER_S = 2.0
_WITH_PID = re.compile(
    r"/(?:torch_|joblib_memmapping_folder_|(?:sem\.)?loky-|__KMP_REGISTERED_LIB_)(?P<pid>\d{1,9})(?:[_-]|$)"
)
"""torch's file_system sharing, joblib, loky, LLVM's OpenMP."""
_KTHREADD = 2
"""Parent of the kernel's threads."""


@dataclass(frozen=True, slots=True)
class ShmFile:
    """A file of /dev/shm."""

    path: str
    bytes: int
    """That it holds (blocks, not its length)."""
    owner: int
    modified_s: float
    """When it was written, or moved there."""
    used_by: tuple[int, ...] = ()
    """Pids that map it or have it open."""
    is_unused: bool | None = None
    """No process uses it; None if some of its owner's processes are not readable."""
    is_stale: bool | None = None
    """No live process can have put it there; None if unknown."""


@dataclass(frozen=True, slots=True)
class DevShm:
    """The file system /dev/shm."""

    total_bytes: int
    used_bytes: int
    files: tuple[ShmFile, ...] = ()
    """The largest first, `_MAX_FILES` at most."""
    deleted_but_held: tuple[int, ...] = ()
    """Pids that use files without a name: removed ones, and those of memfd_create(2)."""
    unreadable_processes: int = 0
    file_count: int = 0

    @property
    def stale_bytes(self) -> int:
        """Held by files that a killed run has left."""
        return sum(file.bytes for file in self.files if file.is_stale)

    @property
    def unused_bytes(self) -> int:
        """Held by files that no process has open and that are not known to be stale."""
        return sum(file.bytes for file in self.files if file.is_unused and not file.is_stale)


@dataclass
class _Users:
    """Processes that use files of /dev/shm, as far as this user can see them."""

    by_file: dict[str, set[int]] = field(default_factory=dict)
    pids: set[int] = field(default_factory=set)
    oldest_s: dict[int, float] = field(default_factory=dict)
    """By owner: start of the first process, init and kernel threads apart."""
    of_deleted: set[int] = field(default_factory=set)
    unreadable: list[int] = field(default_factory=list)
    """Owner of each process that is not readable."""


def read_dev_shm(root: str = "") -> DevShm | None:
    """Walk the files and the maps of all processes, in tens of milliseconds; None without /dev/shm."""
    total, used = dev_shm_space(f"{root}/dev/shm")
    if total is None or used is None:
        return None
    users = _users(root)
    paths = [f"{parent}/{name}" for parent, _, names in os.walk(f"{root}/dev/shm") for name in names]
    files = sorted(_files(root, paths[:_MAX_FILES], users), key=lambda file: (-file.bytes, file.path))
    return DevShm(
        total, used, tuple(files), tuple(sorted(users.of_deleted)), len(users.unreadable), len(paths)
    )


def _files(root: str, paths: list[str], users: _Users) -> Iterator[ShmFile]:
    for path in paths:
        try:
            found = os.lstat(path)
        except OSError:
            continue
        path, owner = path[len(root) :], found.st_uid
        used_by = tuple(sorted(users.by_file.get(path, ())))
        is_unused: bool | None = not used_by
        # /proc can hide processes of others
        if not used_by and (owner in users.unreadable or os.geteuid() not in (0, owner)):
            is_unused = None
        put_s = max(found.st_mtime, found.st_ctime)  # cp -p keeps the time of writing
        is_left = bool(is_unused) and _is_left(path, put_s, users.oldest_s.get(owner), users.pids)
        is_stale = True if is_left else False if used_by else None
        yield ShmFile(path, found.st_blocks * 512, owner, put_s, used_by, is_unused, is_stale)


def _is_left(path: str, put_s: float, oldest_s: float | None, pids: set[int]) -> bool:
    """Whether no live process can have put it there. oldest_s: start of its owner's first process."""
    if time.time() - put_s < _YOUNG_S:
        return False
    named = _WITH_PID.search(path)
    if named is not None:
        return int(named["pid"]) not in pids
    return oldest_s is None or oldest_s > put_s + _CLOCKS_DIFFER_S


def _users(root: str) -> _Users:
    users, proc = _Users(), f"{root}/proc"
    boot_s = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else 0.0
    for pid in (int(name) for name in list_folder(proc) if name.isdigit()):
        try:
            owner = os.stat(f"{proc}/{pid}").st_uid
        except OSError:
            continue  # it has ended
        users.pids.add(pid)
        if pid not in (1, _KTHREADD) and parent_of(pid, proc) != _KTHREADD:  # those put nothing there
            ticks = started_at(pid, proc)
            began_s = 0.0 if ticks is None else boot_s + ticks / os.sysconf("SC_CLK_TCK")
            users.oldest_s[owner] = min(began_s, users.oldest_s.get(owner, began_s))
        maps, links = read_long_file(f"{proc}/{pid}/maps"), _links(f"{proc}/{pid}/fd")
        if maps is None and links is None:
            users.unreadable.append(owner)
        for path in {*_mapped(maps or b""), *(links or ())}:
            if path.endswith(_DELETED):
                users.of_deleted.add(pid)
            else:
                users.by_file.setdefault(path, set()).add(pid)
    return users


def _mapped(maps: bytes) -> Iterator[str]:
    if b" /dev/shm/" in maps:
        for line in os.fsdecode(maps).split("\n"):
            _, found, name = line.partition(" /dev/shm/")
            if found:
                yield f"/dev/shm/{name}"


def _links(folder: str) -> list[str] | None:
    """Files of /dev/shm and memfd_create(2) among the descriptors in a folder; None if not readable."""
    try:
        numbers = os.listdir(folder)
    except OSError:
        return None
    targets = []
    for number in numbers:
        try:
            targets.append(os.readlink(f"{folder}/{number}"))
        except OSError:  # closed meanwhile
            continue
    return [target for target in targets if target.startswith(("/dev/shm/", "/memfd:"))]
