"""What a real run leaves is what this room reads."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_run import make_run, run_core, tiny_config

from analysis.summary import render_run, render_sweep
from experiment_utils.run_folder import RunFolder
from training.report.metrics import COLUMNS


@pytest.mark.slow
def test_page_and_pictures_of_a_real_run(tmp_path: Path) -> None:
    folder = make_run(tiny_config(tmp_path))
    done = run_core(folder)
    assert done.returncode == 0, done.stderr
    run = RunFolder(folder)
    assert tuple(run.metrics) == COLUMNS
    assert run.column("step") == list(range(1, 41))
    assert len(run.evals) == 4
    page = render_run(folder)
    assert run.damage == []
    for fact in (f"{tmp_path / 'tiny.npy'}", f"{folder}/", "loss.png", "memory.png"):
        assert fact in page
    assert f"★ {folder.name}" in render_sweep([folder])
