"""A run that was stopped, and taken over meanwhile by a process on another host, writes nothing more."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny_run import ROOT, copy_of, make_run, outcome, run_here, tiny_config

from experiment_utils.exit_status import LEASE_LOST
from slurm.launch.processes import run_command
from training.attempt.run_files import read_run, read_status

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="starts a supervisor"),
    pytest.mark.usefixtures("quick_start"),
]


def wait_for(what: Callable[[], object]) -> None:
    until_s = time.monotonic() + 240
    while not what():
        assert time.monotonic() < until_s
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("lease_s", "stopped_s"), [(2.0, 3.0), pytest.param(60.0, 90.0, marks=pytest.mark.slow)]
)
def test_a_holder_that_was_stopped_writes_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lease_s: float, stopped_s: float
) -> None:
    config = tiny_config(tmp_path, max_steps=900, checkpoint_every=50)
    config = dataclasses.replace(config, dataset=dataclasses.replace(config.dataset, repeat=True))
    run = make_run(config)
    undisturbed = copy_of(config, tmp_path / "undisturbed")
    assert run_here(undisturbed, "--quiet").returncode == 0
    monkeypatch.setenv("HIGHWATER_LEASE_S", str(lease_s))
    first = subprocess.Popen(run_command(run, quiet=True), stderr=subprocess.PIPE, text=True)
    try:
        wait_for(lambda: (read_status(run).get("step") or 0) > 100)
        pid = read_status(run)["pid"]
        os.kill(pid, signal.SIGSTOP)
        stopped_at_s = time.monotonic()
        lock = run / "run.lock"
        lock.write_text(json.dumps(json.loads(lock.read_text()) | {"host": "another"}))
        second = subprocess.Popen([sys.executable, str(ROOT / "core.py"), str(run), "--quiet"])
        wait_for(lambda: read_status(run)["attempt"] == 2)
        time.sleep(max(0.0, stopped_at_s + stopped_s - time.monotonic()))
        os.kill(pid, signal.SIGCONT)
        _, said = first.communicate()
    finally:
        first.kill()  # a failure leaves its run stopped
    assert (first.returncode, second.wait()) == (LEASE_LOST, 0), said
    assert len([line for line in said.splitlines() if "error:" in line]) == 1
    assert read_run(run)["attempts"][1]["resumed_from_step"] >= 100
    assert not lock.exists()
    assert not (run / "outcome.json").exists(), "the supervisor beside the first"
    assert outcome(run) == outcome(undisturbed)
