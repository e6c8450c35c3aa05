"""Run folders as a supervisor and a run leave them behind, out of a few words; for tests of `explain`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from memory.accounting.sacct import SlurmFacts
from memory.explain import Explanation, explain
from memory.explain.decide import FAILED
from memory.record.evidence import Evidence
from memory.record.ring import RingWriter
from memory.record.samples import ProcessSample, Sample

MB, GB = 1 << 20, 1 << 30
START_S = 1_700_000_000.0
LIMIT = 1024 * MB
JOB, TASK = "/slurm/job_7", "/slurm/job_7/step_0/task_0"
MAIN = 100


def sample(at_s: float, u_mb: float, *, limit: int = LIMIT, **more: Any) -> Sample:
    """One look: all of U is anon memory of the main process but for what is given in `more` (in bytes)."""
    u = int(u_mb * MB)
    values: dict[str, Any] = {
        "unreclaimable_bytes": u,
        "limit_bytes": limit,
        "usage_bytes": u + 20 * MB,
        "cache_bytes": 20 * MB,
        "anon_bytes": u,
        "shmem_bytes": 0,
        "kernel_bytes": 0,
        "tree_anon_bytes": u,
        "tree_rss_bytes": u + 10 * MB,
        "tree_file_bytes": 10 * MB,
        "host_available_bytes": 40 * GB,
        "dev_shm_used_bytes": 0,
        "dev_shm_total_bytes": 12 * GB,
        "oom_kills": 0,
        "processes": 1,
        "tree": (ProcessSample(MAIN, "python", u, 10 * MB, 0, u + 10 * MB),),
    }
    values |= more
    own = [values[name] or 0 for name in ("tree_anon_bytes", "shmem_bytes", "kernel_bytes")]
    values.setdefault("neighbours_anon_bytes", max(0, u - sum(own)))
    return Sample(START_S + at_s, **values)


def ramp(begin_mb: float, end_mb: float, seconds: int = 30, **more: Any) -> list[Sample]:
    """A sample a second, at an even rate."""
    step = (end_mb - begin_mb) / seconds
    return [sample(at, begin_mb + step * at, **more) for at in range(seconds + 1)]


def process(pid: int, anon_mb: float, *, shmem_mb: float = 0, file_mb: float = 10) -> ProcessSample:
    amounts = [int(amount * MB) for amount in (anon_mb, file_mb, shmem_mb)]
    return ProcessSample(pid, "python", *amounts, sum(amounts))


def outcome(**more: Any) -> dict[str, Any]:
    """Of a run that ended well after 60 s."""
    return {
        "version": 1,
        "command": ["python", "train.py"],
        "pid": MAIN,
        "host": "n1",
        "attempt": 1,
        "started_s": START_S,
        "ended_s": START_S + 60,
        "exit_code": 0,
        "signal": None,
        "by": "exit",
        "signals_passed_on": [],
        "limit_bytes": LIMIT,
        "limit_at": JOB,
        "cgroup_version": 2,
        "cgroup_path": TASK,
        "scope": "job",
        "counters_before": {"oom_kill": 0, "max": 0, "oom": 0},
        "counters_after": {"oom_kill": 0, "max": 0, "oom": 0},
        "parents": [],
        "children_lost": [],
        "victim": None,
        "peak_unreclaimable_bytes": 300 * MB,
        "dev_shm": {"total_bytes": 12 * GB, "used_before_bytes": 0, "used_after_bytes": 0},
        "rlimits": {"as_bytes": None, "data_bytes": None},
        "environment": {},
        "notes": [],
        **more,
    }


def killed(signal: str = "SIGKILL", **more: Any) -> dict[str, Any]:
    """The main process ended by a signal."""
    return outcome(**{"exit_code": None, "signal": signal, "by": "signal", **more})


def oom(kills: int = 1, hits: int = 300) -> dict[str, Any]:
    """Counters of a cgroup in which the kernel killed."""
    return {
        "counters_before": {"oom_kill": 0, "max": 10, "oom": 0},
        "counters_after": {"oom_kill": kills, "max": 10 + hits, "oom": kills},
        "peak_unreclaimable_bytes": LIMIT - MB,
    }


def record(event: str, stage: str, at_s: float, u_mb: float, **facts: Any) -> dict[str, Any]:
    """A line of memory.jsonl."""
    u = int(u_mb * MB)
    return {
        "version": 1,
        "event": event,
        "stage": stage,
        "attempt": 1,
        "rank": 0,
        "time_s": START_S + at_s,
        "elapsed_s": at_s,
        "depth": 0,
        "facts": facts,
        "snapshot": {
            "unreclaimable_bytes": u,
            "anon_bytes": u,
            "limit_bytes": LIMIT,
            "limit_at": JOB,
            "host": {"total_bytes": 64 * GB, "available_bytes": 40 * GB},
            "job": {"events": {"oom_kill": 0}},
        },
    }


def ours(**training: Any) -> dict[str, Any]:
    """run.json of a run of experiments.py."""
    return {
        "version": 1,
        "config": {
            "training": {
                "micro_batch": "auto",
                "activation_checkpointing": False,
                "loss_chunk": 4096,
                "seq_len": 128,
                **training,
            },
            "dataset": {"reader": "auto"},
        },
        "auto": {"micro_batch": 16},
        "data": {"path": "tokens.npy", "file_bytes": 180 * MB, "train_tokens": 90 * MB},
    }


def write(
    folder: Path,
    *,
    outcome: dict[str, Any] | None = None,
    samples: Iterable[Sample] = (),
    records: Iterable[dict[str, Any]] = (),
    status: dict[str, Any] | None = None,
    run: dict[str, Any] | None = None,
    log: str = "",
    ring_facts: dict[str, Any] | None = None,
    stacks: str = "",
) -> Path:
    """The files of a run; what is not given is not there."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, found in (("outcome.json", outcome), ("status.json", status), ("run.json", run)):
        if found is not None:
            (folder / name).write_text(json.dumps(found))
    samples = list(samples)
    if samples:
        facts = (
            {"pid": MAIN, "attempt": 1, "host": "n1", "limit_at": JOB} if ring_facts is None else ring_facts
        )
        with RingWriter(folder / "memory.ring", facts) as ring:
            for one in samples:
                ring.add(one)
    lines = [json.dumps(found) + "\n" for found in records]
    if lines:
        (folder / "memory.jsonl").write_text("".join(lines))
    if log:
        (folder / "log.txt").write_text(log)
    if stacks:
        (folder / "memory.blackbox.1.txt").write_text(stacks)
    return folder


def explained(folder: Path, *, slurm: SlurmFacts | None = None, **parts: Any) -> Explanation:
    """Write, and explain; a rule that fails on it is a failure."""
    found = explain(Evidence(write(folder, **parts)), slurm=slurm)
    assert not [line for line in found.missing if FAILED in line], found.missing
    return found


def typed(found: Explanation) -> list[str]:
    """What it says to type."""
    return [advice.override for advice in found.advice if advice.override]
