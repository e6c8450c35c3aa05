"""Facts of a run's newest attempt, from whichever file has them; None or empty if unknown."""

from __future__ import annotations

import re
import signal
import time
from bisect import bisect_left
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise, takewhile
from statistics import mode
from typing import Any

from experiment_utils.json_values import at_path, increase, mapping, mappings, seconds, text, unsigned
from memory.accounting.sacct import Job, SlurmFacts
from memory.explain.evidence.attempts import Newest, newest
from memory.explain.evidence.plain_log import plain
from memory.explain.evidence.recorded_stacks import Frame, frames
from memory.record.evidence import Evidence
from memory.record.samples import Sample
from memory.show.find_live import process_lives

FRESH_S = 30.0
"""A run whose process cannot be seen counts as running if it was heard of so recently."""
_TOGETHER_S = 5.0
"""Supervisors of several ranks sample each second, if the machine allows."""
_FIRST_STAGE = "start"
_ATTEMPT_BEGINS = re.compile(r"\battempt (\d{1,9}), on ")
_BOX = re.compile(r"memory\.blackbox\.(\d{1,9})\.")


@dataclass
class RunFacts:
    """A run's files, and Slurm's answer about its job if it was asked."""

    evidence: Evidence
    slurm: SlurmFacts | None = None
    now_s: float = field(default_factory=time.time)

    @cached_property
    def newest(self) -> Newest:
        """The part of the evidence that is of the newest attempt."""
        return newest(self.evidence)

    @property
    def outcome(self) -> dict[str, Any]:
        """outcome.json, if it is of this attempt."""
        return self.newest.outcome

    @property
    def status(self) -> dict[str, Any]:
        """status.json, if it is of this attempt."""
        return self.newest.status

    @cached_property
    def samples(self) -> tuple[Sample, ...]:
        ring = self.newest.ring
        return () if ring is None else tuple(s for s in ring.samples if seconds(s.time_s) is not None)

    @cached_property
    def ring_facts(self) -> dict[str, Any]:
        return mapping(self.newest.ring.facts if self.newest.ring else None)

    @cached_property
    def records(self) -> list[dict[str, Any]]:
        """Stage records of all ranks, by time."""
        found = [record for records in self.newest.records.values() for record in records]
        return sorted(found, key=lambda record: seconds(record.get("time_s")) or 0.0)

    def recorded(self, name: str) -> Any:
        """A value that the supervisor wrote into outcome.json, or into memory.ring if it was killed."""
        return self.outcome.get(name) or self.ring_facts.get(name)

    @property
    def environment(self) -> dict[str, Any]:
        """Variables of Slurm that the supervisor recorded, else those that the run did."""
        attempts = mappings(self.evidence.run.get("attempts"))
        return mapping(self.recorded("environment") or (attempts or [{}])[-1].get("job_ids"))

    @property
    def job_id(self) -> str:
        """Slurm's job id as one types it; empty outside Slurm."""
        if self.job is not None and self.job.row.job:
            return self.job.row.job
        names = ("ARRAY_JOB_ID", "ARRAY_TASK_ID", "JOB_ID")
        array, task, job = (text(self.environment.get(f"SLURM_{name}")) for name in names)
        found = f"{array}_{task}" if array and task else job
        return found if found.replace("_", "").isdigit() else ""

    @property
    def job(self) -> Job | None:
        """The job in Slurm's accounting."""
        return self.slurm.job if self.slurm is not None else None

    # How it ended

    @property
    def state(self) -> str:
        """State in status.json; `oom`, which a run writes of its GPU, is a failure."""
        state = text(self.status.get("state"))
        return "failed" if state == "oom" else state

    @property
    def reason(self) -> str:
        return text(self.status.get("reason"))

    @cached_property
    def exit_code(self) -> int | None:
        code = self.outcome.get("exit_code")
        return code if isinstance(code, int) and not isinstance(code, bool) else None

    @cached_property
    def signal(self) -> str:
        """`SIGKILL`: of the main process, or of one that a shell ran and reports as 128 + n."""
        return text(self.outcome.get("signal")) or signal_of(self.exit_code)

    @property
    def signal_is_certain(self) -> bool:
        """The kernel reported it. 128 + n is a habit of shells, and a program can return it itself."""
        return bool(text(self.outcome.get("signal"))) or (self.exit_code or 0) < 0

    @cached_property
    def is_running(self) -> bool:
        """It has not ended and its process lives; if that cannot be seen, it was heard of just now."""
        if self.outcome or self.state not in ("", "running"):
            return False
        lives = process_lives(self.evidence.path)
        if lives is not None or (self.job is not None and self.job.is_over):
            return lives is True
        last = self.samples[-1].time_s if self.samples else None
        beat = max(filter(None, [last, seconds(self.status.get("heartbeat_s"))]), default=None)
        return beat is not None and -FRESH_S < self.now_s - beat < FRESH_S * (1 if last else 2)

    @cached_property
    def has_ended_well(self) -> bool:
        return self.exit_code == 0 or (self.exit_code is None and not self.signal and self.state == "done")

    @cached_property
    def vanished(self) -> bool:
        """It left files, does not run, and nothing says how it ended."""
        known = self.exit_code is not None or self.signal or self.state not in ("", "running")
        return not known and not self.is_running and bool(self.samples or self.records or self.state)

    # What it wrote, and where it was

    @cached_property
    def logs(self) -> dict[str, str]:
        """Text that this attempt wrote into each of its logs."""
        known = mapping(self.recorded("log_bytes_before"))
        begins = {name: at for name, value in known.items() if (at := unsigned(value)) is not None}
        return {name: self._of_this_attempt(log) for name, log in self.evidence.logs(begins).items()}

    @cached_property
    def added_log(self) -> str:
        """The log that the user gave."""
        return self._of_this_attempt(self.evidence.added)

    @cached_property
    def log(self) -> str:
        """All logs, and the run's own reason of its failure."""
        parts = [*self.logs.values(), self.added_log, self.reason if self.state == "failed" else ""]
        return "\n".join(filter(None, parts))

    @property
    def log_name(self) -> str:
        """Names of the logs that have text."""
        names = [name for name, log in self.logs.items() if log.strip()]
        names += [self.evidence.added_log_name] * bool(self.added_log)
        return ", ".join(names) or self.evidence.log_name

    def _of_this_attempt(self, log: str) -> str:
        """From the line on with which the last attempt begins; nothing if that is an earlier one."""
        log = plain(log)
        begins = list(_ATTEMPT_BEGINS.finditer(log))
        if not begins:
            return log
        is_newest = int(begins[-1][1]) >= self.newest.number or not unsigned(self.status.get("attempt"))
        return log[begins[-1].start() :] if is_newest else ""

    @cached_property
    def frames(self) -> list[Frame]:
        """Its stack near the limit, innermost first, in the stage in which it ended, or its last pieces."""
        known = [(path, _BOX.match(path.name)) for path in self.evidence.black_boxes]
        boxes = [path for path, box in known if box is None or int(box[1]) == self.newest.number]
        begun = [record for record in self.records if record.get("event") == "begin"]
        last = (self.open_stages or begun or [{}])[-1].get("stage")
        pieces = list(takewhile(lambda record: record.get("stage") == last, reversed(begun)))
        since = (pieces or self.open_stages or begun or [{}])[-1]
        return frames(boxes, seconds(since.get("time_s")) or 0.0)

    @cached_property
    def open_stages(self) -> list[dict[str, Any]]:
        """Records of stages that began and did not end, the outermost first."""
        waiting: list[dict[str, Any]] = []
        for record in self.records:
            if record.get("event") == "begin":
                waiting.append(record)
            elif record.get("event") == "end":
                at = next((at for at in reversed(range(len(waiting))) if _same(waiting[at], record)), None)
                waiting = waiting if at is None else waiting[:at] + waiting[at + 1 :]
        return waiting

    @cached_property
    def stage(self) -> dict[str, Any]:
        """Record of the stage in which it ended: the innermost open one, else the last; empty without any."""
        return (self.open_stages or self.records or [{}])[-1]

    @cached_property
    def stage_name(self) -> str:
        return text(self.stage.get("stage")) or (text(self.status.get("stage")) if self.state else "")

    @cached_property
    def is_ours(self) -> bool:
        """A run of experiments.py, which takes overrides; by its first stage if it ended before run.json."""
        first = text(self.records[0].get("stage")) if self.records else ""
        is_begun = first == _FIRST_STAGE and self.evidence.is_run_folder
        return bool(mapping(self.evidence.run.get("config"))) or is_begun

    @cached_property
    def in_slurm(self) -> bool:
        """Whether --mem means something, as far as is known."""
        words = [self.limit_at, text(self.outcome.get("cgroup_path")), self.log_name]
        if not any(isinstance(known.get("environment"), dict) for known in (self.outcome, self.ring_facts)):
            words.append(self.log)
        is_named = any("slurm" in word.lower() for word in words)
        return self.slurm is not None or bool(self.environment.get("SLURM_JOB_ID")) or is_named

    # U, its limit, and counters of the kernel

    def series(self, name: str) -> list[tuple[float, int]]:
        """(time_s, value) of a field of the samples, where it is known."""
        found = ((sample.time_s, unsigned(getattr(sample, name))) for sample in self.samples)
        return [(time_s, value) for time_s, value in found if value is not None]

    @cached_property
    def u_series(self) -> list[tuple[float, int]]:
        """U over time, by samples and stage records."""
        found = [(sample.time_s, u) for sample in self.samples if (u := u_of(sample)) is not None]
        for record in self.records:
            snapshot = mapping(record.get("snapshot"))
            u, at = unsigned(snapshot.get("unreclaimable_bytes")), seconds(record.get("time_s"))
            if u is not None and at is not None and snapshot.get("limit_at") in (self.limit_at, None):
                found.append((at, u))
        return sorted(found)

    @cached_property
    def _limit(self) -> tuple[int | None, str]:
        """The smallest known limit, and the highest cgroup that has it.

        A last sample can be of the whole machine, since the cgroup ends with its process.
        """
        sampled = mode([value for _, value in self.series("limit_bytes") if value] or [0])
        is_host = sampled == unsigned(self.ring_facts.get("host_total_bytes"))
        record = mapping(self.records[-1].get("snapshot") if self.records else None)
        levels = [record, *mappings(self.outcome.get("parents")), self.outcome]
        found = [(each.get("limit_bytes"), each.get("limit_at") or each.get("path")) for each in levels]
        found.append((sampled, "host" if is_host else self.ring_facts.get("limit_at")))
        known = [(limit, text(where)) for amount, where in found if (limit := unsigned(amount))]
        smallest = min((limit for limit, _ in known), default=None)
        return smallest, min((at for limit, at in known if limit == smallest and at), key=len, default="")

    @property
    def limit_bytes(self) -> int | None:
        return self._limit[0]

    @property
    def limit_at(self) -> str:
        """Path of a cgroup, or `host`."""
        return self._limit[1]

    @cached_property
    def peak_bytes(self) -> int | None:
        """The highest U."""
        known = [unsigned(self.outcome.get("peak_unreclaimable_bytes")), *(u for _, u in self.u_series)]
        return max((value for value in known if value is not None), default=None)

    def of_other_ranks(self, time_s: float) -> int:
        """Anon bytes that the other ranks of the run held on this node at that time."""
        total = 0
        for samples in self._other_ranks:
            at = bisect_left(samples, time_s, key=lambda sample: sample.time_s)
            near = min(samples[max(0, at - 1) : at + 1], key=lambda sample: abs(sample.time_s - time_s))
            total += (unsigned(near.tree_anon_bytes) or 0) * (abs(near.time_s - time_s) <= _TOGETHER_S)
        return total

    @cached_property
    def _other_ranks(self) -> list[list[Sample]]:
        host = self.ring_facts.get("host")
        rings = [ring for ring in self.evidence.rings_of_other_ranks if ring.facts.get("host") == host]
        return [sorted(ring.samples, key=lambda sample: sample.time_s) for ring in rings if ring.samples]

    def counted(self, name: str, sampled: str) -> int | None:
        """Increase of a counter while the run lived, by outcome.json, else by samples."""
        before, after = (at_path(self.outcome, f"counters_{when}.{name}") for when in ("before", "after"))
        found, points = increase(before, after), self.series(sampled)
        return increase(points[0][1], points[-1][1]) if found is None and len(points) > 1 else found

    @cached_property
    def kills(self) -> int | None:
        """Kills for memory in the run's own cgroup; those in a cgroup above count neighbours as well."""
        own = text(self.outcome.get("cgroup_path"))
        levels = [each for each in mappings(self.outcome.get("parents")) if own and each.get("path") == own]
        rises = (increase(each.get("oom_kill_before"), each.get("oom_kill_after")) for each in levels)
        known = next((rose for rose in rises if rose is not None), None)
        return self.counted("oom_kill", "oom_kills") if known is None else known

    @cached_property
    def kill_time_s(self) -> float | None:
        """Time of the first sample at which the counter of kills had risen."""
        points = self.series("oom_kills")
        return next((at for (_, before), (at, after) in pairwise(points) if after > before), None)


def u_of(sample: Sample) -> int | None:
    """U of a sample, at least what its largest process holds: memory.stat of cgroup v1 lags by seconds."""
    u = unsigned(sample.unreclaimable_bytes)
    largest = max((unsigned(process.anon_bytes) or 0 for process in sample.tree), default=0)
    return None if u is None else max(u, largest + (unsigned(sample.shmem_bytes) or 0))


def signal_of(code: int | None) -> str:
    """Name of the signal in an exit status: below 0, or 128 + n as shells report it; empty if none is."""
    number = 0 if code is None else -code if code < 0 else code - 128
    return signal.Signals(number).name if number in set(signal.Signals) else ""


def _same(begin: dict[str, Any], end: dict[str, Any]) -> bool:
    """Whether both records are of one stage."""
    return all(begin.get(key) == end.get(key) for key in ("stage", "rank", "thread", "depth"))
