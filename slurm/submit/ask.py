"""Questions to Slurm's client commands, and what is said when they do not answer."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence

from conf import Problem, UserError

TIMEOUT_S = 60.0


class NoAnswer(UserError):
    """A client command failed, or took too long."""


def need_slurm() -> None:
    """Raises UserError where this machine has no Slurm to submit to."""
    missing = [name for name in ("sbatch", "squeue", "srun", "scontrol") if shutil.which(name) is None]
    if missing:
        raise UserError(
            Problem(
                "hydra/launcher",
                f"slurm: this machine has no {', '.join(missing)}, so nothing can be submitted from here. "
                "Type it on a login node of the cluster, or run it on this machine: hydra/launcher=local",
            )
        )


def ask(command: Sequence[str], *, timeout_s: float = TIMEOUT_S) -> str:
    """What the command prints.

    Raises:
        NoAnswer: it failed; says what it said.
    """
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "LC_ALL": "C"},
        )
    except FileNotFoundError as error:
        raise NoAnswer(f"Slurm cannot be asked: there is no {command[0]} on this machine") from error
    except subprocess.TimeoutExpired as error:
        raise NoAnswer(f"Slurm does not answer: {command[0]} took longer than {timeout_s:.0f} s") from error
    if done.returncode != 0:
        said = " ".join((done.stderr or done.stdout).split()) or f"exit status {done.returncode}"
        raise NoAnswer(f"Slurm does not answer: {command[0]}: {said}")
    return done.stdout
