"""A case as a job of a real Slurm (tests/local_slurm.py)."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.local_slurm import Cluster
from tests.memory.deaths.cases import Case
from tests.memory.deaths.harness import Ran, environment, judge, supervised

ENDED_S = 150.0
_NOT_YET = ("PENDING", "RUNNING", "COMPLETING", "SUSPENDED", "REQUEUED", "")


@dataclass
class Submitted:
    """A case under way as a job."""

    case: Case
    run: Path
    job: str
    begin_s: float


def submit(where: Cluster, case: Case, folder: Path) -> Submitted:
    """Hand it in. Of the case: `options` of sbatch, `script` with {run} for the supervised program."""
    scratch, run = folder / "scratch", folder / "run"
    scratch.mkdir(parents=True)
    run.mkdir()
    body = case.slurm.get("script", "srun {run}").replace("{run}", shlex.join(supervised(case, run)))
    exports = "\n".join(
        f"export {name}={shlex.quote(value)}"
        for name, value in environment(scratch, run).items()
        if name.startswith(("CASE_", "PYTHON"))
    )
    script = folder / "job.sh"
    script.write_text(f"#!/bin/bash\n{exports}\n{body}\n")
    options = [f"--mem={case.limit_mb}", "--time=5", *case.slurm.get("options", [])]
    output = [f"--output={run}/stdout.txt", f"--error={run}/stderr.txt", f"--chdir={folder}"]
    job = where.say("sbatch", "--parsable", f"--job-name={case.name}", *options, *output, str(script))
    return Submitted(case, run, job.split(";")[0], time.monotonic())


def interfere(where: Cluster, submitted: Submitted) -> None:
    """What the case wants done to its job from outside: a shell command with {job} and {node} in it."""
    command = submitted.case.slurm.get("then")
    if not command:
        return
    _until(
        lambda: (submitted.run.parent / "scratch" / "ready").exists(), f"{submitted.case.name} to be ready"
    )
    node = where.say("squeue", "-h", "-j", submitted.job, "-o", "%N")
    if command == "kill-node":
        where.script("kill-node", node)
    else:
        where.say("sh", "-c", command.format(job=submitted.job, node=node))


def result(where: Cluster, submitted: Submitted) -> Ran:
    """Wait for its end in sacct, then ask `explain`."""
    _until(lambda: where.state(submitted.job) not in _NOT_YET, f"the end of {submitted.case.name}")
    exit_code = where.say("sacct", "-n", "-X", "-P", "-j", submitted.job, "-o", "ExitCode").splitlines()[-1]
    status, _, signal_number = exit_code.partition(":")
    returncode = -int(signal_number) if int(signal_number or 0) else int(status)
    ran = Ran(submitted.case, submitted.run, returncode, time.monotonic() - submitted.begin_s)
    judge(ran, where.variables)
    return ran


def live_and_die(where: Cluster, case: Case, folder: Path) -> Ran:
    """The whole of a case: hand it in, do to it what it wants, wait, and explain."""
    submitted = submit(where, case, folder)
    interfere(where, submitted)
    return result(where, submitted)


def _until(done: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + ENDED_S
    while not done():
        if time.monotonic() > until:
            raise TimeoutError(f"waited {ENDED_S:.0f} s for {what}")
        time.sleep(0.3)
