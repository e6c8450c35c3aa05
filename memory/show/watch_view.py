"""Views of a run, a process or a Slurm job on this node at one moment, for `watch`."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from experiment_utils.json_values import parse_json
from experiment_utils.run_folder import DAMAGED, UNREADABLE, RunFolder
from experiment_utils.safe_read import read_end
from memory.files.procfs import list_folder, read_file, read_long_file
from memory.measure.process import parent_of, started_at
from memory.record.ring import read_ring
from memory.record.samples import Sample
from memory.show.find_live import lives
from memory.supervision.sampler import Clock, look

_SLOPE_OVER_S = 60.0
_SLOPE_FROM = 6
_SILENT_S = 10.0
_TAIL_BYTES = 64 << 10


@dataclass(frozen=True)
class Slope:
    """Growth of U."""

    bytes_per_s: float
    over_s: float
    """Length of the time that was looked at, a minute at most."""


@dataclass(frozen=True)
class View:
    """One moment."""

    title: str
    sample: Sample | None
    limit_at: str | None = None
    """Path of the cgroup with the limit, or `host`."""
    slope: Slope | None = None
    stage: str | None = None
    ended: str | None = None
    """The way it ended; None while it runs."""
    note: str | None = None


Source = Callable[[], View]
"""Looks now."""


def watch_run(folder: Path) -> Source:
    """Watch a run on any host by its files; if its supervisor was killed, by its process on this host."""
    left: list[Source] = []

    def see() -> View:
        ring = read_ring(folder / "memory.ring")
        facts = {} if ring is None else ring.facts
        samples = () if ring is None else ring.samples
        run, stage = RunFolder(folder), _stage(folder / "memory.jsonl")
        ended = _how_it_ended(run, facts, samples[-1].time_s if samples else None)
        pid = facts.get("pid")
        if ended is not None and ended.startswith(_UNKNOWN) and lives(pid, facts.get("started_at")):
            left[:] = left or [watch_process(int(pid))]  # type: ignore[arg-type]
            note = f"the supervisor was killed; process {pid} continues without it"
            return replace(left[0](), title=str(folder), note=note, stage=stage, ended=None)
        newest = samples[-1] if samples else None
        slope = None if ended else slope_of(samples)
        return View(str(folder), newest, facts.get("limit_at"), slope, stage, ended)

    return see


def watch_process(pid: int) -> Source:
    """Watch a process and its descendants on this host."""
    hint = "Expected the number of a process that runs here, as ps shows it"
    return _watch(f"process {pid}", lambda: [pid] if started_at(pid) else [], hint)


def watch_job(job_id: str) -> Source:
    """Watch the processes of a Slurm job on this node."""
    hint = f"On its node: srun --overlap --jobid={job_id} python -m memory watch --job {job_id}"
    return _watch(f"job {job_id}", lambda: job_processes(job_id), hint)


def _watch(title: str, roots: Callable[[], list[int]], hint: str) -> Source:
    samples: deque[Sample] = deque(maxlen=1024)
    clock = Clock()

    def see() -> View:
        pids = roots()
        if not pids:
            how = "has ended" if samples else f"is not on this host. {hint}"
            return View(title, samples[-1] if samples else None, ended=f"{title} {how}")
        found = look(pids[0], tuple(pids), clock.now_s())
        samples.append(found.sample)
        return View(title, found.sample, found.limit_at, slope_of(tuple(samples)))

    return see


def job_processes(job_id: str, proc: str = "/proc") -> list[int]:
    """Topmost processes of a Slurm job here, by their cgroup or their environment.

    Args:
        job_id: as cgroups and SLURM_JOB_ID have it, or ARRAY_TASK, as squeue shows it.
    """
    array, _, task = job_id.partition("_")
    wanted = {f"SLURM_JOB_ID={job_id}".encode()}
    if task:
        wanted = {f"SLURM_ARRAY_JOB_ID={array}".encode(), f"SLURM_ARRAY_TASK_ID={task}".encode()}
    places = {int(entry): f"{proc}/{entry}" for entry in list_folder(proc) if entry.isdigit()}
    environments = {
        pid: (read_long_file(f"{place}/environ") or b"").split(b"\0") for pid, place in places.items()
    }
    found = {pid for pid, environment in environments.items() if wanted <= set(environment)}
    ids = {word[13:] for pid in found for word in environments[pid] if word.startswith(b"SLURM_JOB_ID=")}
    cgroups = {b"job_" + number for number in ids | {job_id.encode()}}
    for pid, place in places.items():
        if cgroups & set((read_file(f"{place}/cgroup") or b"").replace(b"\n", b"/").split(b"/")):
            found.add(pid)
    found.discard(os.getpid())
    return sorted(pid for pid in found if parent_of(pid, proc) not in found)


def slope_of(samples: tuple[Sample, ...]) -> Slope | None:
    """Growth of U in the later half of the last minute, by medians of the first and last third of it.

    Memory that grew before and has stopped is not about to be full.
    """
    known = [(s.time_s, s.unreclaimable_bytes) for s in samples if s.unreclaimable_bytes is not None]
    recent = [one for one in known if one[0] >= known[-1][0] - _SLOPE_OVER_S]
    later = [one for one in recent if one[0] >= (recent[0][0] + recent[-1][0]) / 2]
    third = len(later) // 3
    if len(later) < _SLOPE_FROM:
        return None
    (from_s, low), (until_s, high) = (
        (median(t for t, _ in part), median(u for _, u in part)) for part in (later[:third], later[-third:])
    )
    if until_s <= from_s:
        return None
    return Slope((high - low) / (until_s - from_s), recent[-1][0] - recent[0][0])


_UNKNOWN = "it has ended in an unknown way"


def _how_it_ended(run: RunFolder, facts: dict[str, Any], last_s: float | None) -> str | None:
    outcome, supervisor = run.outcome, facts.get("supervisor_pid")
    if outcome and outcome.get("supervisor_pid") in (supervisor or outcome.get("supervisor_pid"),):
        signal = outcome.get("signal")
        return f"killed by {signal}" if signal else f"ended with exit code {outcome.get('exit_code')}"
    if not facts and (run.path / "memory.ring").exists():
        return "memory.ring is damaged: it holds no header of samples that can be read"
    if not facts:
        return (
            "no memory.ring: this run is not sampled. Expected memory.supervise=true (the default) "
            "or one of `python -m memory run`"
        )
    if facts.get("host") != os.uname().nodename:
        silent_s = 0.0 if last_s is None else time.time() - last_s
        return f"no sample for {silent_s:.0f} s from {facts.get('host')}" if silent_s > _SILENT_S else None
    if lives(supervisor, facts.get("supervisor_started_at")):
        return None
    file = run.file("outcome.json")
    if file.state in (DAMAGED, UNREADABLE):
        return f"{_UNKNOWN}: outcome.json is damaged: {file.why.splitlines()[0]}"
    state, reason = run.status.get("state"), run.status.get("reason")
    if state in (None, "running") or run.status.get("attempt") != facts.get("attempt"):
        return f"{_UNKNOWN}: its supervisor was killed before it could write outcome.json"
    return f"it has ended: {state}{f', {reason}' if reason else ''}; its supervisor was killed before that"


def _stage(path: Path) -> str | None:
    """The innermost stage of the last attempt that has begun and not ended."""
    try:
        lines = read_end(path, _TAIL_BYTES).splitlines()
    except OSError:
        return None
    ended: dict[tuple[Any, Any], int] = {}
    for line in reversed(lines):
        try:
            record = parse_json(line)
            place = record["stage"], record.get("depth")
            if record["event"] == "end":
                ended[place] = ended.get(place, 0) + 1
            elif ended.get(place):
                ended[place] -= 1
            else:
                step = (record.get("facts") or {}).get("step")
                return f"{record['stage']} step {step:,}" if isinstance(step, int) else str(record["stage"])
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
    return None
