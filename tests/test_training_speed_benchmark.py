"""benchmarks/training_speed.py: steps in turns of real processes, and what they are summed up to."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from benchmarks.training_parts import report
from benchmarks.training_parts.cases import (
    CASES,
    FLOOR,
    LITGPT,
    NANOGPT,
    OURS,
    TRAINER,
    Case,
    LeftOut,
    Running,
    start,
)
from benchmarks.training_peers.turns import Job


def job(folder: Path) -> Job:
    return Job(str(folder), "", 1, 1, 16, 300, 16, 2, 1)


@pytest.mark.slow
def test_processes_take_their_steps_when_they_are_told_to(tmp_path: Path) -> None:
    both = [start(Case(name, "floor.py"), job(tmp_path / name), PYTHON) for name in (OURS, FLOOR)]
    try:
        for _ in range(3):
            for one in both:
                one.found.append(one.step())
        rows = report.rows_of(32, both)
    finally:
        for one in both:
            one.end()
    assert [one.process.returncode for one in both] == [0, 0]
    ours, floor = rows
    assert ours["over_ours"] == floor["over_floor"] == 1.0
    assert ours["over_floor"] * floor["over_ours"] == pytest.approx(1.0, rel=0.5)
    assert 0 < ours["step_s"]["median"] < 1
    assert ours["torch_mb"] > 50
    assert 0 <= ours["above_torch_mb"] < 500


@pytest.mark.slow
def test_a_case_that_fails_is_told_by_its_last_words(tmp_path: Path) -> None:
    broken = Job(str(tmp_path), "", 1, 1, -16, 300, 16, 2, 1)
    with pytest.raises(LeftOut, match=r"exited with 1: .*negative dimension"):
        start(Case(FLOOR, "floor.py"), broken, PYTHON)


@pytest.mark.slow
def test_a_case_that_is_killed_while_it_waits_is_left_out(tmp_path: Path) -> None:
    one = start(Case(FLOOR, "floor.py"), job(tmp_path), PYTHON)
    one.process.kill()
    one.process.wait()
    with pytest.raises(LeftOut, match="exited with -9"):
        one.step()
    one.end()


@pytest.mark.parametrize(
    ("name", "printed"),
    [
        (NANOGPT, "iter 0: loss 10.8249, time 2310.52ms, mfu -100.00%"),
        (TRAINER, "{'loss': '10.8249', 'grad_norm': '1.2', 'learning_rate': '5e-05', 'epoch': '0.1'}"),
        (TRAINER, "{'loss': 10.8249, 'grad_norm': 1.2}"),
        (LITGPT, "Epoch 1 | iter 1 step 1 | loss train: 10.8249, val: n/a | iter time: 12.3 ms (step)"),
    ],
)
def test_the_first_loss_is_found_in_what_a_peer_prints(name: str, printed: str) -> None:

    (pattern,) = {case.loss for case in CASES if case.name == name}
    found = re.search(pattern, f"number of parameters: 1.6M\n{printed}\n")
    assert found is not None
    assert float(found[1]) == 10.8249


def told(step_s: float, peak_mb: int) -> list[dict[str, float]]:
    step = {"step_s": step_s, "cpu_s": 2 * step_s, "peak_bytes": peak_mb << 20, "torch_bytes": 200 << 20}
    return [step, step]


def test_goals_and_the_page_say_what_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = {OURS: 1.0, NANOGPT: 3.0, TRAINER: 1.5, LITGPT: 2.5, FLOOR: 0.8}
    peaks = {OURS: 400, NANOGPT: 3400, TRAINER: 1200, LITGPT: 3000, FLOOR: 300}
    running = []
    for case in CASES:
        if case.name in seconds:
            one = Running(case, None, tmp_path, lambda: 10.9)  # type: ignore[arg-type]
            one.found = told(
                seconds[case.name] / (2 if case.is_tuned and case.is_peer else 1), peaks[case.name]
            )
            running.append(one)
    rows = report.rows_of(64, running)
    met = {goal["what"]: (goal["measured"], goal["met"]) for goal in report.goals(rows)}
    assert met["64d: nanoGPT / ours, as installed"] == (3.0, True)
    assert met["64d: nanoGPT, tuned / ours"] == (1.5, True)
    assert met["64d: Hugging Face Trainer, tuned / ours"] == (0.75, False)
    assert met["64d: memory of ours / nanoGPT"] == (0.062, True)
    assert met["64d: memory of ours / Hugging Face Trainer"] == (0.2, False)
    assert met["64d: ours / the floor"] == (1.25, False)
    assert met["first losses, farthest from ln V"][1]

    found = report.result(True, 32, rows, {"litgpt pretrain": "no network"}, {"nanoGPT": "abc"})
    record = {"date": "2026-01-01", "machine": {"cpu": "x", "cores": 2}, "versions": VERSIONS, **found}
    monkeypatch.setattr(report, "read", lambda name: json.loads(json.dumps(record)))
    page = report.page()
    assert "**Provisional**" in page
    assert "| 64d | nanoGPT | as installed | 3.00 | 3.00 | 3.75 | 3,200 | 16.0 | 10.90 |" in page
    assert "Left out: litgpt pretrain: no network." in page
    assert len(report.figure(record).axes) == 2


VERSIONS = {"torch": "2", "python": "3"}
PYTHON = sys.executable
