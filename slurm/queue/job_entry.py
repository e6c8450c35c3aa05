"""The word by which a job finds its run, and the check of the Python that the job runs.

A job imports this first, with whatever Python `slurm.python` names: it needs the standard library alone, and
no syntax that is newer than Python 3.6.
"""

import os
import shlex
import signal
import socket
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
SEPARATOR = "|"
LEAST_PYTHON = (3, 11)
OF_A_RUN = ("numpy", "orjson", "safetensors", "torch", "yaml")
"""Packages without which no run starts."""


def check_python(packages: "tuple[str, ...]" = OF_A_RUN) -> None:
    """End the process with one line of error if this Python is too old or lacks a package."""
    missing = [name for name in packages if find_spec(name) is None]
    if sys.version_info >= LEAST_PYTHON and not missing:
        return
    what = f"lacks {', '.join(missing)}"
    if sys.version_info < LEAST_PYTHON:
        what = "is Python {}.{}, older than {}.{}".format(*sys.version_info[:2], *LEAST_PYTHON)
    sys.exit(
        f"error: slurm.python: {sys.executable} on {socket.gethostname()} {what}. Activate an environment "
        "for Highwater in slurm.setup, or name its Python: slurm.python=PATH"
    )


def start(word: str) -> NoReturn:
    """Replace this process by one that runs `word` with the code of its submission.

    Signals that arrive meanwhile wait until the new process has its own handlers.

    Raises:
        UserError: the submission cannot be read.
    """
    from experiment_utils.modules import module_name
    from slurm.records.submissions import read_submission

    study, submission, _, _ = words_of(word)
    around, snapshot = dict(os.environ), read_submission(Path(study), submission).snapshot
    if snapshot is not None:
        around["PYTHONPATH"] = os.pathsep.join(filter(None, [snapshot, around.get("PYTHONPATH")]))
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    sys.stdout.flush()
    sys.stderr.flush()
    # -P: else the folder in which the job starts, mostly the checkout, comes before PYTHONPATH
    command = [sys.executable, "-P", "-u", "-m", module_name("slurm.in_job"), word]
    os.execve(sys.executable, command, around)


def word_for(study: Path, submission: str, array: int, task: "int | str") -> str:
    """Return `STUDY_DIR|SUBMISSION_ID|ARRAY|TASK`, the argument of a job's process."""
    return SEPARATOR.join([str(study.resolve()), submission, str(array), str(task)])


def words_of(word: str) -> "tuple[str, str, int, int]":
    """Return (study, submission, array, task) of such an argument. Raises ValueError for another text."""
    parts = word.rsplit(SEPARATOR, 3)
    if len(parts) != 4 or not parts[0].startswith("/"):
        raise ValueError(f"{word!r}: expected STUDY_DIR|SUBMISSION_ID|ARRAY|TASK, with a whole path")
    return parts[0], parts[1], int(parts[2]), int(parts[3])


def setup_lines(snapshot: "str | os.PathLike[str]") -> "list[str]":
    """Lines of shell by which a job imports this package from the snapshot, wherever it starts."""
    path = shlex.quote(os.fspath(snapshot))
    return [f'export PYTHONPATH={path}"${{PYTHONPATH:+:$PYTHONPATH}}"', "export PYTHONSAFEPATH=1"]
