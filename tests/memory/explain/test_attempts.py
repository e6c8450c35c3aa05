"""Several attempts in one folder, whoever counted them: only the newest is explained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from evidence_builder import START_S, explained, killed, oom, outcome, ramp, record, write

from memory.explain import explain
from memory.explain.evidence.attempts import newest
from memory.record.evidence import Evidence


def of(pid: int, attempt: int, event: str, stage: str, at_s: float, u_mb: float) -> dict[str, Any]:
    """A record of that process; each counts from its first one."""
    found = record(event, stage, at_s, u_mb)
    found["snapshot"]["main"] = {"pid": pid}
    return found | {"attempt": attempt}


def died(pid: int, attempt: int, at_s: float) -> list[dict[str, Any]]:
    """Within a stage, at the limit."""
    first = of(pid, attempt, "begin", "train", at_s, 100) | {"elapsed_s": 0.0}
    return [first, of(pid, attempt, "begin", "forward", at_s + 5, 1020) | {"elapsed_s": 5.0}]


def did_well(pid: int, attempt: int, at_s: float) -> list[dict[str, Any]]:
    first = of(pid, attempt, "begin", "evaluate", at_s, 100) | {"elapsed_s": 0.0}
    return [first, of(pid, attempt, "end", "evaluate", at_s + 5, 200) | {"elapsed_s": 5.0}]


NUMBERS = pytest.mark.parametrize(("before", "now"), [(1, 2), (1, 1), (7, 1)])


@NUMBERS
def test_an_attempt_that_nobody_watched_after_one_that_was(tmp_path: Path, before: int, now: int) -> None:
    """outcome.json says exit 0 of the earlier one; the later was lost in a stage."""
    records = [*did_well(100, before, 5), *died(190, now, 100)]
    found = explained(tmp_path, outcome=outcome(attempt=before), samples=ramp(100, 200), records=records)
    assert found.verdict != "healthy"
    assert any(line.startswith("outcome.json ") for line in found.missing)


def test_a_death_before_the_first_stage(tmp_path: Path) -> None:
    """All records are of the attempt before, which has the same number."""
    found = explained(tmp_path, outcome=killed(), samples=ramp(20, 30, 5), records=died(90, 1, -60))
    assert (found.verdict, found.near_limit) == ("killed_from_outside", False)
    assert not any("forward" in line for line in found.evidence)


def test_processes_that_write_side_by_side_are_one_attempt(tmp_path: Path) -> None:
    """A spawned worker counts from 0 too."""
    main, worker = did_well(100, 1, 5), did_well(101, 1, 6)
    folder = write(tmp_path, records=[main[0], *worker, main[1]])
    assert len(Evidence(folder).records[0]) == 4


def test_records_of_a_clock_that_was_set_back(tmp_path: Path) -> None:
    records = [*did_well(100, 1, 5), of(100, 1, "begin", "train", -3000, 300) | {"elapsed_s": 20.0}]
    found = newest(Evidence(write(tmp_path, outcome=killed(), records=records)))
    assert len(found.records[0]) == 3


def test_the_samples_of_an_earlier_supervisor(tmp_path: Path) -> None:
    facts = {"pid": 90, "attempt": 1, "started_s": START_S - 600}
    found = explained(tmp_path, outcome=outcome(), samples=ramp(100, 1015), ring_facts=facts)
    assert (found.verdict, found.near_limit) == ("healthy", False)


def test_an_outcome_of_an_earlier_supervisor(tmp_path: Path) -> None:
    """Of the newer one everything was killed at once: it left samples alone."""
    facts = {"pid": 190, "attempt": 1, "started_s": START_S + 100, "limit_at": "/slurm/job_7"}
    late = [one for one in ramp(100, 1020, 130) if one.time_s >= START_S + 100]
    found = explained(tmp_path, outcome=outcome(), samples=late, ring_facts=facts)
    assert found.verdict == "oom_cgroup"


def test_what_stood_in_the_logs_before_it_began(tmp_path: Path) -> None:
    old = "slurmstepd: error: Detected 1 oom_kill event in StepId=77.0.\nMemoryError\n"
    job = {"SLURM_JOB_ID": "77"}
    ended = outcome(exit_code=1, environment=job, log_bytes_before={"log.txt": len(old)})
    found = explained(tmp_path / "a", outcome=ended, log=old + "ValueError: x\n")
    assert found.verdict == "failed"
    # a log that is shorter than it was has been begun again
    ended["log_bytes_before"] = {"log.txt": 10_000}
    assert explained(tmp_path / "b", outcome=ended, log=old).verdict == "memory_error"


def test_the_stacks_of_an_earlier_attempt(tmp_path: Path) -> None:
    stack = 'Current thread 0x1 (most recent call first):\n  File "old.py", line 3 in load\n'
    folder = write(
        tmp_path, outcome=killed(attempt=2, **oom()), samples=ramp(100, 1015), ring_facts={"attempt": 2}
    )
    (folder / "memory.blackbox.1.txt").write_text(stack)
    assert "old.py" not in json.dumps(explain(Evidence(folder)).to_json())
    (folder / "memory.blackbox.2.txt").write_text(stack)
    assert "old.py" in json.dumps(explain(Evidence(folder)).to_json())
