"""Request and use of an attempt of a run: memory, cores, GPU, time, and the next request.

    asked 4.0 GB, used 512 MB; 2 cores at 38%; 20 min of 2 h; next: --mem=1G --time=40

Memory is U, or the run's own where only the machine limits it; cores are CPU seconds of the run and its
children by elapsed seconds. Without a job of Slurm the machine takes the place of the request.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from experiment_utils.json_values import finite, integer, mapping, seconds, unsigned
from experiment_utils.quantities import counted, exact_size, format_bytes, format_duration, format_limit
from experiment_utils.run_folder import RunFolder
from memory.accounting.slurm_environment import requested_memory
from memory.estimate.estimate import rounded_mem
from memory.record.gpu_use import GpuUse
from memory.record.ring import read_head, read_peak, read_ring

START_S = 600.0
"""To load the code and the data, on a slow file system."""
_TIME_MARGIN, _TIME_UNIT_S = 1.5, 600.0
_MARGIN = 0.15
_NO_LIMIT_S = 300 * 86400.0
"""A job without a time limit has an end in SLURM_JOB_END_TIME that is a year away."""
_WORTH = 0.8
"""A next request is shown if it is at most this share of the one that was made, or more than it."""
_MOST_MINUTES = 90


@dataclass(frozen=True)
class Efficiency:
    """Request and use of one attempt; None is not known."""

    in_job: bool
    """Whether it ran in a job of Slurm. If not, nothing was asked for: the machine is the limit."""
    is_done: bool
    is_alone: bool
    """Whether the job was for this attempt only: then its time is the run's, and it can ask for less."""
    asked_bytes: int | None
    """Memory that was requested of a node; without a job, that of the cgroup or the machine."""
    used_bytes: int | None
    """Highest U."""
    cores: int | None
    busy_cores: float | None
    """Mean number of cores that it used."""
    limit_s: float | None
    used_s: float
    """Since its job began, if that is its own."""
    attempt: int = 1
    """Number of this attempt. A run that resumed needs more time than its last attempt."""
    of_machine: bool = False
    """Whether nothing but the memory of the machine limits it."""
    as_keys: bool = True
    """Whether the job is requested by keys of a configuration; if not, by options of sbatch."""
    gpus: int | None = None
    gpu_percent: float | None = None
    """Mean share of the time in which a kernel ran on the first rank's GPU."""
    gpu_watts: float | None = None
    gpu_used_bytes: int | None = None
    gpu_total_bytes: int | None = None

    @classmethod
    def of_json(cls, plain: Mapping[str, Any]) -> Efficiency:
        """The efficiency whose fields are given; others are ignored."""
        return cls(**{field.name: plain[field.name] for field in fields(cls) if field.name in plain})


def efficiency_of(
    outcome: Mapping[str, Any], *, is_shared: bool = False, as_keys: bool = True
) -> Efficiency | None:
    """Request and use of an attempt; None if its outcome lacks its times.

    Args:
        outcome: content of outcome.json.
        is_shared: whether other runs share its job.
        as_keys: as of `Efficiency`.
    """
    began, ended = seconds(outcome.get("started_s")), seconds(outcome.get("ended_s"))
    if began is None or ended is None or ended <= began:
        return None
    words = {name: str(value) for name, value in mapping(outcome.get("environment")).items()}
    in_job, gpu = "SLURM_JOB_ID" in words, mapping(outcome.get("gpu"))
    job_began = unsigned(_number(words, "SLURM_JOB_START_TIME"))
    job_ends = unsigned(_number(words, "SLURM_JOB_END_TIME"))
    is_alone = in_job and not is_shared and (job_began is None or 0 <= began - job_began < START_S)
    limit_s = job_ends - job_began if job_ends and job_began and is_alone else None
    is_of_machine = outcome.get("limit_at") == "host"
    own, u = integer(outcome.get("peak_own_bytes")), integer(outcome.get("peak_unreclaimable_bytes"))
    asked = requested_memory(words)[0] if in_job else None
    cpu_s, gpus = finite(outcome.get("cpu_s")), _number(words, "SLURM_GPUS_ON_NODE")
    return Efficiency(
        in_job=in_job,
        is_done=outcome.get("exit_code") == 0,
        is_alone=is_alone,
        asked_bytes=integer(outcome.get("limit_bytes")) if asked is None else asked,
        used_bytes=own if is_of_machine and own is not None else u,
        cores=_cores(words) if in_job else integer(outcome.get("cpus")),
        busy_cores=None if cpu_s is None else cpu_s / (ended - began),
        limit_s=limit_s if limit_s is not None and limit_s < _NO_LIMIT_S else None,
        used_s=ended - job_began if is_alone and job_began else ended - began,
        attempt=integer(outcome.get("attempt")) or 1,
        of_machine=is_of_machine and asked is None,
        as_keys=as_keys,
        gpus=gpus if gpus is not None else 1 if gpu else None,
        gpu_percent=finite(gpu.get("busy_percent")),
        gpu_watts=finite(gpu.get("power_w")),
        gpu_used_bytes=integer(gpu.get("peak_used_bytes")),
        gpu_total_bytes=integer(gpu.get("total_bytes")),
    )


def efficiency_of_run(run: RunFolder) -> Efficiency | None:
    """Request and use of the last attempt of a run that has ended; None if its supervisor left no outcome."""
    return efficiency_of(run.outcome, **_request(run)) if run.outcome else None


def efficiency_so_far(folder: Path) -> Efficiency | None:
    """Request and use of the run that this process is, at its end; None if no supervisor samples it."""
    head = read_head(folder / "memory.ring")
    if head is None or head[0].get("pid") != os.getpid():
        return None
    peak, use = read_peak(folder / "memory.ring"), GpuUse()
    if head[1] is not None and head[1].gpu_used_bytes is not None:
        ring = read_ring(folder / "memory.ring")
        for sample in () if ring is None else ring.samples:
            use.add(sample)
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return efficiency_of(
        head[0] | {
            "ended_s": time.time(), "exit_code": 0, "gpu": use.to_json(), "limit_at": peak.limit_at,
            "limit_bytes": peak.limit_bytes, "peak_own_bytes": peak.own_bytes,
            "peak_unreclaimable_bytes": peak.u_bytes,
            "cpu_s": sum(one.ru_utime + one.ru_stime for one in used),
        },
        **_request(RunFolder(folder)),
    )  # fmt: skip


def efficiency_line(found: Sequence[Efficiency]) -> str | None:
    """One line on a run, or on all runs of a study: the highest use, and the next request that had fit all.

    Runs outside of jobs count if none was in a job. Without a run: None.
    """
    jobs = [one for one in found if one.in_job]
    found = jobs or found
    if not found:
        return None
    upto = "up to " if len(found) > 1 else ""
    parts = [_memory(found, upto), _cores_at(found), _gpu(found), _time(found, upto)]
    request = _next(found)
    return "; ".join([part for part in parts if part] + ([f"next: {request}"] if request else []))


def time_to_ask(expected_s: float) -> float:
    """Time limit in seconds to request for a run that takes so long."""
    return -(-(START_S + expected_s * _TIME_MARGIN) // _TIME_UNIT_S) * _TIME_UNIT_S


def _memory(found: Sequence[Efficiency], upto: str) -> str:
    used, asked = _most(found, lambda one: one.used_bytes), _most(found, lambda one: one.asked_bytes)
    if used is None:
        return ""
    if found[0].in_job and asked is not None:
        return f"asked {format_bytes(asked)}, used {upto}{format_bytes(used)}"
    whose = "the machine's " if found[0].of_machine else ""
    of = "" if asked is None else f" of {whose}{format_bytes(asked)}"
    return f"used {upto}{format_bytes(used)}{of}"


def _cores_at(found: Sequence[Efficiency]) -> str:
    shares = [one.busy_cores / one.cores for one in found if one.cores and one.busy_cores is not None]
    cores = _most(found, lambda one: one.cores)
    return (
        f"{counted(cores, 'core')} at {_range([100 * share for share in shares])}" if shares and cores else ""
    )


def _gpu(found: Sequence[Efficiency]) -> str:
    gpus = _most(found, lambda one: one.gpus)
    if not gpus:
        return ""
    percents = [one.gpu_percent for one in found if one.gpu_percent is not None]
    watts = [one.gpu_watts for one in found if one.gpu_watts is not None]
    used, total = _most(found, lambda one: one.gpu_used_bytes), _most(found, lambda one: one.gpu_total_bytes)
    known = [counted(gpus, "GPU") + (f" at {_range(percents)}" if percents else "")]
    known += [f"{max(watts):.0f} W"] if watts else []
    known += [f"{format_bytes(used)} of {format_bytes(total)}"] if used is not None and total else []
    return ", ".join(known) if len(known) > 1 or percents else f"{known[0]}, use unknown"


def _time(found: Sequence[Efficiency], upto: str) -> str:
    limit_s, used_s = _most(found, lambda one: one.limit_s), max(one.used_s for one in found)
    of = "" if limit_s is None else f" of {format_duration(limit_s)}"
    return f"{upto}{format_duration(max(1, round(used_s)))}{of}"


def _next(found: Sequence[Efficiency]) -> str:
    """The request that had been enough for all, if it differs from theirs; else empty."""
    if not all(one.in_job and one.is_done and one.is_alone for one in found):
        return ""
    used, asked = _most(found, lambda one: one.used_bytes), _most(found, lambda one: one.asked_bytes)
    limit_s = _most(found, lambda one: one.limit_s)
    prefix, options = "slurm." if all(one.as_keys for one in found) else "--", []
    if used is not None and asked is not None and _differs(memory := rounded_mem(used, _MARGIN), asked):
        options.append(f"{prefix}mem={exact_size(memory).removesuffix('B')}")
    time_s = time_to_ask(max(one.used_s for one in found))
    if all(one.attempt == 1 for one in found) and limit_s is not None and _differs(time_s, limit_s):
        minutes = round(time_s / 60)
        options.append(f"{prefix}time={minutes if minutes <= _MOST_MINUTES else format_limit(time_s)}")
    return " ".join(options)


def _differs(wanted: float, asked: float) -> bool:
    return wanted <= _WORTH * asked or wanted > asked


def _most(found: Sequence[Efficiency], value: Callable[[Efficiency], Any]) -> Any:
    return max((known for one in found if (known := value(one)) is not None), default=None)


def _range(percents: Sequence[float]) -> str:
    low, high = round(min(percents)), round(max(percents))
    return f"{high}%" if low == high else f"{low}% to {high}%"


def _cores(words: Mapping[str, str]) -> int | None:
    """Cores that Slurm gives to one task; None if several tasks of a node share a number."""
    per_task = _number(words, "SLURM_CPUS_PER_TASK")
    if per_task is None and _number(words, "SLURM_NTASKS") in (None, 1):
        return _number(words, "SLURM_CPUS_ON_NODE")
    return per_task


def _request(run: RunFolder) -> dict[str, bool]:
    """Facts on the request of its job: keywords of `efficiency_of`."""
    is_shared = (integer(run.setting("slurm.pack")) or 1) > 1 or run.setting("slurm.workers") is not None
    return {"is_shared": is_shared, "as_keys": (run.path / "jobs.json").exists()}


def _number(words: Mapping[str, str], name: str) -> int | None:
    text = words.get(name, "")
    return int(text) if text.isdecimal() else None
