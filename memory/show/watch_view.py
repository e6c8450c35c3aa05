"""What `watch` shows at one moment, of a run's ring, a process or a Slurm job on this node."""

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
from experiment_utils.run_folder import RunFolder
from experiment_utils.safe_read import read_end
from memory.files.procfs import list_folder, read_file, read_long_file
from memory.measure.process import parent_of, started_at
from memory.record.ring import read_ring
from memory.record.samples import Sample
from memory.supervision.sampler import Clock, look

_SLOPE_OVER_S = 60.0
_SLOPE_FROM = 6
_SILENT_S = 10.0
_TAIL_BYTES = 64 << 10
_ALL_KILLED = (
    "it has ended, and nobody knows how: its supervisor was killed too, before it could write outcome.json"
)
_UNKNOWN_END = "it has ended, and nobody knows how: its supervisor had been killed before"


@dataclass(frozen=True)
class Slope:
    """Of U, and over how much time it was seen, a minute at most."""

    bytes_per_s: float
    over_s: float


@dataclass(frozen=True)
class View:
    """title: what is watched. slope: None where it was watched for too short. stage: in which the run is.
    ended: how it ended, None while it goes on. note: what else must be told. is_polled: Slurm polls RSS,
    so that U and its limit are RSS and --mem.
    """

    title: str
    sample: Sample | None
    host_total_bytes: int | None = None
    slope: Slope | None = None
    stage: str | None = None
    ended: str | None = None
    note: str | None = None
    is_polled: bool = False

    @property
    def is_host_limit(self) -> bool:
        """No cgroup has a limit below the machine's memory."""
        return self.sample is not None and self.sample.limit_bytes == self.host_total_bytes


Source = Callable[[], View]
"""What is seen now."""


def of_run(folder: Path) -> Source:
    """Of a run that runs anywhere: its files alone are read."""

    unwatched: list[Source] = []

    def see() -> View:
        ring = read_ring(folder / "memory.ring")
        facts = {} if ring is None else ring.facts
        samples = () if ring is None else ring.samples
        run = RunFolder(folder)
        polled = _polled_limit(run, facts)
        if polled is not None:
            samples = tuple(_as_polled(sample, polled) for sample in samples)
        pid = _left_alone(folder, facts)
        if pid is not None and not unwatched:
            unwatched.append(of_process(pid))
        if pid is not None:
            return replace(
                unwatched[0](),
                title=str(folder),
                note=f"the supervisor was killed: process {pid} goes on, unwatched",
                stage=_stage(folder / "memory.jsonl"),
                ended=None,
            )
        ended = _how_it_ended(run, facts, samples[-1].time_s if samples else None)
        if ended == _ALL_KILLED:
            ended = _in_its_own_words(RunFolder(folder), facts) or (
                _UNKNOWN_END if unwatched else _ALL_KILLED
            )
        return View(
            title=str(folder),
            sample=samples[-1] if samples else None,
            host_total_bytes=facts.get("host_total_bytes"),
            slope=None if ended else slope(samples),
            stage=_stage(folder / "memory.jsonl"),
            ended=ended,
            is_polled=polled is not None,
        )

    return see


def of_process(pid: int) -> Source:
    """Of a process and its descendants on this host, sampled by us."""
    return _sampled(f"process {pid}", lambda: [pid] if started_at(pid) else [])


def of_job(job_id: str) -> Source:
    """Of a Slurm job's processes on this node, sampled by us."""
    return _sampled(f"job {job_id}", lambda: job_processes(job_id))


def _sampled(title: str, roots: Callable[[], list[int]]) -> Source:
    samples: deque[Sample] = deque(maxlen=1024)
    clock = Clock()

    def see() -> View:
        pids = roots()
        if not pids:
            how = "has ended" if samples else "is not on this host"
            return View(title, samples[-1] if samples else None, ended=f"{title} {how}")
        found = look(pids[0], tuple(pids), clock.now_s())
        samples.append(found.sample)
        return View(title, found.sample, found.host_total_bytes, slope(tuple(samples)))

    return see


def job_processes(job_id: str, proc: str = "/proc") -> list[int]:
    """The topmost processes of a Slurm job here, by their cgroup, else by their environment.

    job_id: as cgroups and SLURM_JOB_ID have it, or of an array ARRAY_TASK, as squeue shows it.
    """
    job_id = _as_on_the_node(job_id, proc)
    name, variable = f"/job_{job_id}".encode(), f"SLURM_JOB_ID={job_id}".encode()
    found = []
    for pid in (int(entry) for entry in list_folder(proc) if entry.isdigit()):
        place = f"{proc}/{pid}"
        membership = (read_file(f"{place}/cgroup") or b"") + b"\n"
        in_cgroup = any(name + end in membership for end in (b"/", b"\n"))
        if in_cgroup or variable in (read_long_file(f"{place}/environ") or b"").split(b"\0"):
            found.append(pid)
    mine = set(found) - {os.getpid()}
    return sorted(pid for pid in mine if parent_of(pid, proc) not in mine)


def _as_on_the_node(job_id: str, proc: str) -> str:
    """Of a task of an array the number that its processes know; as it was given where none is here."""
    array, _, task = job_id.partition("_")
    if not task:
        return job_id
    told = f"SLURM_ARRAY_JOB_ID={array}".encode(), f"SLURM_ARRAY_TASK_ID={task}".encode()
    for pid in list_folder(proc):
        if not pid.isdigit():
            continue
        environment = (read_long_file(f"{proc}/{pid}/environ") or b"").split(b"\0")
        if set(told) <= set(environment):
            ids = (word[len(b"SLURM_JOB_ID=") :] for word in environment if word.startswith(b"SLURM_JOB_ID="))
            return next(ids, b"").decode(errors="replace") or job_id
    return job_id


def slope(samples: tuple[Sample, ...]) -> Slope | None:
    """Growth of U: medians of the first and the last third of the last minute; where it
    grew less in the later half of that time, so much: what stands still is not on its way to the limit.
    """
    known = [(s.time_s, s.unreclaimable_bytes) for s in samples if s.unreclaimable_bytes is not None]
    recent = [one for one in known if one[0] >= known[-1][0] - _SLOPE_OVER_S]
    if len(recent) < _SLOPE_FROM:
        return None
    found = _between_thirds(recent)
    if found is None:
        return None
    middle_s = (recent[0][0] + recent[-1][0]) / 2
    later = [one for one in recent if one[0] >= middle_s]
    of_later = _between_thirds(later) if len(later) >= _SLOPE_FROM else None
    if found > 0 and of_later is not None:
        found = max(0.0, min(found, of_later))
    return Slope(found, recent[-1][0] - recent[0][0])


def _between_thirds(recent: list[tuple[float, int]]) -> float | None:
    third = len(recent) // 3
    (from_s, low), (until_s, high) = (
        (median(t for t, _ in part), median(u for _, u in part)) for part in (recent[:third], recent[-third:])
    )
    return (high - low) / (until_s - from_s) if until_s > from_s else None


def _left_alone(folder: Path, facts: dict[str, Any]) -> int | None:
    """The run's process, where it lives on this host and its supervisor does not."""
    if facts.get("host") != os.uname().nodename or (folder / "outcome.json").exists():
        return None
    if _lives(facts.get("supervisor_pid"), facts.get("supervisor_started_at")):
        return None
    pid = facts.get("pid")
    return pid if isinstance(pid, int) and _lives(pid, facts.get("started_at")) else None


def _lives(pid: Any, began: Any) -> bool:
    return isinstance(pid, int) and began is not None and started_at(pid) == began


def _how_it_ended(run: RunFolder, facts: dict[str, Any], last_s: float | None) -> str | None:
    outcome = run.outcome
    if outcome and outcome.get("supervisor_pid") == facts.get(
        "supervisor_pid", outcome.get("supervisor_pid")
    ):
        killed = outcome.get("signal")
        return f"killed by {killed}" if killed else f"ended with exit code {outcome.get('exit_code')}"
    if not facts:
        return "no memory.ring: nobody samples this run"
    pid, began = facts.get("supervisor_pid"), facts.get("supervisor_started_at")
    if facts.get("host") == os.uname().nodename:
        return None if _lives(pid, began) else _ALL_KILLED
    silent_s = 0.0 if last_s is None else time.time() - last_s
    return f"no sample for {silent_s:.0f} s from {facts.get('host')}" if silent_s > _SILENT_S else None


def _in_its_own_words(run: RunFolder, facts: dict[str, Any]) -> str | None:
    """Where a run wrote how it ended, though its supervisor could not."""
    state, reason = run.status.get("state"), run.status.get("reason")
    if state in (None, "running") or run.status.get("attempt") != facts.get("attempt"):
        return None
    return f"it has ended: {state}{f', {reason}' if reason else ''}; its supervisor had been killed before"


def _polled_limit(run: RunFolder, facts: dict[str, Any]) -> int | None:
    """What the run wrote of it, in this attempt."""
    limit = run.status.get("polled_limit_bytes")
    is_of_this = run.status.get("attempt") == facts.get("attempt")
    return limit if is_of_this and isinstance(limit, int) and limit > 0 else None


def _as_polled(sample: Sample, limit_bytes: int) -> Sample:
    """The machine's amounts, which are all that the root cgroup tells, are replaced by the run's own."""
    return replace(
        sample,
        unreclaimable_bytes=sample.tree_rss_bytes,
        limit_bytes=limit_bytes,
        anon_bytes=None,
        shmem_bytes=None,
        kernel_bytes=None,
        cache_bytes=None,
    )


def _stage(path: Path) -> str | None:
    """The innermost stage that has begun and not ended, of the last attempt."""
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
