"""How far and how fast: out of a metrics.csv, wherever its tail begins."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiment_utils.metrics_file import _TAIL_BYTES
from slurm.status.run_state import read_progress

MB = 1 << 20
HEADER = "step,tokens,train_loss,seconds,tokens_per_s\n"


def rows(count: int) -> str:
    """Of 100 tokens and a tenth of a second each."""
    return "".join(f"{n},{n * 100},{7 - n / 1e4:.4f},{n / 10:.1f},1000\n" for n in range(1, count + 1))


def test_the_pace_wherever_the_tail_begins(tmp_path: Path) -> None:
    """A tail that begins within a step's digits begins with a row that looks whole."""
    text, path = rows(1200), tmp_path / "metrics.csv"
    for cut in range(_TAIL_BYTES * 2, _TAIL_BYTES * 2 + 80):
        path.write_text(HEADER + text[:cut])
        found = read_progress(tmp_path, {"step": 400, "total_steps": 1400}, {})
        assert found.seconds_per_step == pytest.approx(0.1), cut
        assert found.eta_s == pytest.approx(100), cut


def test_the_pace_of_a_few_rows(tmp_path: Path) -> None:
    """None of them is left out."""
    (tmp_path / "metrics.csv").write_text(HEADER + rows(2))
    assert read_progress(tmp_path, {}, {}).seconds_per_step == pytest.approx(0.1)
