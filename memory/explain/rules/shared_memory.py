"""/dev/shm, shared maps and files on tmpfs: memory that no process owns, and that outlives a kill."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from experiment_utils.json_values import mapping, text, unsigned
from experiment_utils.quantities import format_bytes
from memory.explain.advice import may_use_torch, more_memory, no_workers
from memory.explain.facts import Facts
from memory.explain.finding import Advice, Finding, Victim
from memory.explain.script import script_lines
from memory.explain.telling import all_of, ended_line, rise_line, stack_line, stage_line
from memory.explain.testimony import by_the_run
from memory.explain.wordings import BUS_ERROR, DISK_FULL, SHM_FULL
from memory.samples import Sample

FULL = 0.9
_WORTH, _NEARLY = 0.35, 0.8
_MOSTLY, _MAPPED_TWICE = 0.7, 1.3
"""Of all shared memory."""
SHM_WORDS = re.compile(r"/dev/shm|shared_memory|share_memory_?\(|SharedMemory")


def shm_full(facts: Facts) -> Iterator[Finding]:
    """SIGBUS, or ENOSPC: a page of shared memory had no room. So does a mapped file that was cut short."""
    if facts.has_ended_well or facts.is_running:
        return
    said, bus_said = by_the_run(facts, SHM_FULL), by_the_run(facts, BUS_ERROR)
    bus = facts.signal == "SIGBUS"
    used, total, how_full = fullest(facts)
    if said is None and how_full is not None and how_full >= FULL:
        said = by_the_run(facts, DISK_FULL)
    if not (said or bus or bus_said):
        return
    words, bus_line = said and said.line, bus_said and bus_said.line
    sure = bus or any(one is not None and one.worth == "certain" for one in (said, bus_said))
    told = (
        f"/dev/shm had up to {format_bytes(used)} of {format_bytes(total)} in use (memory.ring, outcome.json)"
        if used is not None and total
        else None
    )

    def at_most(confidence: str) -> str:
        # 128 + 7 is a shell's word for it, and may be a program's own
        by_code = bus and not facts.signal_is_certain and not (said or bus_said)
        return "possible" if not sure else "likely" if by_code and confidence == "certain" else confidence

    in_worker = "worker" in f"{words} {bus_line}".lower() or "DataLoader worker" in facts.log
    of_child = in_worker or (bus and text(facts.outcome.get("signal")) != "SIGBUS")
    victim = Victim(not of_child, unsigned(facts.outcome.get("pid")) if not of_child else None)
    evidence = all_of(
        ended_line(facts), f"{words or bus_line} ({facts.log_name})" if words or bus_line else None, told,
        stage_line(facts), stack_line(facts),
    )  # fmt: skip
    room = Advice(
        "give /dev/shm more room; a container has it from docker run --shm-size=8g",
        "mount -o remount,size=8G /dev/shm",
    )
    advice = (*no_workers(facts), room)
    names_it = bus or bool(bus_line) or SHM_FULL.search(words or "") is not None
    if words or (how_full is not None and how_full >= FULL):
        yield Finding(
            rule="shm_full",
            says=f"/dev/shm was full{f' ({format_bytes(total)})' if total else ''}: shared memory "
            "had no page left to give",
            confidence=at_most(
                "certain" if how_full is not None and how_full >= FULL and names_it else "likely"
            ),
            verdict="shm_full",
            cause="shmem",
            victim=victim,
            evidence=evidence,
            advice=advice,
        )
        return
    small = total is not None and total <= 64 << 20
    if bus_line and "worker" in bus_line.lower() and (how_full is None or small):
        yield Finding(
            rule="shm_full",
            says="A worker ended by SIGBUS: /dev/shm was full, most likely",
            confidence=at_most("likely"),
            verdict="shm_full",
            cause="shmem",
            victim=victim,
            evidence=evidence,
            advice=advice,
        )
        return
    if bus and not facts.signal_is_certain and not bus_line and not facts.lost_a_process:
        return  # by a number alone, of a program that nobody saw run another: `failed` tells of it
    died = "It" if facts.signal_is_certain or bus_line else f"By exit code {facts.exit_code} a process of it"
    cut = "a file that was mapped has been cut short since, or its disk is full or failed"
    used_it = _dev_shm_rose(facts, total) or bool(script_lines(facts, SHM_WORDS))
    if how_full is None or small or how_full > 0.5 or used_it:
        yield Finding(
            rule="shm_full",
            says=f"{died} ended by SIGBUS: /dev/shm was full, or {cut}",
            confidence=at_most("likely" if used_it else "possible"),
            verdict="shm_full",
            cause="shmem",
            victim=victim,
            evidence=evidence,
            advice=(*advice, *_look_at_files(facts)),
        )
    else:
        yield Finding(
            rule="truncated_file",
            says=f"{died} ended by SIGBUS, though /dev/shm had room: {cut}",
            confidence=at_most("likely" if facts.signal_is_certain or bus_line else "possible"),
            verdict="failed",
            cause="truncated_file",
            victim=victim,
            evidence=evidence,
            advice=_look_at_files(facts),
        )


def stale_files(facts: Facts) -> Iterator[Finding]:
    """Files that a killed run left in /dev/shm stay there, and stay charged."""
    before = unsigned(mapping(facts.outcome.get("dev_shm")).get("used_before_bytes"))
    points = facts.series("shmem_bytes")
    first = points[0][1] if points else None
    against = min(
        filter(None, (facts.limit_bytes, unsigned(mapping(facts.outcome.get("dev_shm")).get("total_bytes")))),
        default=0,
    )
    if before is None or not against or before < max(32 << 20, 0.2 * against):
        return
    charged = first is not None and first >= 0.5 * before
    hurt = bool(facts.kills) or not (facts.has_ended_well or facts.is_running)
    yield Finding(
        rule="stale_files",
        says=f"{format_bytes(before)} lay in /dev/shm before it began: left by runs that were "
        "killed, most likely",
        confidence=("likely" if charged else "possible"),
        cause="shmem" if hurt else None,
        evidence=all_of(
            f"/dev/shm had {format_bytes(before)} in use at the start (outcome.json)",
            f"the cgroup counted {format_bytes(first)} of shared memory in the first sample (memory.ring)"
            if charged and first
            else None,
        ),
        advice=(Advice("see whose they are, and delete those of dead runs", "ls -la /dev/shm"),),
    )


def shared_memory(facts: Facts) -> Iterator[Finding]:
    """Much of U is shared memory: batches that workers hold ready, or files on tmpfs."""
    known = [s for s in facts.samples if s.unreclaimable_bytes and s.shmem_bytes is not None]
    if not known or not facts.limit_bytes:
        return
    top = max(known, key=lambda sample: sample.unreclaimable_bytes or 0)
    shmem, u = top.shmem_bytes or 0, top.unreclaimable_bytes or 1
    begin = known[0].shmem_bytes or 0
    if shmem < _WORTH * u or shmem < max(32 << 20, 0.1 * facts.limit_bytes):
        return
    whole = _before_the_kills(known, top)
    mapped = [process for process in whole.tree if (process.shmem_bytes or 0) > 8 << 20]
    of_workers = _held_by_workers(whole, whole.shmem_bytes or 0) and shmem - begin > 8 << 20
    of_workers = of_workers and (facts.is_ours or may_use_torch(facts))  # else there is no loader
    before, after = known[0].dev_shm_used_bytes, top.dev_shm_used_bytes
    in_dev_shm = before is not None and after is not None and after - before > 0.5 * (shmem - begin) > 0
    evidence = all_of(
        f"at the peak of U {format_bytes(shmem)} of {format_bytes(u)} was shared memory (memory.ring)",
        f"/dev/shm rose by {format_bytes((after or 0) - (before or 0))} meanwhile (memory.ring)"
        if in_dev_shm
        else None,
        f"{_processes(len(mapped))} had it mapped, {', '.join(p.name for p in mapped[:3])} (memory.ring)"
        if mapped
        else None,
        rise_line(facts),
    )
    if of_workers:
        yield Finding(
            rule="shared_memory",
            says="Batches that workers hold ready fill shared memory: workers x batches ahead x the "
            "size of a batch",
            confidence="likely"
            if any(process.pid != whole.tree[0].pid for process in mapped)
            else "possible",
            cause="prefetch",
            evidence=evidence,
            advice=(
                *(no_workers(facts) or ()),
                *(() if facts.is_ours else (Advice("fewer batches ahead", "DataLoader(prefetch_factor=1)"),)),
                *more_memory(facts),
            ),
        )
        return
    where = "/dev/shm" if in_dev_shm else "/dev/shm, another tmpfs (/tmp?), a memfd or a shared map"
    yield Finding(
        rule="shared_memory",
        says=f"Shared memory filled it: files in {where} count against the limit until they are deleted",
        confidence="likely",
        cause="shmem",
        evidence=evidence,
        advice=(
            Advice("write such files to a disk, or delete them sooner", "ls -la /dev/shm; df -h -t tmpfs"),
            *more_memory(facts),
        ),
    )


def _processes(count: int) -> str:
    return "1 process" if count == 1 else f"{count:,} processes"


def _before_the_kills(samples: list[Sample], top: Sample) -> Sample:
    """Nearly as full as `top`, with the most processes: by then the kernel may have killed who had it."""
    nearly = [s for s in samples if (s.shmem_bytes or 0) >= _NEARLY * (top.shmem_bytes or 0)]
    return max(nearly, key=lambda sample: (sample.processes or 0, sample.unreclaimable_bytes or 0))


def _held_by_workers(top: Sample, shmem: int) -> bool:
    """Batches on their way from workers: each mapped by the one that made it, a few by the main process too.

    What the main process has mapped nearly all of, it filled itself, or keeps. What several have mapped at
    once is a table or a cache that they share. A batch that is on its way may be mapped by nobody.
    """
    if len(top.tree) < 2:
        return False
    of_main, *of_others = [process.shmem_bytes or 0 for process in top.tree]
    # memory.stat of v1 lags by seconds, usage does not
    rest = (top.usage_bytes or 0) - (top.cache_bytes or 0) - (top.tree_anon_bytes or 0)
    rest -= top.locked_bytes or 0
    is_shared = of_main + sum(of_others) > _MAPPED_TWICE * max(shmem, rest - (top.kernel_bytes or 0))
    held = max(of_others) > 8 << 20 or of_main > 8 << 20
    return held and of_main < _MOSTLY * shmem and not is_shared


def fullest(facts: Facts) -> tuple[int | None, int | None, float | None]:
    """(used, total, share) of /dev/shm when it was fullest."""
    told = mapping(facts.outcome.get("dev_shm"))
    found = [(s.dev_shm_used_bytes, s.dev_shm_total_bytes) for s in facts.samples]
    found += [
        (unsigned(told.get(f"used_{when}_bytes")), unsigned(told.get("total_bytes")))
        for when in ("before", "after")
    ]
    known = [(used / total, used, total) for used, total in found if used is not None and total]
    share, most, total = max(known, default=(None, None, None))
    return most, total, share


def _dev_shm_rose(facts: Facts, total: int | None) -> bool:
    """Whether the run was seen to put anything there."""
    used = [value for _, value in facts.series("dev_shm_used_bytes")]
    return bool(used and total) and max(used) - used[0] > 0.05 * (total or 0)


def _look_at_files(facts: Facts) -> tuple[Advice, ...]:
    if facts.is_ours:
        path = text(mapping(facts.evidence.run.get("data")).get("path"))
        command = f"python pretokenize_dataset.py verify {shlex.quote(path)}" if path else None
        return (Advice("see whether the token files are whole", command),)
    return (Advice("see whether the files that it maps are whole, and whether their disk is full", "df -h"),)
