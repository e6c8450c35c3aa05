"""Runs as jobs of a real Slurm, and waiting for what becomes of them."""

from __future__ import annotations

import getpass
import socket
import sys
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from conf import Config
from slurm.launch.code_snapshot import take
from slurm.queue.job_entry import setup_lines, word_for
from slurm.records.start_records import REQUEUED, Start, read_starts
from slurm.records.submissions import SLURM, Array, Place, Submission, add_place
from slurm.status import RunState, study_states
from tests.local_slurm import Cluster
from tests.tiny_run import make_run
from training.attempt.run_files import read_status

PATIENCE_S = 400.0
SOON_S = 120.0
"""Until `status` tells what has happened: a heartbeat that stands still is waited for."""
GOES_ON = ("queued", "running")
"""What may be told of a run that goes on by itself, at any moment."""
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
        return read_status(self.run)

    @property
    def starts(self) -> list[Start]:
        return read_starts(self.run)

    def ends(self) -> list[tuple[str | None, str | None, str | None]]:
        return [(start.end, start.state, start.signal) for start in self.starts]

    @property
    def entry(self) -> RunState:
        """What `python -m slurm status` tells of it; the clients of the cluster must be this process's."""
        return study_states(self.run.parent, folders=[self.run])[0]

    def until(self, what: Callable[[], Any], why: str, *, meanwhile: Collection[str] = ()) -> None:
        """Wait for it; else say all that is known. meanwhile: states, of which one must be told all along."""
        until_s = time.monotonic() + PATIENCE_S
        while not what():
            if time.monotonic() > until_s:
                raise AssertionError(f"waited {PATIENCE_S:.0f} s for {why}\n{self.told()}")
            if meanwhile and (entry := self.entry).state not in meanwhile:
                raise AssertionError(f"while waiting for {why}: {entry}\n{self.told()}")
            time.sleep(0.3)

    def until_told(self, state: str, name: str = "") -> None:
        """Wait until `status` shows this state, and this host or user in its reason."""
        until_s = time.monotonic() + SOON_S
        while (entry := self.entry).state != state:
            assert time.monotonic() < until_s, f"waited for {state}: {entry}\n{self.told()}"
            time.sleep(0.3)
        assert name in (entry.reason or ""), f"{entry}\n{self.told()}"

    def until_training(self, step: int = 1) -> None:
        self.until(lambda: (self.status.get("step") or 0) >= step, f"step {step}")

    def until_over(self) -> None:
        def is_over() -> bool:
            if self.state in _OPEN:
                return False
            return not self.starts or self.starts[-1].end != REQUEUED  # it is between two starts

        self.until(is_over, "the end of the job")

    def told(self) -> str:
        """All that Slurm and the run's own files say."""
        row = self.where.say("scontrol", "show", "job", self.job, check=False)
        names = ("log.txt", "starts.json", "outcome.json")
        files = [path for path in (self.out, *(self.run / name for name in names)) if path.exists()]
        return "\n".join([row, str(self.status), *(f"--- {path}\n{path.read_text()}" for path in files)])


def send(
    where: Cluster,
    config: Config,
    *options: str,
    others: Sequence[Path] = (),
    how: str = "each",
    slots: int = 1,
) -> Sent:
    """Hand a run in with a script of the simplest kind. options: of sbatch. others: that share its job."""
    run = make_run(config).resolve()
    snapshot = take(config.runs_dir).path
    number = f"s{time.time_ns()}"
    array = Array(
        0, f"{run.name}-{number}", [[run.name, *(one.name for one in others)]], how=how, slots=slots
    )
    submission = Submission(
        id=number, study=run.parent, launcher=SLURM, created_s=time.time(), user=getpass.getuser(),
        host=socket.gethostname(), cwd=str(run.parent), command="", arrays=[array], snapshot=str(snapshot),
    )  # fmt: skip
    for one in (run, *others):
        add_place(one, Place(submission.id, 0, 0))
    submission.write()
    word = word_for(run.parent, submission.id, 0, 0)
    start = "import sys; from slurm.queue.job_entry import start; start(sys.argv[1])"
    script = submission.folder / "job.sh"
    script.write_text(
        "\n".join(
            [
                "#!/bin/bash",
                *setup_lines(snapshot),
                f"exec srun --kill-on-bad-exit=1 {sys.executable} -u -c '{start}' '{word}'\n",
            ]
        )
    )
    out = submission.folder / "job.out"
    job = where.say(
        "sbatch", "--parsable", "--requeue", "--open-mode=append", f"--output={out}", "--mem=600M",
        "--cpus-per-task=1", f"--job-name={array.name}", *options, str(script),
    )  # fmt: skip
    replace(submission, arrays=[replace(array, job_id=job)]).write()
    return Sent(where, run, job, out)
