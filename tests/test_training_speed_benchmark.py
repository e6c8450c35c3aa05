"""benchmarks/training_speed.py: first losses in what peers print, and the goals of its rows."""

from __future__ import annotations

import re

import pytest

from benchmarks.training_peers import LOOPS
from benchmarks.training_speed import CASES, FLOOR, NANO, OURS, TRAINER, goals, row


@pytest.mark.parametrize(
    ("name", "printed"),
    [
        (NANO, "iter 0: loss 10.8249, time 2310.52ms, mfu -100.00%"),
        (TRAINER, "{'loss': '10.8249', 'grad_norm': '1.2', 'learning_rate': '5e-05', 'epoch': '0.1'}"),
        (TRAINER, "{'loss': 10.8249, 'grad_norm': 1.2}"),
        ("litgpt pretrain", "Epoch 1 | iter 1 step 1 | loss train: 10.8249, val: n/a | iter time: 12.3 ms"),
    ],
)
def test_first_loss_is_found_in_what_a_peer_prints(name: str, printed: str) -> None:
    (pattern,) = {case.loss for case in CASES if case.name == name}
    found = re.search(pattern, f"parameters: 1.6M\n{printed}\n")
    assert found is not None
    assert float(found[1]) == 10.8249


def test_every_case_has_its_loop() -> None:
    assert {case.loop for case in CASES} == set(LOOPS)


def test_rows_and_goals() -> None:
    seconds = {OURS: 1.0, NANO: 3.0, TRAINER: 1.5, FLOOR: 0.8}
    peaks = {OURS: 400, NANO: 3400, TRAINER: 1200, FLOOR: 300}

    def steps(name: str, faster: float = 1) -> list[dict[str, float]]:
        step_s = seconds[name] / faster
        step = {"step_s": step_s, "cpu_s": 2 * step_s, "peak_bytes": peaks[name] << 20}
        return [step | {"torch_bytes": 200 << 20}] * 2

    reference = {OURS: steps(OURS), FLOOR: steps(FLOOR)}
    rows = [
        row(64, case, steps(case.name, 2 if case.is_tuned and case.needs else 1), reference, 10.9)
        for case in CASES
        if case.name in seconds
    ]
    met = {goal["what"]: (goal["measured"], goal["met"]) for goal in goals(rows)}
    assert met["64d: nanoGPT / ours, as installed"] == (3.0, True)
    assert met["64d: nanoGPT, tuned / ours"] == (1.5, True)
    assert met["64d: Hugging Face Trainer, tuned / ours"] == (0.75, False)
    assert met["64d: memory of ours / nanoGPT"] == (0.062, True)
    assert met["64d: memory of ours / Hugging Face Trainer"] == (0.2, False)
    assert met["64d: ours / the floor"] == (1.25, False)
    assert met["first losses, farthest from ln V"][1]
