"""Runs that end in a known way on a real Slurm, and what brings that end about."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import threading
import time
from pathlib import Path

from conf import Config
from conf.schema import Memory, Model, Slurm
from tests.slurm.real_jobs import Sent
from tests.tiny_run import tiny_config
from training.checkpoint.checkpoints import checkpoint_steps

CHECKPOINT_EVERY = 100
LONG = 1_500
"""Steps after whose first hundred a run goes on for a second: time for `wait_for_its_signal` to see it."""


def long_config(folder: Path, seed: int = 0, steps: int = LONG) -> Config:
    """A checkpoint each hundred steps, and nothing else that takes time."""
    config = tiny_config(folder, max_steps=steps, evals=2, checkpoint_every=CHECKPOINT_EVERY)
    repeating = dataclasses.replace(config.dataset, repeat=True)
    return dataclasses.replace(
        config,
        dataset=repeating,
        seed=seed,
        memory=Memory(every_steps=1000),
        slurm=Slurm(max_idle_attempts=50),  # on a busy machine a start may not come to its first step
    )


def large_config(folder: Path, seed: int = 0) -> Config:
    """Weights, gradients and moments of 800 MB."""
    model = Model(name="large", d_model=1024, n_layers=4, n_heads=8)
    return dataclasses.replace(
        tiny_config(folder, max_steps=3), seed=seed, model=model, memory=Memory(refuse=False, every_steps=11)
    )


def disk_filling_config(folder: Path, seed: int = 0) -> Config:
    """Whose first checkpoint is larger than the small disk of the cluster."""
    model = Model(name="m", d_model=512, n_layers=1, n_heads=4)
    return dataclasses.replace(
        tiny_config(folder), seed=seed, model=model, memory=Memory(refuse=False, every_steps=11)
    )


def stop_until_its_signal(job: Sent) -> None:
    """`wait_for_its_signal` beside the test."""
    threading.Thread(target=wait_for_its_signal, args=(job,), daemon=True).start()


def wait_for_its_signal(job: Sent) -> None:
    """Stop the run's process after a checkpoint, and let it go on when SIGUSR2 waits for it.

    The next start has time enough, on a slow machine too. One whose signal came before its hundredth step
    writes a checkpoint for that, and is about to end.
    """
    while (status := job.status).get("state") != "done":
        time.sleep(0.02)
        starts, steps = job.starts, checkpoint_steps(job.run / "checkpoints")
        if not starts or max(steps, default=0) <= starts[-1].step_before:
            continue
        if status.get("state") != "running":
            continue
        if max(steps) % CHECKPOINT_EVERY:
            job.where.say("scontrol", "update", f"JobId={job.job}", "TimeLimit=30")
            return
        with contextlib.suppress(OSError):  # it has ended: its signal came just now
            os.kill(status["pid"], signal.SIGSTOP)
            while not _waits_for(status["pid"], signal.SIGUSR2):
                time.sleep(0.1)
            job.where.say("scontrol", "update", f"JobId={job.job}", "TimeLimit=30")
            os.kill(status["pid"], signal.SIGCONT)
            return


def _waits_for(process: int, number: int) -> bool:
    """Whether the signal was sent to a process that does not run; proc_pid_status(5)."""
    lines = (line.split(":") for line in Path(f"/proc/{process}/status").read_text().splitlines())
    return any(int(value, 16) >> number - 1 & 1 for name, value in lines if name in ("SigPnd", "ShdPnd"))
