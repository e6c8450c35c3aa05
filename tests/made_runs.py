"""Run folders for tests of reports: real writers of records and rings, made-up amounts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from memory.measure.cgroup import Cgroup
from memory.measure.host import Host
from memory.measure.process import Process
from memory.measure.snapshot import Snapshot
from memory.record.ring import RingWriter
from memory.record.samples import ProcessSample, Sample

MB = 1 << 20
BEGUN_S = 1_795_262_000.0
LIMIT = 900 * MB


def snapshot_of(
    time_s: float,
    main_mb: int,
    workers_mb: Sequence[int] = (),
    *,
    other_mb: int = 0,
    limit: int | None = LIMIT,
) -> Snapshot:
    """A job whose anon is that of its processes and `other_mb`, with 5 MB shared and 7 of the kernel."""
    anon = (main_mb + sum(workers_mb) + other_mb) * MB
    return Snapshot(
        time_s,
        Process(100, "python", 4, (main_mb + 50) * MB, main_mb * MB, 50 * MB, 0, 0, (main_mb + 90) * MB),
        tuple(Process(101 + i, f"worker{i}", 1, n * MB, n * MB, 0, 0) for i, n in enumerate(workers_mb)),
        Cgroup(
            2, "/job_7", limit, "/job_7" if limit else None, anon + 300 * MB, None, anon, 5 * MB, 7 * MB,
            288 * MB,
        ),
        Host(64000 * MB, 50000 * MB),
    )  # fmt: skip


class MadeStages:
    """Writes records as `stage` does, at times that are told. clock_s: what the clock is off by."""

    def __init__(self, path: Path, *, attempt: int = 1, rank: int = 0, begun_s: float = BEGUN_S) -> None:
        self.path, self.attempt, self.rank, self.begun_s = path, attempt, rank, begun_s
        self.clock_s = 0.0

    def record(self, event: str, stage: str, at_s: float, main_mb: int, **more: Any) -> dict[str, Any]:
        """Append one, and return it."""
        workers_mb, other_mb = more.pop("workers_mb", ()), more.pop("other_mb", 0)
        time_s = self.begun_s + at_s + self.clock_s
        found = snapshot_of(time_s, main_mb, workers_mb, other_mb=other_mb, limit=more.pop("limit", LIMIT))
        record = {
            "version": 1, "event": event, "stage": stage, "attempt": self.attempt, "rank": self.rank,
            "time_s": time_s, "elapsed_s": at_s, "facts": more.pop("facts", {}),
            "depth": more.pop("depth", 0), "snapshot": found.to_json(), **more,
        }  # fmt: skip
        with open(self.path, "a") as file:
            file.write(json.dumps(record) + "\n")
        return record

    def stage(
        self, stage: str, begin_s: float, end_s: float, before_mb: int, after_mb: int, **more: Any
    ) -> None:
        """One that ends."""
        kept = {key: value for key, value in more.items() if key not in ("error", "seconds")}
        self.record("begin", stage, begin_s, before_mb, **kept)
        change = {"anon_bytes": (after_mb - before_mb) * MB}
        self.record("end", stage, end_s, after_mb, seconds=end_s - begin_s, change=change, **more)


def sample_of(
    at_s: float,
    main_mb: int,
    workers_mb: Sequence[int] = (),
    *,
    oom_kills: int = 0,
    limit: int | None = LIMIT,
) -> Sample:
    """What a supervisor sees of the same job."""
    found = snapshot_of(BEGUN_S + at_s, main_mb, workers_mb, limit=limit)
    job = found.job
    assert job is not None
    tree = tuple(
        ProcessSample(p.pid, p.name, p.anon_bytes, p.file_bytes, p.shmem_bytes, p.rss_bytes)
        for p in (found.main, *found.workers)
    )
    return Sample(
        found.time_s, found.unreclaimable_bytes, limit, job.usage_bytes, job.file_bytes, job.anon_bytes,
        job.shmem_bytes, job.kernel_bytes, tree_anon_bytes=sum(p.anon_bytes or 0 for p in tree),
        tree_rss_bytes=found.rss_bytes, oom_kills=oom_kills, processes=len(tree), tree=tree,
    )  # fmt: skip


def write_ring(folder: Path, samples: Sequence[Sample], **facts: Any) -> None:
    """memory.ring, as the supervisor leaves it."""
    with RingWriter(folder / "memory.ring", {"pid": 100, "started_s": BEGUN_S} | facts) as ring:
        for sample in samples:
            ring.add(sample)


def write_outcome(folder: Path, ended_s: float, **more: Any) -> None:
    """outcome.json; `ended_s` since the run began."""
    outcome = {
        "version": 1, "command": ["python", "train.py"], "pid": 100, "attempt": 1, "started_s": BEGUN_S,
        "ended_s": BEGUN_S + ended_s, "exit_code": None, "signal": "SIGKILL", "by": "signal",
    } | more  # fmt: skip
    (folder / "outcome.json").write_text(json.dumps(outcome))


def make_killed(folder: Path) -> Path:
    """A run with nested stages, two workers that grow to the limit, and a kill in `train`."""
    folder.mkdir(parents=True)
    made = MadeStages(folder / "memory.jsonl")
    made.stage("start", 0.0, 1.0, 20, 100)
    made.record("begin", "build", 1.0, 100)
    made.stage("weights", 1.1, 2.0, 100, 180, depth=1)
    made.stage("optimizer", 2.0, 2.9, 180, 220, depth=1)
    made.record("end", "build", 3.0, 200, seconds=2.0, change={"anon_bytes": 100 * MB})
    made.stage("train", 3.0, 10.0, 200, 210, workers_mb=(50, 60), facts={"step": 100})
    made.stage("evaluate", 10.0, 11.0, 210, 210, workers_mb=(60, 70))
    made.record("begin", "train", 11.0, 210, workers_mb=(60, 70), facts={"step": 200})
    grown = [(0.5 * i, 60 + 11 * max(0, i - 22)) for i in range(72)]
    samples = [sample_of(at_s, 30 + round(180 * min(1.0, at_s / 3)), (n, 70)) for at_s, n in grown]
    write_ring(folder, [*samples, sample_of(36.0, 210, (608, 70), oom_kills=1)])
    write_outcome(folder, 36.2, counters_after={"oom_kill": 1})
    return folder
