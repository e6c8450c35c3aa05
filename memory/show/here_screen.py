"""The screen of `python -m memory`: a machine, a job or a process, the number that decides first."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator

from experiment_utils.quantities import format_bytes
from memory.record.stage_line import duration
from memory.show.machine_details import Details
from memory.show.screen import NEAR, Line, Screen, amount
from memory.show.usage import sample_of, usage_rows

_CONTAINERS_SHM_BYTES = 64 << 20
"""Size of /dev/shm in a container that was started without --shm-size."""
_SHARED_FROM_BYTES = 16 << 20
_STALLED_PERCENT = 10.0


def here_screen(details: Details, last: str = "") -> Screen:
    """Everything in `details`. last: the next command."""
    return Screen(
        title=_title(details),
        rows=[
            *usage_rows(sample_of(details.at), details.at.limit_at, _limit_text(details)),
            *_pressure(details),
            *_gpus(details),
            *_dev_shm(details),
            *_machine(details),
            *_slurm(details),
            *_limits(details),
            *_not_known(details.not_known),
        ],
        processes=details.processes,
        heading=_heading(details),
        last=last,
    )


def _title(details: Details) -> str:
    main = details.at.main
    subject = {
        "process": f"process {main.pid} ({main.name or 'unnamed'})",
        "job": "this job",
        "machine": "this machine",
    }[details.processes_of]
    if details.slurm is not None:
        job = f"Slurm job {details.slurm.job_id}"
        subject = job if details.processes_of == "job" else f"{subject}, {job}"
    return f"Memory of {subject} on {details.host_name} ({details.system})"


def _limit_text(details: Details) -> str:
    """Text of the limit if a smaller one can exist above what is seen from here."""
    limit = details.at.limit_bytes
    if limit is None or details.at.limit_at != "host":
        return ""
    asked = None if details.slurm is None else details.slurm.requested_bytes
    hint = f"; Slurm was asked for {format_bytes(asked)}" if details.is_cut and asked is not None else ""
    if details.unseen_cgroup is not None:
        unseen = f"unknown: cgroup {details.unseen_cgroup} cannot be seen from here"
        return f"{unseen}; at most the machine's {format_bytes(limit)}{hint}"
    smaller = (
        "a smaller one above cannot be seen from here" if details.is_cut else "no cgroup has a smaller one"
    )
    return f"{format_bytes(limit)}, all of the machine's memory: {smaller}{hint}"


def _pressure(details: Details) -> Iterator[Line]:
    job, limit = details.at.job, details.at.limit_bytes
    if job is None:
        return
    if job.high_bytes is not None and (limit is None or job.high_bytes < limit):
        high = format_bytes(job.high_bytes)
        yield Line("high", f"{high} at {job.high_at}: above it processes are slowed down")
    if job.stalled_percent is not None:
        some = "" if job.some_stalled_percent is None else f", {job.some_stalled_percent:.1f}% some of them"
        text = f"{job.stalled_percent:.1f}% of the last 10 s all its tasks waited for memory{some}"
        is_thrashing = job.stalled_percent >= _STALLED_PERCENT
        yield Line("waiting", f"{text}: pages are freed and read again" if is_thrashing else text)


def _limits(details: Details) -> Iterator[Line]:
    """Levels with a limit, if there are several, every level as details; limits of the process (ulimit)."""
    every, limited = [], []
    for level in details.limits:
        counts = level.path == details.at.limit_at and level.limit_bytes == details.at.limit_bytes
        high = "" if level.high_bytes is None else f", high {format_bytes(level.high_bytes)}"
        group = ", a kill takes all of it (memory.oom.group)" if level.group_kill else ""
        limit = "none" if level.limit_bytes is None else format_bytes(level.limit_bytes)
        text = f"{limit}{', counts' * counts}{high}{group}"
        every.append(f"{level.path}: {text}")
        if level.limit_bytes is not None or group:
            limited.append(f"{level.path.rpartition('/')[2]} {text}")
    if len(limited) > 1:
        yield Line("limits", "; ".join(limited), "", tuple(every))
    for name in ("as_bytes", "data_bytes"):
        size = details.rlimits.get(name)
        if size is not None:
            yield Line("ulimit", f"RLIMIT_{name[:-6].upper()} {format_bytes(size)}: above it MemoryError")


def _heading(details: Details) -> str:
    how = " (all: --all)" if details.is_pss_read else " (all: --all; pss: --pss)"
    job = details.at.job if details.processes_of == "job" else None
    listed = sum(process.anon_bytes or 0 for process in details.processes)
    held = None if job is None else job.anon_bytes
    if held is not None and listed > 1.1 * held + _SHARED_FROM_BYTES:
        how = f": {format_bytes(listed)} anon listed, {format_bytes(held)} held, shared since a fork"
    return f"Processes: {len(details.processes)}, the largest first{how}"


def _gpus(details: Details) -> Iterator[Line]:
    family = {details.at.main.pid, *(worker.pid for worker in details.at.workers)}
    family |= {process.pid for process in details.processes}
    for gpu in details.gpus:
        users = [
            f"{one.pid} {one.name or '(cannot be seen from here)'} {amount(one.used_bytes)}"
            + ("" if one.pid in family else ", not of this job")
            for one in gpu.processes
        ]
        others = sum(one.used_bytes or 0 for one in gpu.processes if one.pid not in family)
        text = f"{format_bytes(gpu.used_bytes)} of {format_bytes(gpu.total_bytes)} used"
        more = f", {format_bytes(others)} of it not of this job" if others else ""
        yield Line(f"GPU {gpu.index}", f"{text}{more} ({gpu.name})", "", tuple(users))


def _dev_shm(details: Details) -> Iterator[Line]:
    shm = details.dev_shm
    if shm is None or not shm.total_bytes:
        return
    files = []
    for file in shm.files:
        use = f"used by {', '.join(map(str, file.used_by[:4]))}"
        if not file.used_by:
            written = f"written {duration(time.time() - file.modified_s)} ago"
            state = (
                "stale: its process has ended"
                if file.is_stale
                else "not open"
                if file.is_unused
                else "use unknown"
            )
            use = f"{state}, {written}"
        files.append(f"{format_bytes(file.bytes)}  {file.path}  {use}")
    total = max(shm.file_count, len(shm.files))
    unread = f" ({len(shm.files):,} of them read)" if total > len(shm.files) else ""
    count = f"{total:,} file{'s' * (total != 1)}{unread}"
    used = f"{format_bytes(shm.used_bytes)} of {format_bytes(shm.total_bytes)} used, {count}"
    unused = f", {format_bytes(shm.unused_bytes)} of it not open now" if shm.unused_bytes else ""
    yield Line("/dev/shm", f"{used}{unused}: memory that cannot be given back", "", tuple(files))
    if shm.stale_bytes:
        stale = [file.path for file in shm.files if file.is_stale]
        remove = f"rm {' '.join(map(shlex.quote, stale[:3]))}{' ...' if len(stale) > 3 else ''}"
        yield Line("!", f"{format_bytes(shm.stale_bytes)} of it is stale; unless it is read later: {remove}")
    if shm.used_bytes >= NEAR * shm.total_bytes:
        yield Line("!", "/dev/shm is nearly full: a write to a map in it ends in SIGBUS", "red")
    elif shm.total_bytes <= _CONTAINERS_SHM_BYTES:
        fix = "num_workers=0, or docker run --shm-size=8g"
        yield Line("!", f"/dev/shm is small: DataLoader workers end in SIGBUS when it is full. {fix}")


def _machine(details: Details) -> Iterator[Line]:
    host, more = details.at.host, details.host
    if host.total_bytes is None:
        return
    parts = [f"{format_bytes(host.total_bytes)}, {amount(host.available_bytes)} available"]
    if more.cache_bytes is not None:
        parts.append(f"page cache {format_bytes(more.cache_bytes)}")
    if more.swap_total_bytes is not None:
        swap = f"{amount(more.swap_used_bytes)} of {format_bytes(more.swap_total_bytes)} used"
        parts.append(f"swap {swap if more.swap_total_bytes else 'none'}")
    yield Line("machine", ", ".join(parts))
    if more.overcommit == 2:
        promised = f"{amount(more.committed_bytes)} of {amount(more.commit_limit_bytes)} are promised"
        yield Line("", f"allocations beyond that fail (vm.overcommit_memory=2): {promised}")


def _slurm(details: Details) -> Iterator[Line]:
    slurm = details.slurm
    if slurm is None:
        return
    job = f"job {slurm.job_id}" + (f", step {slurm.step_id}" if slurm.step_id else "")
    limit, asked = details.at.limit_bytes, slurm.requested_bytes
    if not slurm.from_environment:
        text = "known by its cgroup; its environment says nothing here"
    elif asked is None:
        text = "asked for all of the node's memory, or the amount is unknown"
    else:
        text = f"asked for {format_bytes(asked)} on this node ({slurm.requested_as})"
        if details.at.limit_at == "host":
            text += "; no cgroup seen here enforces it: Slurm can kill by polled rss, or not at all"
        elif limit is not None and abs(limit - asked) > asked / 50:
            text += f"; the cgroup that counts allows {format_bytes(limit)}"
    yield Line("Slurm", f"{job}: {text}")


def _not_known(notes: tuple[str, ...]) -> Iterator[Line]:
    if len(notes) == 1:
        yield Line("not known", notes[0])
    elif notes:
        yield Line("not known", f"{len(notes)} facts, first: {notes[0]}", "", notes[1:])
