"""The one name that a job unpickles. It becomes a small process that runs the snapshot's code."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import NoReturn

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
SEPARATOR = "|"


def start(word: str) -> NoReturn:
    """Run the task that `word` names: `STUDY_DIR|SUBMISSION_ID|ARRAY|TASK`.

    submitit has handlers for USR2 and TERM, numpy and a pickle: exec leaves all of it. Signals wait until the
    new process has its own handlers. Never returns, so that submitit writes no result.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        snapshot = snapshot_of(word)
        around = dict(os.environ)
        if snapshot is not None:
            paths = [snapshot, *filter(None, around.get("PYTHONPATH", "").split(os.pathsep))]
            around["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
        # -P: else the folder in which the job starts, mostly the checkout, comes before PYTHONPATH
        os.execve(sys.executable, [sys.executable, "-P", "-u", "-m", "slurm.in_job", word], around)
    except BaseException as error:
        print(f"error: {word}: this job cannot start its run: {error}", file=sys.stderr, flush=True)
        os._exit(2)


start.__module__ = "slurm.in_job.start"  # its name in pickles: copies of earlier code have no other


def snapshot_of(word: str) -> str | None:
    """The folder of code that the submission is to run with.

    Raises:
        UserError: the submission cannot be read.
    """
    from slurm.records.submissions import read_submission

    study, submission, _, _ = words_of(word)
    return read_submission(Path(study), submission).snapshot


def word_for(study: Path, submission: str, array: int, task: int) -> str:
    """The argument of `start` for a task. No pickle holds more."""
    return SEPARATOR.join([str(study.resolve()), submission, str(array), str(task)])


def words_of(word: str) -> tuple[str, str, int, int]:
    """(study, submission, array, task). Raises ValueError for another text."""
    parts = word.rsplit(SEPARATOR, 3)
    if len(parts) != 4 or not parts[0].startswith("/"):
        raise ValueError(f"{word!r}: expected STUDY_DIR|SUBMISSION_ID|ARRAY|TASK, with a whole path")
    return parts[0], parts[1], int(parts[2]), int(parts[3])


def setup_lines(snapshot: str | os.PathLike[str]) -> list[str]:
    """Lines of shell before srun: jobs import this package from the snapshot, wherever they start."""
    import shlex

    path = shlex.quote(os.fspath(snapshot))
    return [f'export PYTHONPATH={path}"${{PYTHONPATH:+:$PYTHONPATH}}"', "export PYTHONSAFEPATH=1"]
