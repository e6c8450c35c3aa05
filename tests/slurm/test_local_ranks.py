"""A run on two processes of this machine, each under its supervisor, started and stopped as one."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tiny_run import ROOT, make_run, metrics_without_clock, tiny_config

from training.attempt.run_files import read_status

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quick_start")]


def test_a_signal_stops_all_ranks_at_one_step(tmp_path: Path) -> None:
    config = tiny_config(tmp_path, max_steps=200_000, evals=1, checkpoint_every=100_000)
    repeated = dataclasses.replace(config.dataset, repeat=True)
    folder = make_run(dataclasses.replace(config, dataset=repeated))
    started = subprocess.Popen(
        [sys.executable, str(ROOT / "slurm" / "local_ranks.py"), str(folder), "--ranks", "2", "--quiet"]
    )
    until = time.monotonic() + 200
    while (read_status(folder).get("step") or 0) < 5 and started.poll() is None:
        assert time.monotonic() < until
        time.sleep(0.1)
    started.terminate()
    assert started.wait(timeout=100) == 1
    status = read_status(folder)
    assert status["state"] == "cancelled"
    (checkpoint,) = (folder / "checkpoints").glob("step-*")
    assert int(checkpoint.name[5:]) == status["step"] == int(metrics_without_clock(folder)[-1]["step"])
    outcomes = [json.loads((place / "outcome.json").read_text()) for place in (folder, folder / "rank1")]
    assert [(told["exit_code"], told["attempt"]) for told in outcomes] == [(1, 1), (1, 1)]
    assert "SIGTERM" in (folder / "log.rank1.txt").read_text()
    assert (folder / "rank1" / "memory.ring").is_file()
