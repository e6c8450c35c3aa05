"""`slurm.options`: any other option of sbatch, as it is typed, without those that Highwater sets.

Source: sbatch(1) of 25.11; an option that is not listed here is sbatch's to judge (`sbatch --test-only`).
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from typing import Any

from experiment_utils.errors import Problem

KEYS = {
    "partition": "slurm.partition", "account": "slurm.account", "qos": "slurm.qos",
    "constraint": "slurm.constraint", "mem": "slurm.mem", "time": "slurm.time", "nodes": "slurm.nodes",
    "ntasks-per-node": "slurm.tasks_per_node", "ntasks": "slurm.tasks_per_node", "cpus-per-task":
    "slurm.cpus_per_task", "requeue": "slurm.requeue", "no-requeue": "slurm.requeue", "signal":
    "slurm.signal_s", "mail-user": "notify", "mail-type": "notify",
}  # fmt: skip
"""Options that have a key of their own, of which there must be one place."""

OURS = {
    "array": "runs are put into arrays for you, slurm.parallel=N bounds how many run at a time",
    "job-name": "jobs are found by their names, study.name=NAME is a part of them",
    "output": "each run has its log in its folder: python -m slurm logs RUN",
    "error": "each run has its log in its folder: python -m slurm logs RUN",
    "input": "a run reads nothing",
    "open-mode": "logs are appended to",
    "wait": "wait=true waits",
    "wrap": "what runs is the study",
    "parsable": "job ids are read for you",
    "test-only": "plan=true submits nothing",
    "quiet": "what sbatch says is needed",
    "verbose": "what sbatch says is read",
    "chdir": "paths are relative to the folder that you submit from",
    "export": "a run needs the environment it was submitted from",
    "export-file": "a run needs the environment it was submitted from",
}
"""Options that would break what is built on them, and what does the thing instead."""

_LETTERS = {
    "A": "account", "C": "constraint", "D": "chdir", "G": "gpus", "J": "job-name", "L": "licenses",
    "M": "clusters", "N": "nodes", "O": "overcommit", "S": "core-spec", "W": "wait", "a": "array",
    "b": "begin", "c": "cpus-per-task", "d": "dependency", "e": "error", "i": "input", "m": "distribution",
    "n": "ntasks", "o": "output", "p": "partition", "q": "qos", "s": "oversubscribe", "t": "time",
    "w": "nodelist", "x": "exclude",
}  # fmt: skip

MEMORY_OTHERWISE = ("mem-per-cpu", "mem-per-gpu")
GPUS_OTHERWISE = ("gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket", "gres", "tres-per-task")


def read_options(lines: Iterable[str]) -> tuple[dict[str, Any], list[Problem]]:
    """Option, without dashes, to its value; True for one that has none. `-x n1` and `--exclude n1` too."""
    options: dict[str, Any] = {}
    problems: list[Problem] = []
    for line in lines:
        try:
            words = shlex.split(line)
        except ValueError as error:
            problems.append(Problem("slurm.options", f"cannot read `{line}`: {error}"))
            continue
        while words:
            name, value = _take(words)
            if name is None:
                what = f"expected options of sbatch such as --exclusive, got `{value}`"
                problems.append(Problem("slurm.options", what))
            elif (instead := _instead(name, value)) is not None:
                problems.append(Problem("slurm.options", f"--{name}: {instead}"))
            else:
                options[name] = value
    return options, problems


def _take(words: list[str]) -> tuple[str | None, Any]:
    """The next option and its value, off the words."""
    word = words.pop(0)
    if word.startswith("--") and len(word) > 2:
        name, has_value, value = word[2:].partition("=")
    elif word.startswith("-") and word[1:2] in _LETTERS:
        name, value = _LETTERS[word[1]], word[2:].removeprefix("=")
        has_value = value
    else:
        return None, word
    if not has_value and words and not words[0].startswith("-"):
        return name, words.pop(0)
    return name, value if has_value else True


def _instead(name: str, value: Any) -> str | None:
    if name in KEYS:
        typed = (
            KEYS[name]
            if value is True or KEYS[name] in ("notify", "slurm.requeue")
            else f"{KEYS[name]}={value}"
        )
        return f"has a key of its own: {typed}"
    return OURS.get(name)
