"""/dev/shm: how full it is, and which of its files no living process uses.

Files there are memory that cannot be given back (they count as shmem), and they outlive a killed run: the
next one finds less memory, or a full file system, which a writer to a map meets as SIGBUS. Sources: tmpfs(5),
shm_overview(7), proc(5): /proc/PID/maps and /proc/PID/fd.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from memory.host import dev_shm_space
from memory.kernel_files import list_folder, read_long_file

_MAX_FILES = 5000
_ENDED = b" (deleted)"


@dataclass(frozen=True, slots=True)
class ShmFile:
    """bytes: that it holds (blocks, not its length). used_by: pids that map it or have it open. is_stale:
    nobody does; None where some of its owner's processes may not be looked into.
    """

    path: str
    bytes: int
    owner: int
    modified_s: float
    used_by: tuple[int, ...] = ()
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
        """Held by files that no living process uses."""
        return sum(file.bytes for file in self.files if file.is_stale)


@dataclass
class _Users:
    """Which process uses what, as far as this user may look; by owner, how many processes it may not."""

    by_file: dict[str, set[int]] = field(default_factory=dict)
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
            is_stale: bool | None = not used_by
            if is_stale and found.st_uid in users.closed_owners:
                is_stale = None
            yield ShmFile(seen_as, found.st_blocks * 512, found.st_uid, found.st_mtime, used_by, is_stale)


def _users(root: str) -> _Users:
    users = _Users()
    for name in list_folder(f"{root}/proc"):
        if not name.isdigit():
            continue
        folder = f"{root}/proc/{name}"
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
