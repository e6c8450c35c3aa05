"""The judge of resources: `sbatch --test-only`, here as a program that answers by the options."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import pytest
from recorded_slurm import recorded

from memory.accounting.sacct import Answer
from slurm.cluster import Cluster
from slurm.queue.slurm_client import NoAnswer
from slurm.submit.resource_check import check_with_sbatch
from tests.golden_text import Golden

NOT_AVAILABLE = "allocation failure: Requested node configuration is not available"
BASE = {"nodes": 1, "cpus-per-task": 1, "partition": "batch"}


@pytest.fixture
def says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Set the message of sbatch about a script that has a line with `word`; it accepts every other one."""
    program = tmp_path / "sbatch"
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    def say(message: str, word: str = "#SBATCH", code: int = 1) -> None:
        answer = f'if grep -q -e "{word}"; then echo "{message}" >&2; exit {code}; fi'
        program.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\n{answer}\n')
        program.chmod(0o755)

    say("", "nothing")
    return say


def check(options: dict[str, Any], cluster: Cluster) -> tuple[list[str], int]:
    """Keys that are refused, and the number of notes."""
    refused, notes = check_with_sbatch([("run", BASE | options)], cluster)
    return [problem.where for problem in refused], len(notes)


def test_each_set_of_options_is_checked_once(says: Any, tmp_path: Path, golden: Golden) -> None:
    says("allocation failure: Invalid qos specification", "mem=2G")
    asked = [(f"run{n}", BASE | {"mem": f"{1 + n % 3}G"}) for n in range(30)]
    refused, notes = check_with_sbatch(asked, recorded("20.11"))
    assert (tmp_path / "calls").read_text().splitlines() == ["--test-only"] * 3
    assert notes == []
    golden.text("\n".join(map(str, refused)))


@pytest.mark.parametrize(
    ("message", "options", "expected"),
    [
        ("sbatch: Job 7 to start at 2026-11-27T11:37:04", {}, ([], 0)),
        ("allocation failure: Required node not available (down, drained or reserved)", {}, ([], 0)),
        ("allocation failure: Requested nodes are busy", {}, ([], 0)),
        ("sbatch: error: QOSMaxSubmitJobPerUserLimit", {}, ([], 0)),  # the queue has room later
        (NOT_AVAILABLE, {"mem": "1G"}, ([], 1)),  # 2 of its 16 nodes are drained
        (NOT_AVAILABLE, {"mem": "300G"}, (["slurm.mem"], 0)),
        (NOT_AVAILABLE, {"gres": "gpu:1"}, (["slurm.gpus_per_node"], 0)),
        ("allocation failure: Invalid account or account/partition combination specified",
         {"account": "teaching"}, (["slurm.account"], 0)),
        ("allocation failure: Requested time limit is invalid (missing or exceeds some limit)",
         {"time": "4-00:00:00"}, (["slurm.time"], 0)),
    ],
)  # fmt: skip
def test_verdict(message: str, options: dict[str, Any], expected: tuple[list[str], int], says: Any) -> None:
    says(message, code=0 if "2026" in message else 1)
    assert check(options, recorded("20.11")) == expected


def test_refusal_names_another_partition(says: Any) -> None:
    says(NOT_AVAILABLE)
    (problem,) = check_with_sbatch([("run", BASE | {"mem": "300G"})], recorded("20.11"))[0]
    assert "slurm.partition=scavenge" in problem.what


@pytest.mark.parametrize("missing", ["nodes", "partitions"])
def test_without_facts_of_nodes_the_job_is_submitted(missing: str, says: Any) -> None:
    says(NOT_AVAILABLE)
    cluster = recorded("20.11", **{missing: Answer(1, error="no")})
    assert check({"mem": "1G"}, cluster) == ([], 1)


@pytest.mark.parametrize(
    ("options", "refused"),
    [
        ({"time": "3-00:00:00"}, False),
        ({"time": "3-00:01:00"}, True),
        ({"time": "UNLIMITED"}, True),
        ({"time": "4-00:00:00", "qos": "long"}, False),  # a quality of service can allow more
        ({"time": "4-00:00:00", "partition": "batch,scavenge"}, False),
    ],
)
def test_time_above_the_partition_if_sbatch_does_not_check_it(
    options: dict[str, Any], refused: bool, says: Any
) -> None:
    strict = recorded("20.11")
    loose = dataclasses.replace(strict, settings={**strict.settings, "EnforcePartLimits": "NO"})
    assert check(options, loose) == (["slurm.time"] if refused else [], 0)
    assert check(options, strict) == ([], 0), "sbatch accepts it"


@pytest.mark.parametrize(
    "message", ["sbatch: error: Batch job submission failed: Socket timed out", "Connection refused"]
)
def test_no_answer_is_no_refusal(message: str, says: Any) -> None:
    says(message)
    with pytest.raises(NoAnswer):
        check({}, recorded("20.11"))
