"""Runs as jobs of a real Slurm, and waiting for what becomes of them."""

from __future__ import annotations

import getpass
import socket
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import experiment_utils
from conf import Config
from slurm.in_job.start import setup_lines, word_for
from slurm.in_job.starts import REQUEUED, Start, read_starts
from slurm.records import SLURM, Array, Place, Submission, add_place
from slurm.snapshot import take
from tests.local_slurm import Cluster
from tests.tiny_run import make_run

PATIENCE_S = 400.0
_OPEN = {"PENDING", "RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "REQUEUED", ""}


@dataclass
class Sent:
    """A run under way as a job. out: what the job wrote."""

    where: Cluster
    run: Path
    job: str
    out: Path

    @property
    def state(self) -> str:
        return self.where.row(self.job, "%T")

    @property
    def status(self) -> dict[str, Any]:
        return experiment_utils.read_status(self.run)

    @property
    def starts(self) -> list[Start]:
        return read_starts(self.run)

    def ends(self) -> list[tuple[str | None, str | None, str | None]]:
        return [(start.end, start.state, start.signal) for start in self.starts]

    def until(self, what: Callable[[], Any], why: str) -> None:
        """Wait for it; else say all that is known."""
        until_s = time.monotonic() + PATIENCE_S
        while not what():
            if time.monotonic() > until_s:
                raise AssertionError(f"waited {PATIENCE_S:.0f} s for {why}\n{self.told()}")
            time.sleep(0.3)

    def until_training(self, step: int = 1) -> None:
        self.until(lambda: (self.status.get("step") or 0) >= step, f"step {step}")

    def until_over(self) -> None:
        def is_over() -> bool:
            if self.state in _OPEN:
                return False
            return not self.starts or self.starts[-1].end != REQUEUED  # it is between two starts

        self.until(is_over, "the end of the job")

    def told(self) -> str:
        row = self.where.say("scontrol", "show", "job", self.job, check=False)
        files = [path for path in (self.out, self.run / "log.txt", self.run / "starts.json") if path.exists()]
        return "\n".join([row, str(self.status), *(f"--- {path}\n{path.read_text()}" for path in files)])


def send(
    where: Cluster, config: Config, *options: str, others: Sequence[Path] = (), how: str = "each"
) -> Sent:
    """Hand a run in with a script of the simplest kind. options: of sbatch. others: that share its job."""
    run = make_run(config).resolve()
    snapshot = take(config.runs_dir).path
    submission = Submission(
        id=f"s{time.time_ns()}", study=run.parent, launcher=SLURM, created_s=time.time(),
        user=getpass.getuser(), host=socket.gethostname(), cwd=str(run.parent), command="",
        arrays=[Array(0, run.name, [[run.name, *(one.name for one in others)]], how=how)],
        snapshot=str(snapshot),
    )  # fmt: skip
    for one in (run, *others):
        add_place(one, Place(submission.id, 0, 0))
    submission.write()
    word = word_for(run.parent, submission.id, 0, 0)
    start = "import sys; from slurm.in_job.start import start; start(sys.argv[1])"
    script = submission.folder / "job.sh"
    script.write_text(
        "\n".join(
            [
                "#!/bin/bash",
                *setup_lines(snapshot),
                f"exec srun --kill-on-bad-exit=1 --unbuffered {sys.executable} -u -c '{start}' '{word}'\n",
            ]
        )
    )
    out = submission.folder / "job.out"
    job = where.say(
        "sbatch", "--parsable", "--requeue", "--open-mode=append", f"--output={out}", "--mem=600M",
        "--cpus-per-task=1", *options, str(script),
    )  # fmt: skip
    return Sent(where, run, job, out)
