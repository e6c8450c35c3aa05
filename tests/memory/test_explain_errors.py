"""Errors of a run's own: what may be said of memory by their words, and where these are not known."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from evidence_builder import GB, MAIN, MB, START_S, explained, ours, outcome, process, ramp, sample

from memory.evidence import Evidence
from memory.explain import explain
from memory.sacct import Job, Row, SlurmFacts

RLIMIT = {"as_bytes": 2000 * MB, "data_bytes": None}


def test_not_for_memory_only_where_that_is_known(tmp_path: Path) -> None:
    bug = "Traceback (most recent call last):\n  File 'a.py', line 3\nKeyError: 'labels'\n"
    said = explained(tmp_path / "a", outcome=outcome(exit_code=1), samples=ramp(10, 20), log=bug).sentence
    assert "not for memory" in said
    found = explained(tmp_path / "b", outcome=outcome(exit_code=1, rlimits=RLIMIT), samples=ramp(10, 20))
    assert found.verdict == "failed"
    assert "not for memory" not in found.sentence
    assert "ulimit -v" in found.sentence
    found = explained(tmp_path / "c", outcome=outcome(exit_code=1), samples=ramp(10, 20))
    assert "no kill for memory was counted" in found.sentence


@pytest.mark.parametrize(
    ("line", "confidence"),
    [
        ("Out of memory!\n", "certain"),
        ("sort: memory exhausted\n", "certain"),
        ('Exception in thread "main" java.lang.OutOfMemoryError: Java heap space\n', "certain"),
        ("RuntimeError: can't start new thread\n", "likely"),
    ],
)
def test_the_words_of_other_programs(tmp_path: Path, line: str, confidence: str) -> None:
    ended = outcome(exit_code=1, rlimits=RLIMIT)
    found = explained(tmp_path, outcome=ended, samples=ramp(10, 20), log=line)
    assert (found.verdict, found.cause, found.confidence) == ("memory_error", "rlimit", confidence)


def test_a_thread_that_no_limit_of_memory_refused(tmp_path: Path) -> None:
    log = "RuntimeError: can't start new thread\n"
    found = explained(tmp_path, outcome=outcome(exit_code=1), samples=ramp(10, 20), log=log)
    assert found.verdict == "failed"


def test_the_limit_of_a_cgroup_refuses_nothing(tmp_path: Path) -> None:
    log = "OSError: [Errno 12] Cannot allocate memory\n"
    found = explained(tmp_path, outcome=outcome(exit_code=1), samples=ramp(10, 20), log=log)
    assert found.verdict == "memory_error"
    assert not any("--mem" in (advice.override or "") for advice in found.advice)
    assert any("vm.max_map_count" in (advice.override or "") for advice in found.advice)


def test_137_of_a_program_that_had_no_child(tmp_path: Path) -> None:
    found = explained(tmp_path / "own", outcome=outcome(exit_code=137), samples=ramp(10, 20))
    assert (found.verdict, found.confidence) == ("failed", "likely")
    assert "its own, or that of a process" in found.sentence
    tree = (process(MAIN, 5), process(MAIN + 1, 50))
    ran = [sample(at, 55, processes=2, tree=tree) for at in range(20)]
    found = explained(tmp_path / "shell", outcome=outcome(exit_code=137), samples=ran)
    assert (found.verdict, found.confidence) == ("killed_from_outside", "likely")


@pytest.mark.parametrize("name", ["SIGUSR1", "SIGWINCH", "SIGCONT"])
def test_a_signal_that_ends_nothing_before_an_error(tmp_path: Path, name: str) -> None:
    sent = [{"signal": name, "time_s": START_S + 55, "from_pid": 5}]
    found = explained(tmp_path, outcome=outcome(exit_code=3, signals_passed_on=sent), samples=ramp(10, 20))
    assert found.verdict == "failed"


def test_a_task_that_ended_well_of_a_job_that_failed(tmp_path: Path) -> None:
    row = Row("77", None, "FAILED", exit_code=1)
    slurm = SlurmFacts("77", jobs=(Job(row),), source="sacct")
    found = explained(tmp_path, outcome=outcome(), samples=ramp(10, 20), slurm=slurm)
    assert found.verdict == "healthy"


@pytest.mark.parametrize("seen", ["supervised", "status", "log"])
def test_the_runs_own_error_is_told_before_that_slurm_counts_its_job_as_failed(
    tmp_path: Path, seen: str
) -> None:
    slurm = SlurmFacts("77", jobs=(Job(Row("77", None, "FAILED", exit_code=1)),), source="sacct")
    error = 'Traceback (most recent call last):\n  File "a.py", line 1\nValueError: loss is not finite\n'
    more: dict[str, Any] = {
        "supervised": {"outcome": outcome(exit_code=1), "samples": ramp(10, 20)},
        "status": {"status": {"state": "failed", "attempt": 1, "reason": "ValueError: loss is not finite"}},
        "log": {},
    }[seen]
    found = explained(tmp_path, log=error, slurm=slurm, **more)
    assert found.verdict == "failed"
    assert "error of its own" in found.sentence
    assert any("loss is not finite" in line for line in found.evidence)
    assert "77 FAILED 1:0 (sacct)" in found.evidence


def test_a_worker_that_was_killed_is_told_before_that_slurm_counts_the_job_as_failed(tmp_path: Path) -> None:
    slurm = SlurmFacts("77", jobs=(Job(Row("77", None, "FAILED", exit_code=1)),), source="sacct")
    line = "RuntimeError: DataLoader worker (pid 4243) is killed by signal: Killed.\n"
    found = explained(
        tmp_path, outcome=outcome(exit_code=1), log=line, samples=ramp(10, 20), slurm=slurm, run=ours()
    )
    assert found.verdict == "killed_from_outside"
    assert "dataset.num_workers=0" in [one.override for one in found.advice]


@pytest.mark.parametrize(
    ("line", "override"),
    [
        ('Exception in thread "main" java.lang.OutOfMemoryError: Java heap space', "java -Xmx768m"),
        ("FATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out of memory",
         "node --max-old-space-size=768"),
    ],
)  # fmt: skip
def test_a_heap_with_a_limit_of_its_own(tmp_path: Path, line: str, override: str) -> None:
    found = explained(tmp_path, outcome=outcome(exit_code=1), log=f"started\n{line}\n", samples=ramp(50, 60))
    assert (found.verdict, found.cause, found.confidence) == ("memory_error", "rlimit", "certain")
    assert found.advice[0].override == override, "of a job that may have 1 GB"
    assert "overcommit" not in found.sentence
    large = explained(
        tmp_path / "large",
        outcome=outcome(exit_code=1, limit_bytes=64 * GB),
        log=f"{line}\n",
        samples=ramp(50, 60, limit=64 * GB),
    )
    assert large.advice[0].override == override.replace("768", "8192")
    full = explained(
        tmp_path / "full",
        outcome=outcome(exit_code=1, peak_unreclaimable_bytes=900 * MB),
        log=f"{line}\n",
        samples=ramp(50, 900),
    )
    assert [one.override for one in full.advice] == ["--mem=1280M"], "there is no room for a larger heap"


def test_a_memory_error_in_the_programs_own_words(tmp_path: Path) -> None:
    log = 'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\nMemoryError: {}\n'
    own = explained(tmp_path, outcome=outcome(exit_code=1), log=log.format("cache of slots is full"))
    assert (own.verdict, own.confidence) == ("memory_error", "likely")
    assert "overcommit" not in own.sentence
    told = explained(tmp_path / "b", outcome=outcome(exit_code=1), log=log.format("Unable to allocate 9 GiB"))
    assert told.confidence == "certain"


def test_no_room_that_no_file_is_named_for(tmp_path: Path) -> None:
    """posix_fallocate(2) of shared memory says the same as a disk that is full."""
    log = 'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\n'
    log += "OSError: [Errno 28] No space left on device"
    ended = outcome(exit_code=1)
    found = explained(tmp_path, outcome=ended, log=f"{log}\n", samples=ramp(50, 60))
    assert (found.verdict, found.cause, found.confidence) == ("failed", "disk_full", "likely")
    assert "/dev/shm" in found.sentence
    script = tmp_path / "a.py"
    script.write_text("open('/dev/shm/a', 'w')\n")
    os.utime(script, (1, 1))
    ended["command"] = ["python", str(script)]
    found = explained(tmp_path / "b", outcome=ended, log=f"{log}\n", samples=ramp(50, 60))
    assert (found.verdict, found.cause) == ("failed", "none")
    assert "/dev/shm" in found.sentence
    found = explained(tmp_path / "c", outcome=ended, log=f"{log}: '/data/a.bin'\n", samples=ramp(50, 60))
    assert (found.cause, found.confidence) == ("disk_full", "certain")


def test_a_log_that_is_empty_is_not_missing(tmp_path: Path) -> None:
    explained(tmp_path, outcome=outcome(exit_code=124), samples=ramp(50, 60))
    (tmp_path / "stdout.txt").touch()
    missing = " ".join(explain(Evidence(tmp_path)).missing)
    assert "memory run --log" not in missing
    assert "nothing stands in stdout.txt" in missing


@pytest.mark.parametrize("content", ["{", "[]", "null"])
def test_an_outcome_that_cannot_be_read(tmp_path: Path, content: str) -> None:
    """Of a run that is over: no time is told until it meets its limit, nor who killed its supervisor."""
    explained(tmp_path, samples=ramp(200, 1015))
    (tmp_path / "outcome.json").write_text(content)
    found = explain(Evidence(tmp_path))
    assert found.missing[0].startswith("outcome.json cannot be read")
    assert not [line for line in found.missing if "its supervisor was killed" in line]
    assert not [finding for finding in found.findings if "limit is reached in" in finding.says]


@pytest.mark.parametrize("file", ["</torch_23014_12>", "<filename not specified>"])
def test_a_map_that_was_refused_is_no_full_shared_memory(tmp_path: Path, file: str) -> None:
    """ENOMEM of a map: /dev/shm without room answers ENOSPC or SIGBUS, and more of it helps nothing."""
    log = f"RuntimeError: unable to mmap 160 bytes from file {file}: Cannot allocate memory (12)\n"
    found = explained(tmp_path, outcome=outcome(exit_code=1), samples=ramp(10, 20), log=log)
    assert found.verdict == "memory_error"
    overrides = [advice.override or "" for advice in found.advice]
    assert "vm.max_map_count" in overrides[0]
    assert not any("/dev/shm" in override for override in overrides)
