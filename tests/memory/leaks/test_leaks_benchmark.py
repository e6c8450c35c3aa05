"""benchmarks/memory_leaks.py: its traces, methods and result."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.harness import ROOT
from benchmarks.memory_leaks import METHODS, RUN, line_p, measure, result
from benchmarks.pictures import memory_leaks
from memory.leaks.detector import upper_tail
from tests.memory.leaks.leak_traces import CLEAN, MB, OTHERS, clean, leaking


def test_the_lines_p_is_that_of_least_squares() -> None:
    values = [1.0, 3.0, 2.0, 5.0, 4.0, 6.0, 5.0, 8.0]
    (slope, _), covariance = np.polyfit(np.arange(8), values, 1, cov=True)
    assert line_p(values) == pytest.approx(upper_tail(slope / covariance[0, 0] ** 0.5, 6))
    assert line_p(values[::-1]) == pytest.approx(1 - line_p(values))
    assert (line_p([1.0, 2.0, 3.0, 4.0]), line_p([5.0] * 9), line_p([1.0])) == (0.0, 1.0, 1.0)


@pytest.mark.parametrize("kind", CLEAN | OTHERS)
def test_traces_are_amounts_of_memory_and_always_the_same(kind: str) -> None:
    values = clean(kind, 3, 300)
    assert values == clean(kind, 3, 300) != clean(kind, 4, 300)
    assert all(value >= 0 and value % 4096 == 0 for value in values)
    assert leaking(kind, 3, 300, MB, 200)[:201] == values[:201]
    assert leaking(kind, 3, 300, MB, 200)[299] == values[299] + 99 * MB


def test_every_method_finds_a_plain_leak_and_leaves_silence_alone() -> None:
    found = measure([[500 * MB] * 400], METHODS)
    for name, one in found.items():
        assert one["false_alarms"] == 0, name
        assert one["leak_found"] == one["late_leak_found"] == 1, name
    assert found[next(iter(METHODS))]["leak_median_steps"] == 140


@pytest.mark.slow
def test_the_real_runs_give_anon_and_rss_of_each_step(tmp_path: Path) -> None:
    np.arange(1000, dtype=np.uint16).tofile(tmp_path / "tokens.bin")
    command = [sys.executable, "-c", RUN, "1", "4", str(ROOT), str(tmp_path / "tokens.bin")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    amounts = json.loads(done.stdout)
    assert len(amounts) == 4
    assert all(0 < anon < rss for anon, rss in amounts)


def test_result_makes_a_picture(tmp_path: Path) -> None:
    found = result(traces=1, real=0, steps=160, real_steps=160)
    memory_leaks(found).savefig(tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 10_000
    assert found["simulated"][next(iter(METHODS))]["traces"] == len(CLEAN)
    assert set(found["others_by_kind"]) == set(OTHERS)
