"""What `explain` says to type for a run of ours: overrides that can help, and how much memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from evidence_builder import GB, MB, explained, killed, oom, ours, ramp, record, sample, typed

from memory.accounting.sacct import SlurmFacts, parse_sacct

IN_TRAIN = [record("begin", "train", 3, 900, step=7)]
FOREIGN = {"limit_at": "/docker/abc", "cgroup_path": "/docker/abc"}


def died(
    folder: Path, run: dict[str, Any] | None, records: list[dict[str, Any]] = IN_TRAIN, **more: Any
) -> list[str]:
    """The overrides for one that the kernel killed at its limit of 1,024 MB."""
    found = explained(
        folder, outcome=killed(**oom(), **more), samples=ramp(200, 1020, 4), records=records, run=run
    )
    return typed(found)


def planned(host_mb: int, **savings_mb: int) -> dict[str, Any]:
    """run.json with an estimate: as it is, and with each override (`__` for its dot, `_is_` for `=`)."""
    savings = {
        words.replace("_is_", "=").replace("__", "."): {"host_bytes": mb * MB, "gpu_bytes": 0}
        for words, mb in savings_mb.items()
    }
    memory = {"host_bytes": host_mb * MB, "recommended_mem_bytes": 2 * GB, "savings": savings}
    return ours() | {"memory": memory}


def test_cheapest_first(tmp_path: Path) -> None:
    batches = ["training.micro_batch=8", "training.activation_checkpointing=true"]
    assert died(tmp_path / "train", ours()) == [*batches, "--mem=1280M"]
    opening = died(tmp_path / "open", ours(), [record("begin", "open_dataset", 3, 900)])
    assert not set(batches) & set(opening), "there are no batches yet"


@pytest.mark.parametrize(("now", "advised"), [(16, 8), (15, 5), (7, 1), (9, 3), (2, 1)])
def test_smaller_micro_batch_divides_batch(tmp_path: Path, now: int, advised: int) -> None:
    assert f"training.micro_batch={advised}" in died(tmp_path, ours(micro_batch=now))


@pytest.mark.parametrize(
    ("now_mb", "after_mb", "is_advised"),
    [(1100, 800, True), (1100, 1060, False), (900, 880, False), (900, 860, True)],
)
def test_override_helps_by_estimate(tmp_path: Path, now_mb: int, after_mb: int, is_advised: bool) -> None:
    """Less than 3% is nothing."""
    names = ("training__micro_batch_is_8", "training__activation_checkpointing_is_true",
             "training__loss_chunk_is_1024")  # fmt: skip
    words = died(tmp_path, planned(now_mb, **dict.fromkeys(names, after_mb)))
    assert len([word for word in words if not word.startswith("--")]) == (3 if is_advised else 0)


def test_overrides_that_only_help_together(tmp_path: Path) -> None:
    both = "training.micro_batch=4 training.activation_checkpointing=true"
    run = planned(2000, training__micro_batch_is_8=1500)
    run["memory"]["savings"] |= {
        "training.activation_checkpointing=true": {"host_bytes": 1600 * MB},
        "training.loss_chunk=1024": {"host_bytes": 1990 * MB},
        both: {"host_bytes": 700 * MB},
    }
    words = died(tmp_path, run)
    assert both in words
    assert not {"training.micro_batch=8", "training.loss_chunk=1024"} & set(words)


@pytest.mark.parametrize(("now_mb", "amount"), [(1100, "--mem=2G"), (900, "--mem=1280M")])
def test_more_memory_by_estimate(tmp_path: Path, now_mb: int, amount: str) -> None:
    assert died(tmp_path, planned(now_mb), environment={"SLURM_JOB_ID": "7"})[-1] == amount


def test_no_mem_without_slurm(tmp_path: Path) -> None:
    words = died(tmp_path, None, **FOREIGN)
    assert not [word for word in words if word.startswith("--mem")]


def test_poll_of_rss_rules_out_what_plan_does(tmp_path: Path) -> None:
    """A run of 813 MB in 520 that read by pread already."""
    times = "01:00:20|02:00:00|2026-11-22T08:00:00|2026-11-22T09:00:20|n7|"
    rows = (
        "JobID|State|ExitCode|MaxRSS|ReqMem|Elapsed|Timelimit|Start|End|NodeList|Reason\n"
        f"42|FAILED|0:9||520M|{times}\n42.batch|CANCELLED by 0|0:9|549000K||{times}\n"
    )
    polls = {"gather": "jobacct_gather/linux", "gather_params": "OverMemoryKill"}
    run = planned(813, training__micro_batch_is_16=642, training__micro_batch_is_2=448,
                  training__activation_checkpointing_is_true=670,
                  training__loss_chunk_is_2048=802)  # fmt: skip
    run["config"]["training"]["micro_batch"] = 32
    run["memory"] |= {"limit_bytes": 520 * MB, "counts_rss": True, "largest_micro_batch": 2}
    run["memory"]["recommended_mem_bytes"] = 1024 * MB
    samples = [sample(at, 400, limit=64 << 30) for at in range(20)]
    slurm = SlurmFacts("42", tuple(parse_sacct(rows)), "sacct", **polls)
    found = explained(tmp_path, slurm=slurm, samples=samples, run=run)
    assert (found.cause, typed(found)) == ("rss_polling", ["training.micro_batch=2", "--mem=1G"])
