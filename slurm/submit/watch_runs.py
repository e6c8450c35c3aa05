"""`wait=true`: watch the submitted runs until none of them is queued or running."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from experiment_utils.errors import UserError
from experiment_utils.quantities import counted, format_duration
from slurm.queue.slurm_client import NoAnswer
from slurm.records.submissions import last_place, typed_study
from slurm.submit.in_flight import BLOCKED, in_flight
from training.attempt.run_files import state_of

log = logging.getLogger("slurm")

POLL_S = 5.0
PATIENCE_S = 600.0


class WaitInterrupted(Exception):
    """Ctrl-C: the waiting ends, the jobs continue."""


def wait_for(study: Path, runs: Sequence[str]) -> None:
    """Return when no job or process will run or runs any of them; log a line whenever a state has changed.

    Raises:
        WaitInterrupted: Ctrl-C.
        NoAnswer: Slurm has not answered for ten minutes.
    """
    began = answered = time.monotonic()
    logged = ""
    try:
        while True:
            try:
                held = in_flight(study, runs)
                answered = time.monotonic()
            except NoAnswer:
                if time.monotonic() - answered > PATIENCE_S:
                    raise
            else:
                line = _line(study, runs, held)
                if line != logged:
                    log.info("%s after %s", line, format_duration(time.monotonic() - began))
                    logged = line
                if all(word == BLOCKED for word in held.values()):
                    return
            time.sleep(POLL_S)
    except KeyboardInterrupt as error:
        raise WaitInterrupted(f"How they go: python -m slurm status {typed_study(study)}") from error


def _line(study: Path, runs: Sequence[str], held: dict[str, str]) -> str:
    """Counts of states, as in `status`."""
    words = Counter(held.get(run) or state_of(study / run) or _not_begun(study / run) for run in runs)
    rest = ", ".join(f"{count} {word}" for word, count in words.most_common() if word != "done")
    return f"{words['done']} of {counted(words.total(), 'run')} done" + (f", {rest}" if rest else "")


def _not_begun(run: Path) -> str:
    """State of a run that no job or process holds and that has written no status."""
    try:
        place = last_place(run)
    except UserError:
        place = None
    return "cancelled" if place and place[1].cancelled_at(place[2]) is not None else "never_started"
