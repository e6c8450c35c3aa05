"""Leaks in stage records: by step, and as the run's own watch reported them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from evidence_builder import MB, killed, oom, outcome, record, sample, write

from memory.explain.evidence.growth import Leaking, leak_seen, reported_leaks
from memory.explain.evidence.run_facts import RunFacts
from memory.record.evidence import Evidence


def facts_of(folder: Path, **parts: Any) -> RunFacts:
    return RunFacts(Evidence(write(folder, **parts)))


def steps(amounts_mb: list[float]) -> list[dict[str, Any]]:
    """A record each 5 steps, and between them those of a stage that names none."""
    each = ((record("end", "train", at, mb, step=5 * at), record("end", "save", at, 1)) for at, mb in
            enumerate(amounts_mb))  # fmt: skip
    return [one for pair in each for one in pair]


def watched(**leaks: dict[str, Any]) -> list[dict[str, Any]]:
    """A record with the report of the run's own watch."""
    anon = leaks.pop("anon", {"is_leak": False})
    return [record("end", "train", 5, 900, step=300) | {"leak": anon | leaks}]


def leak(mb: float, *, since: int = 100) -> dict[str, Any]:
    return {"is_leak": True, "slope_bytes_per_step": int(mb * MB), "since_step": since}


@pytest.mark.parametrize(
    ("amounts_mb", "end", "rate"),
    [
        ([100 + 5 * at for at in range(160)], killed(**oom()), "1.0 MB a step"),
        ([100 + 0.5 * at for at in range(160)], outcome(), "102 KB a step"),
        ([100 + 0.5 * at for at in range(160)], killed(**oom()), None),
        ([900 - 800 * 0.98**at for at in range(160)], killed(**oom()), None),
        ([100 + 5 * at for at in range(8)], killed(**oom()), None),
    ],
    ids=["leak", "small and alive", "too small for the death", "levels off", "too few"],
)
def test_growth_by_step_is_a_leak(
    tmp_path: Path, amounts_mb: list[float], end: dict[str, Any], rate: str | None
) -> None:
    """Two samples say nothing of the pace."""
    samples = [sample(0, 100), sample(1, 900)]
    found = leak_seen(facts_of(tmp_path, outcome=end, records=steps(amounts_mb), samples=samples))
    assert (found and found.rate) == rate


@pytest.mark.parametrize(
    ("report", "end", "rate"),
    [
        ({"anon": leak(1)}, killed(**oom()), "1.0 MB a step"),
        ({"anon": leak(0.1)}, killed(**oom()), None),
        ({"shmem": leak(2)}, killed(**oom()), "2.0 MB of shared memory a step"),
        ({"anon": leak(0.1), "shmem": leak(2)}, killed(**oom()), "2.0 MB of shared memory a step"),
        ({"gpu": leak(9)}, killed(**oom()), None),
        ({"gpu": leak(9)}, outcome(exit_code=1), "9.0 MB of tensors on its GPU a step"),
        ({"shmem": leak(2) | {"is_leak": False}}, killed(**oom()), None),
    ],
)
def test_leak_reported_by_the_run(
    tmp_path: Path, report: dict[str, Any], end: dict[str, Any], rate: str | None
) -> None:
    found = leak_seen(facts_of(tmp_path, outcome=end, records=watched(**report)))
    assert (found and found.rate) == rate


def test_leak_on_the_gpu_is_known_whatever_killed_the_run(tmp_path: Path) -> None:
    found = reported_leaks(facts_of(tmp_path, outcome=killed(), records=watched(gpu=leak(9))))
    assert found["gpu"] == Leaking(found["gpu"].rate, found["gpu"].line, bytes=1800 * MB)
