"""`wait=true`: how the submitted runs go, until none is queued or running any more."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from experiment_utils.errors import UserError
from experiment_utils.quantities import counted, format_duration
from slurm.queue.slurm_client import NoAnswer
from slurm.records.submissions import last_place, typed_study
from slurm.submit.in_flight import in_flight
from training.attempt.run_files import state_of

log = logging.getLogger("slurm")

POLL_S = 5.0
ROOM_POLL_S = 60.0  # the user's other studies leave places too, of which no run of these tells
PATIENCE_S = 600.0


class WaitInterrupted(Exception):
    """Ctrl-C: the waiting ends, the jobs go on."""


def wait_for(
    study: Path,
    runs: Sequence[str],
    has_room: Callable[[], bool] | None = None,
    waiting: Sequence[str] = (),
) -> bool:
    """Return True when no queue and no process holds any of the runs. A line whenever something has changed.

    has_room: given where more are to be submitted, `waiting` or runs of another study; asked when one has
    ended, and once a minute, it returns False as soon as that is so.

    Raises:
        WaitInterrupted: Ctrl-C.
        NoAnswer: Slurm has not answered for ten minutes.
    """
    began = time.monotonic()
    heard = asked_s = began
    told, before = "", -1
    try:
        while True:
            try:
                held = in_flight(study, runs)
                heard = time.monotonic()
            except NoAnswer:
                if time.monotonic() - heard > PATIENCE_S:
                    raise
                time.sleep(POLL_S)
                continue
            line = _line(study, runs, held, waiting)
            if runs and line != told:  # none yet, where all of them wait for room in the queue
                log.info("%s after %s", line, format_duration(time.monotonic() - began))
                told = line
            if not held and (has_room is None or not waiting):
                return True
            is_due = len(held) < before or not held or time.monotonic() - asked_s >= ROOM_POLL_S
            if has_room is not None and is_due:
                if has_room():
                    return False
                asked_s = time.monotonic()
            before = len(held)
            time.sleep(POLL_S)
    except KeyboardInterrupt as error:
        raise WaitInterrupted(f"How they go: python -m slurm status {typed_study(study)}") from error


def _line(study: Path, runs: Sequence[str], held: dict[str, str], waiting: Sequence[str] = ()) -> str:
    """Counted as `status` counts them, what waits for room too."""

    def word(run: str) -> str:
        return held.get(run) or state_of(study / run) or _not_begun(study / run)

    words = Counter([*map(word, runs), *(_not_begun(study / run, "queued") for run in waiting)])
    rest = ", ".join(f"{count} {word}" for word, count in words.most_common() if word != "done")
    return f"{words['done']} of {counted(words.total(), 'run')} done" + (f", {rest}" if rest else "")


def _not_begun(run: Path, word: str = "never_started") -> str:
    """Of one that nothing holds, and that has never said a word: so, if nobody has cancelled it."""
    try:
        place = last_place(run)
    except UserError:
        place = None
    return "cancelled" if place and place[1].cancelled_at(place[2]) is not None else word
