"""Rules of `slurm.python` and `slurm.srun_args`: text that becomes part of a batch script."""

from __future__ import annotations

import re
import shlex

from conf.per_model_slurm import settle
from conf.schema import Config
from experiment_utils.errors import Problem

_NOT_ONE_COMMAND = re.compile(r"[\n;&|<>()`#]")
_OPTION = re.compile(r"--([a-z][a-z-]*)(=.*)?|-([a-zA-Z]).*", re.DOTALL)
_SET_BY = {
    "nodes": "slurm.nodes", "N": "slurm.nodes", "ntasks": "slurm.tasks_per_node", "n": "slurm.tasks_per_node",
    "ntasks-per-node": "slurm.tasks_per_node", "cpus-per-task": "slurm.cpus_per_task",
    "c": "slurm.cpus_per_task", "mem": "slurm.mem",
}  # fmt: skip
"""Arguments that have a key of their own. Others that Highwater sets (--output) come after the user's."""


def text_of_a_script(config: Config) -> list[Problem]:
    """`slurm.python` is one command, and `slurm.srun_args` are arguments that srun takes from its caller."""
    wanted = settle(config).slurm
    problems = []
    if wanted.python is not None and (what := _unlike_a_command(wanted.python)):
        problems.append(Problem("slurm.python", what, "not-one-command"))
    for argument in wanted.srun_args:
        if what := _unlike_an_argument(argument):
            problems.append(Problem("slurm.srun_args", what, "srun-argument"))
    return problems


def _unlike_a_command(text: str) -> str | None:
    """Return what is wrong with `slurm.python`."""
    if _words(text) and not _NOT_ONE_COMMAND.search(text):
        return None
    return (
        f"`{text}`: expected one command that starts Python, such as python, ~/venv/bin/python or "
        "`apptainer exec image.sif python`; other lines of shell go into slurm.setup"
    )


def _unlike_an_argument(text: str) -> str | None:
    """Return what is wrong with an item of `slurm.srun_args`."""
    words = _words(text)
    option = _OPTION.fullmatch(words[0]) if words and "\n" not in text else None
    if option is None:
        return f"`{text}`: expected an argument of srun such as --mpi=pmix"
    key = _SET_BY.get(option[1] or option[3])
    return f"{text}: has a key of its own, {key}" if key else None


def _words(text: str) -> list[str]:
    """Return the words of a line of shell; none if its quotes are not closed."""
    try:
        return shlex.split(text)
    except ValueError:
        return []
