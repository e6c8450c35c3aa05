"""What a process has mapped, by what it is: files, heap, malloc's arenas of threads, stacks, shared memory.

Source: proc_pid_smaps(5). `Anonymous:` counts pages that are the process's own, also where they stand in a
mapped file (a library's relocated data, a private map that was written to).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field

from memory.files.procfs import read_long_file

_ARENA_BYTES = 64 << 20
"""glibc reserves the heap of a thread's arena in pieces of this size and alignment (HEAP_MAX_SIZE)."""
_GUARD_BYTES = 1 << 16
_NUMBERS = {
    b"Rss:": "rss_bytes",
    b"Anonymous:": "anon_bytes",
    b"Private_Dirty:": "private_dirty_bytes",
    b"Swap:": "swap_bytes",
}


@dataclass(slots=True)
class Mapping:
    """One line of /proc/PID/maps. kind: heap, arena, stack, anonymous, shared, file, kernel."""

    begin: int
    end: int
    permissions: str
    path: str
    kind: str = "anonymous"
    rss_bytes: int = 0
    anon_bytes: int = 0
    private_dirty_bytes: int = 0
    swap_bytes: int = 0

    @property
    def size_bytes(self) -> int:
        return self.end - self.begin


@dataclass
class Maps:
    """All mappings, by address. has_amounts: read from smaps, not from maps."""

    mappings: list[Mapping] = field(default_factory=list)
    has_amounts: bool = False

    def at(self, address: int) -> Mapping | None:
        """The mapping that holds this address."""
        if not hasattr(self, "_begins"):
            self._begins = [mapping.begin for mapping in self.mappings]
        number = bisect_right(self._begins, address) - 1
        found = self.mappings[number] if number >= 0 else None
        return found if found is not None and address < found.end else None

    def by_kind(self) -> dict[str, dict[str, int]]:
        """anon, file (or shared) and private dirty bytes, and how many mappings, of each kind."""
        sums: dict[str, dict[str, int]] = defaultdict(
            lambda: {
                "mappings": 0,
                "rss_bytes": 0,
                "anon_bytes": 0,
                "private_dirty_bytes": 0,
                "swap_bytes": 0,
            }
        )
        for mapping in self.mappings:
            of_kind = sums[mapping.kind]
            of_kind["mappings"] += 1
            for name in _NUMBERS.values():
                of_kind[name] += getattr(mapping, name)
        return dict(sums)

    def files(self, count: int) -> list[dict[str, int | str]]:
        """The mapped files with the most resident memory, and what of it is the process's own."""
        sums: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
        for mapping in self.mappings:
            if mapping.kind in ("file", "shared") and mapping.path:
                amounts = sums[mapping.path]
                amounts[0] += mapping.rss_bytes
                amounts[1] += mapping.anon_bytes
                amounts[2] += mapping.size_bytes
        ranked = sorted(sums.items(), key=lambda item: -item[1][0])[:count]
        return [
            {"path": path, "rss_bytes": rss, "anon_bytes": anon, "mapped_bytes": size}
            for path, (rss, anon, size) in ranked
        ]


def read_maps(pid: int, *, amounts: bool = True, proc: str = "/proc") -> Maps:
    """Read them, empty where there is no /proc. amounts: from smaps, for which the kernel walks all pages
    (18 ms per GB that is mapped); else from maps, in which nothing but the places stands.
    """
    content = read_long_file(f"{proc}/{pid}/{'smaps' if amounts else 'maps'}") or b""
    found: list[Mapping] = []
    for line in content.splitlines():
        name, _, rest = line.partition(b" ")
        if name.endswith(b":"):
            attribute = _NUMBERS.get(name)
            if attribute is not None and found:
                digits = rest.split()[0] if rest.split() else b""
                setattr(found[-1], attribute, 1024 * int(digits) if digits.isdigit() else 0)
            continue
        mapping = _parsed(line)
        if mapping is not None:
            found.append(mapping)
    for before, mapping in zip([None, *found], found, strict=False):
        mapping.kind = _kind(mapping, before)
    return Maps(found, amounts and bool(found))


def _parsed(line: bytes) -> Mapping | None:
    """`7f12a000-7f12b000 rw-p 00000000 00:00 0   /path with spaces`."""
    fields = line.split(None, 5)
    begin, _, end = fields[0].partition(b"-") if fields else (b"", b"", b"")
    try:
        path = fields[5].decode(errors="replace") if len(fields) > 5 else ""
        return Mapping(int(begin, 16), int(end, 16), fields[1].decode(), path)
    except (ValueError, IndexError):
        return None


def _kind(mapping: Mapping, before: Mapping | None) -> str:
    path = mapping.path
    if path == "[heap]":
        return "heap"
    if path.startswith("[stack"):
        return "stack"
    if path.startswith("[anon"):
        return "anonymous"
    if path.startswith("["):
        return "kernel"
    if path.startswith(("/dev/shm/", "/memfd:", "/SYSV", "/dev/zero")):
        return "shared"
    if path:
        return "file"
    if "s" in mapping.permissions:
        return "shared"
    if (
        mapping.begin % _ARENA_BYTES == 0
        and mapping.size_bytes <= _ARENA_BYTES
        and "w" in mapping.permissions
    ):
        return "arena"
    guarded = before is not None and before.end == mapping.begin and before.permissions.startswith("---")
    if guarded and before is not None and before.size_bytes <= _GUARD_BYTES:
        return "stack"
    return "anonymous"
