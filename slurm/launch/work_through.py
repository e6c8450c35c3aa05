"""One process that works through runs of this machine: the command itself, or one in the background.

Each run has a process of its own. The runs of a sweep are in a submission, whose launcher is the process that
works through it: `status` shows the runs that wait for their turn and whether that process is alive, and
`cancel` finds it. A single run has no submission: no run waits, and its own files say how it ended.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from conf import Config
from experiment_utils.lease import Periodic
from slurm.launch.outcome import Outcome, outcome_of
from slurm.launch.processes import Children, run_command
from slurm.plans.gpu_slots import gpu_slots
from slurm.plans.sweep_plans import plan_all
from slurm.records.submissions import STOPS_S, Submission, note_cancelled
from slurm.records.submitter_liveness import BEAT_S, beat
from training.attempt.begin import create_run
from training.attempt.run_files import read_status
from training.own_parts.facts import end_child


def run_one(config: Config, *, quiet: bool = False) -> Outcome:
    """Run one configuration in a child process and wait for it; signals are passed on to it.

    Raises:
        UserError: the run cannot be made of this configuration and its data; nothing was started.
    """
    (plan,) = plan_all([config], tokenize=True)
    assert plan.identity is not None
    outcomes: list[Outcome] = []
    work_through([[create_run(plan.config, plan.identity)]], 1, quiet=quiet, note=outcomes.append)
    return outcomes[0]


def work_through(
    units: Sequence[Sequence[Path]],
    jobs: int,
    submissions: Sequence[Submission] = (),
    *,
    quiet: bool,
    note: Callable[[Outcome], None],
) -> int | None:
    """Run units of run folders, `jobs` in parallel, in their order.

    Args:
        units: the runs of a unit of several run as one program, an ensemble.
        jobs: number of units in parallel.
        submissions: what these runs are in, with this process as launcher.
        quiet: the runs get no terminal.
        note: called with each outcome, as it comes.

    Returns:
        The signal that asked to stop, if one did: the running ones have stopped, the rest was not started.
    """

    def live() -> None:
        for submission in submissions:
            beat(submission)

    end_child()
    waiting, running = [*units], dict[int, tuple[Sequence[Path], list[dict[str, Any]]]]()
    slots = min(jobs, max(1, len(units)))
    live()
    with Periodic(BEAT_S, live), Children(slots, gpus=gpu_slots(slots)) as children:
        while running or (waiting and children.free):
            while waiting and children.free:
                unit = waiting.pop(0)
                before = [read_status(folder) for folder in unit]
                members = unit if len(unit) > 1 else ()
                child = children.start(run_command(unit[0], quiet=quiet, members=members), quiet=quiet)
                running[child.process.pid] = unit, before
            child = children.wait()
            unit, before = running.pop(child.process.pid)
            supervised, asked = unit[0] if len(unit) > 1 else None, children.requested is not None
            for folder, status in zip(unit, before, strict=True):
                note(outcome_of(folder, child, status, supervised, asked_to_stop=asked))
    if children.requested is not None:
        for submission in submissions:
            note_cancelled(submission, submission.arrays[0], time.time() - STOPS_S)
    return children.requested
