"""/dev/shm: how full it is, which of its files no process uses, and which a killed run has left.

Files there are memory that cannot be given back (they count as shmem), and they outlive a killed run: the
next one finds less memory, or a full file system, which a writer to a map meets as SIGBUS. Sources: tmpfs(5),
shm_overview(7), proc(5): /proc/PID/maps and /proc/PID/fd.

That nobody has a file open says little: who copied data there closes it, and reads it later. It is stale only
where nobody who lives can have put it there: by the pid in its name, where a library writes one, or since all
processes of its owner began later.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from memory.files.procfs import list_folder, read_file, read_long_file
from memory.measure.host import dev_shm_space

_MAX_FILES = 5000
_ENDED = b" (deleted)"


_YOUNG_S = 60.0
"""What was written so short ago may be on its way to who will open it."""
_CLOCKS_DIFFER_S = 2.0
_WITH_PID = re.compile(
    r"/(?:torch_|joblib_memmapping_folder_|(?:sem\.)?loky-|__KMP_REGISTERED_LIB_)(?P<pid>\d{1,9})(?:[_-]|$)"
)
"""torch's file_system sharing, joblib, loky, LLVM's OpenMP."""
_KERNELS_OWN = 2
"""kthreadd, the parent of the kernel's threads."""


@dataclass(frozen=True, slots=True)
class ShmFile:
    """bytes: that it holds (blocks, not its length). modified_s: when it was written, or put there.

    used_by: pids that map it or have it open. is_unused: nobody does; None where some of its owner's
    processes may not be looked into. is_stale: nor can anybody who lives have put it there; None where that
    is not known.
    """

    path: str
    bytes: int
    owner: int
    modified_s: float
    used_by: tuple[int, ...] = ()
    is_unused: bool | None = None
    is_stale: bool | None = None


@dataclass(frozen=True, slots=True)
class DevShm:
    """In bytes. files: largest first. deleted_but_held: pids that use files which have no name any more."""

    total_bytes: int
    used_bytes: int
    files: tuple[ShmFile, ...] = ()
    deleted_but_held: tuple[int, ...] = ()
    unreadable_processes: int = 0

    @property
    def stale_bytes(self) -> int:
        """Held by files that a killed run has left."""
        return sum(file.bytes for file in self.files if file.is_stale)

    @property
    def unused_bytes(self) -> int:
        """Held by files that nobody has open, of which it is not known who put them there."""
        return sum(file.bytes for file in self.files if file.is_unused and not file.is_stale)


@dataclass
class _Users:
    """Which process uses what, as far as this user may look; by owner, how many processes it may not. pids:
    of all. oldest_s: by owner, when the first of his processes began, init aside.
    """

    by_file: dict[str, set[int]] = field(default_factory=dict)
    pids: set[int] = field(default_factory=set)
    oldest_s: dict[int, float] = field(default_factory=dict)
    of_deleted: set[int] = field(default_factory=set)
    closed_owners: set[int] = field(default_factory=set)
    closed: int = 0


def read_dev_shm(root: str = "") -> DevShm | None:
    """All of it: walks the files and every process's maps, tens of milliseconds. None: no /dev/shm here."""
    total, used = dev_shm_space(f"{root}/dev/shm")
    if total is None or used is None:
        return None
    users = _users(root)
    files = sorted(_files(Path(f"{root}/dev/shm"), root, users), key=lambda file: (-file.bytes, file.path))
    return DevShm(total, used, tuple(files), tuple(sorted(users.of_deleted)), users.closed)


def _files(folder: Path, root: str, users: _Users) -> Iterator[ShmFile]:
    count = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            count += 1
            if count > _MAX_FILES:
                return
            path = f"{parent}/{name}"
            try:
                found = os.lstat(path)
            except OSError:
                continue
            seen_as = path[len(root) :]
            used_by = tuple(sorted(users.by_file.get(seen_as, ())))
            is_unused: bool | None = not used_by
            may_see_all = os.geteuid() in (0, found.st_uid)  # of others /proc may hide that they are there
            if is_unused and (found.st_uid in users.closed_owners or not may_see_all):
                is_unused = None
            # cp -p keeps the time at which a file was written elsewhere
            put_s = max(found.st_mtime, found.st_ctime)
            is_stale: bool | None = False if used_by else None
            if is_unused and _is_left(seen_as, put_s, users.oldest_s.get(found.st_uid), users.pids):
                is_stale = True
            yield ShmFile(seen_as, found.st_blocks * 512, found.st_uid, put_s, used_by, is_unused, is_stale)


def _is_left(path: str, put_s: float, oldest_s: float | None, pids: set[int]) -> bool:
    """Whether nobody who lives can have put it there. oldest_s: when the first process of its owner began."""
    if time.time() - put_s < _YOUNG_S:
        return False
    named = _WITH_PID.search(path)
    if named is not None:
        return int(named["pid"]) not in pids
    return oldest_s is None or oldest_s > put_s + _CLOCKS_DIFFER_S


def _users(root: str) -> _Users:
    users = _Users()
    for name in list_folder(f"{root}/proc"):
        if not name.isdigit():
            continue
        folder = f"{root}/proc/{name}"
        users.pids.add(int(name))
        _note_age(int(name), root, users)
        maps = read_long_file(f"{folder}/maps")
        links = _links(f"{folder}/fd")
        if maps is None and links is None:
            _note_closed(folder, users)
            continue
        for path in {*_mapped(maps or b""), *(links or ())}:
            if path.endswith(_ENDED):
                users.of_deleted.add(int(name))
            else:
                users.by_file.setdefault(os.fsdecode(path), set()).add(int(name))
    return users


def _note_age(pid: int, root: str, users: _Users) -> None:
    """Init, and what the kernel runs by itself, put nothing there."""
    words = (read_file(f"{root}/proc/{pid}/stat") or b"").rpartition(b") ")[2].split()
    if pid == 1 or _KERNELS_OWN in (pid, int(words[1]) if len(words) > 19 and words[1].isdigit() else 0):
        return
    try:
        owner = Path(f"{root}/proc/{pid}").stat().st_uid
    except OSError:
        return  # it has ended
    began_s = 0.0  # it is not told: before everything
    if len(words) > 19 and words[19].isdigit():
        running_s = time.clock_gettime(time.CLOCK_BOOTTIME) - int(words[19]) / os.sysconf("SC_CLK_TCK")
        began_s = time.time() - running_s
    users.oldest_s[owner] = min(began_s, users.oldest_s.get(owner, began_s))


def _mapped(maps: bytes) -> Iterator[bytes]:
    if b" /dev/shm/" not in maps:
        return
    for line in maps.splitlines():
        _, found, name = line.partition(b" /dev/shm/")
        if found:
            yield b"/dev/shm/" + name


def _links(folder: str) -> list[bytes] | None:
    try:
        numbers = os.listdir(folder)
    except OSError:
        return None
    targets = []
    for number in numbers:
        try:
            target = os.readlink(os.fsencode(f"{folder}/{number}"))  # noqa: PTH115 - bytes: names may be any
        except OSError:
            continue
        if target.startswith(b"/dev/shm/"):
            targets.append(target)
    return targets


def _note_closed(folder: str, users: _Users) -> None:
    """A process of another user (or one that ended meanwhile)."""
    try:
        users.closed_owners.add(Path(folder).stat().st_uid)
        users.closed += 1
    except OSError:
        pass
