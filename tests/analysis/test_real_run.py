"""What a real run leaves is what this room reads."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_run import make_run, run_core, tiny_config

from analysis import read_run_folder, render_run, render_sweep
from training.metrics import COLUMNS


@pytest.mark.slow
def test_page_and_pictures_of_a_real_run(tmp_path: Path) -> None:
    folder = make_run(tiny_config(tmp_path))
    done = run_core(folder)
    assert done.returncode == 0, done.stderr
    run = read_run_folder(folder)
    assert tuple(run.metrics) == COLUMNS
    assert run.column("step") == list(range(1, 41))
    assert len(run.evals) == 4
    page = render_run(folder)
    assert run.damage == []
    for words in (
        "budget         2,560 tokens = 40 steps of 4 x 16",
        f"memory-mapped  {tmp_path / 'tiny.npy'}",
        "costs in RAM   +",
        "that of a bigram count model of the same train range",
        f"loss           {folder / 'loss.png'}",
        f"memory         {folder / 'memory.png'}",
    ):
        assert words in " ".join(page.split("\n  ")) or words in page
    stages = [
        line.split()[0]
        for line in page.split("Memory by stage")[1].split("Unreclaimable")[0].splitlines()[2:-1]
    ]
    assert stages == [
        "start", "load_tokenizer", "open_dataset", "build_model", "build_optimizer", "restore", "first_batch",
        "first_step", "train", "checkpoint", "evaluate", "finish",
    ]  # fmt: skip
    assert f"★ {folder.name}" in render_sweep([folder])
