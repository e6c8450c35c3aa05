"""What others hold in the cgroup whose limit counts: other tasks of the job, other commands."""

from __future__ import annotations

from memory.files.cached_procfs import read_kept
from memory.files.procfs import exists, folders_in, read_long_file
from memory.measure.cgroup import find_levels, read_membership
from memory.measure.process import parent_of, read_process

_MOST_CGROUPS, _MOST_PROCESSES = 64, 512


def anon_beside(
    pid: int, path: str, ours: set[int], root: str = "", *, helpers: frozenset[int] = frozenset()
) -> int | None:
    """Anon of the processes in a cgroup and below it that are neither `ours` nor descend from those.

    In bytes; None where one of them cannot be seen from here, or is just ending, or there are very many.

    Args:
        pid: a process in it.
        path: of the cgroup, as the kernel writes it.
        ours: processes.
        helpers: of ours those that count as others all the same.
        root: what stands before /proc and /sys.
    """
    proc = f"{root}/proc"
    levels = find_levels(root, read_membership(pid, root, read_kept) or b"")[1]
    folder = next((level.folder for level in levels if level.path == path), None)
    found = None if folder is None else _processes_in(folder)
    if found is None:
        return None
    # the supervisor is not of the run, what it forks is
    others, total = (found - ours) | (found & helpers), 0
    if len(others) > _MOST_PROCESSES:
        return None
    parents = {pid: parent_of(pid, proc) for pid in others}
    for pid in others:
        above, passed = parents[pid], {pid}
        while above in parents and above not in ours and above not in passed:
            passed.add(above)
            above = parents[above]
        if above in ours and pid not in helpers:
            continue  # forked since they were looked for
        process = read_process(pid, proc)
        if process is None:
            if not exists(f"{proc}/{pid}"):
                return None  # hidden, or gone this instant
            continue  # a zombie
        if process.anon_bytes is None:
            return None  # it is ending: what it held is being given back, and is told of it no more
        total += process.anon_bytes
    return total


def _processes_in(folder: str) -> set[int] | None:
    """Of a cgroup and all below it; None where some are of another pid namespace, or there are very many."""
    waiting, seen = [folder], 0
    found: set[int] = set()
    while waiting:
        current, seen = waiting.pop(), seen + 1
        words = (read_long_file(f"{current}/cgroup.procs") or b"").split()
        if seen > _MOST_CGROUPS or b"0" in words:
            return None
        found.update(int(word) for word in words if word.isdigit())
        waiting += folders_in(current)
    return found or None
