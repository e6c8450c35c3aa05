"""benchmarks/gpu: its goals are judged by numbers, and its checks still run where there is no GPU."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu.run import CHECKS, NO_TIME, Check
from benchmarks.gpu.summary import goals, summary


def report(**checks: dict[str, Any]) -> dict[str, Any]:
    return {
        "device": "cuda",
        "commit": "0" * 40,
        "seconds": 1,
        "checks": {name: {"exit": 0, "found": found} for name, found in checks.items()},
    }


def met(report: dict[str, Any]) -> dict[str, bool | None]:
    return {goal.name: goal.is_met for goal in goals(report)}


def times(**ms: float) -> dict[str, Any]:
    names = {"product": "product", "plain": "plain loop", "graph": "plain loop, one CUDA graph"}
    return {names[name]: {"ms": value} for name, value in ms.items()}


def test_nothing_measured_meets_no_goal() -> None:
    assert set(met(report()).values()) == {None}


def test_goals_of_speed() -> None:
    fast = report(speed_32d={"ms": times(product=1.0, plain=2.0, graph=0.87), "syncs": {"product": {}}})
    slow = report(speed_32d={"ms": times(product=1.1, plain=2.1, graph=0.93), "syncs": {"product": {"a": 1}}})
    names = (
        "32d, speed / plain loop",
        "32d, speed / plain loop, one CUDA graph",
        "32d, synchronizations in a step",
    )
    assert [met(fast)[name] for name in names] == [True, True, True]
    assert [met(slow)[name] for name in names] == [False, False, False]


@pytest.mark.parametrize(("estimate", "is_met"), [(94, False), (95, True), (115, True), (116, False)])
@pytest.mark.parametrize(
    ("kind", "amount", "measured"), [("host", "own_bytes", "host_mib"), ("GPU", "gpu_bytes", "driver_mib")]
)
def test_goal_of_memory_is_from_5_percent_below_to_15_above(
    kind: str, amount: str, measured: str, estimate: int, is_met: bool
) -> None:
    found = {"32d": {"estimate_mib": {amount: estimate}, measured: 100, "gpu_mib": {"train": [60, 70]}}}
    assert met(report(run_speed=found))[f"32d, {kind} memory estimated / measured"] is is_met


def test_goals_of_runs() -> None:
    found = report(
        run_ensembles={"alone": {"speedup": 4.9}},
        run_resume={"deterministic": {"has_same_bits": True}},
        run_harness={"share": {"overhead": 0.02}},
    )
    assert [is_met for is_met in met(found).values() if is_met is not None] == [False, True, False]


def test_summary_names_failed_checks_and_wrong_results() -> None:
    found = report(architectures={"lstm": {"is_right": False}, "moe": {"is_right": True}})
    found["checks"]["loss"] = {"exit": "timeout", "found": None}
    lines = summary(found).splitlines()
    assert ["WRONG:", "lstm"] in [line.split() for line in lines]
    assert lines[-1].endswith("{'loss': 'timeout'}")


@pytest.mark.parametrize(
    "check", [check for check in CHECKS if check.function != "pytest"], ids=lambda c: c.name
)
def test_each_check_has_its_function(check: Check) -> None:
    module, _, function = check.function.partition(".")
    assert callable(getattr(importlib.import_module(f"benchmarks.gpu.{module}"), function))


def call(root: Path, out: Path, **settings: str) -> dict[str, Any]:
    environ = {
        **os.environ,
        "KIT_CPU": "1",
        "KIT_PYTHON": sys.executable,
        "OUT": str(out),
        "OMP_NUM_THREADS": "1",
    }
    command = ["bash", str(root / "benchmarks/gpu/run.sh")]
    subprocess.run(command, env=environ | settings, check=True, capture_output=True, timeout=500)
    found: dict[str, Any] = json.loads((out / "report.json").read_text())
    return found


@pytest.mark.slow
def test_checks_run_without_a_gpu(root: Path, tmp_path: Path) -> None:
    late = call(root, tmp_path, KIT_ONLY="speed", KIT_BUDGET_S="1")
    assert late["checks"]["speed_32d"]["exit"] == NO_TIME
    found = call(root, tmp_path, KIT_ONLY="speed,run_harness")["checks"]
    assert {name: check["exit"] for name, check in found.items()} == {"speed_32d": 0, "run_harness": 0}
    assert found["speed_32d"]["found"]["ms"]["product"]["ms"] > 0
    assert found["run_harness"]["found"]["run 0"]["exit"] == 0
    assert found["run_harness"]["found"]["share"]["run_ms"] > 0
    kept = call(root, tmp_path, KIT_ONLY="machine")["checks"]
    assert kept["speed_32d"] == found["speed_32d"]
    assert kept["machine"]["exit"] == 0
