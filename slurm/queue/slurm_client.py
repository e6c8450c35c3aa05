"""Calls of Slurm's client commands, and the error if one does not answer."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence

from experiment_utils.errors import Problem, UserError
from memory.accounting.sacct import client_environment, lost_settings

TIMEOUT_S = 60.0


class NoAnswer(UserError):
    """A client command failed, or took too long."""

    code = "no-answer"


def need_slurm(
    where: str = "hydra/launcher: slurm", instead: str = "run it on this machine: hydra/launcher=local"
) -> None:
    """Check that this machine has Slurm's commands.

    Args:
        where: the key or option that asked for Slurm.
        instead: what can be typed here instead.

    Raises:
        UserError: a command is missing.
    """
    missing = [name for name in ("sbatch", "squeue", "srun", "scontrol") if shutil.which(name) is None]
    if missing:
        raise UserError(
            Problem(
                where,
                f"this machine has no {', '.join(missing)}, so nothing can be submitted from here. "
                f"Type it on a login node of the cluster, or {instead}",
            )
        )


def ask(command: Sequence[str], *, timeout_s: float = TIMEOUT_S) -> str:
    """Output of a command.

    Raises:
        NoAnswer: it failed, with its message.
    """
    environment = client_environment() | {"LC_ALL": "C"}
    wrong = lost_settings(environment)
    if wrong is not None and shutil.which(command[0]) is not None:
        raise NoAnswer(f"Slurm cannot be asked: {wrong}")
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            stdin=subprocess.DEVNULL,
            env=environment,
        )
    except FileNotFoundError as error:
        raise NoAnswer(f"Slurm cannot be asked: there is no {command[0]} on this machine") from error
    except subprocess.TimeoutExpired as error:
        raise NoAnswer(f"Slurm does not answer: {command[0]} took longer than {timeout_s:.0f} s") from error
    if done.returncode != 0:
        said = " ".join((done.stderr or done.stdout).split()) or f"exit status {done.returncode}"
        raise NoAnswer(f"Slurm does not answer: {command[0]}: {said}")
    return done.stdout
