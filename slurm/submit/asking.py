"""What the runs ask of the cluster, and everything that it says no to, before anything is submitted."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from conf import Config, Problem, UserError
from conf.by_model import settle
from conf.quantities import counted
from conf.schema import Slurm
from slurm.cluster import Cluster, Speeds, ask
from slurm.cluster.reach import unreachable
from slurm.cluster.refuse import problems
from slurm.cluster.sbatch_words import directives, is_unanswered, is_unreached, meaning, words
from slurm.submit.arrays import Asked
from slurm.submit.ask import TIMEOUT_S, NoAnswer
from slurm.submit.ask import ask as run_client
from slurm.submit.environment import environment

if TYPE_CHECKING:
    from training.plan import Plan

MAX_ARRAY_SIZE = 1001
"""Slurm's default of MaxArraySize (slurm.conf(5))."""
_PASSES_BY = ("down, drained or reserved", "nodes are busy", "inactive or drain")
"""What `sbatch --test-only` says of a cluster that cannot start the job now: it may wait all the same."""

_LATER = "Type the same command again in a minute; scontrol ping tells whether it is up"


@dataclass(frozen=True)
class Limits:
    """most_tasks: of one array. room: tasks that may still be submitted now; None: no limit is known."""

    most_tasks: int = MAX_ARRAY_SIZE
    room: int | None = None


def asked_of(plans: Sequence[Plan], cluster: Cluster) -> tuple[dict[str, Asked], Limits]:
    """What each run that is not done asks for, by its name, and what the cluster takes at most.

    Raises:
        UserError: every refusal, each once; by what the cluster has told of itself, and by `sbatch
            --test-only` for each class of resources.
    """
    speeds = Speeds()
    every: list[Asked] = []  # what a run is asked for with a second time too: it may be a mistake
    found = []
    for plan in plans:
        if plan.folder is None or plan.state == "done":
            continue
        one = ask(plan.config, plan, cluster, speeds)
        found.append((plan.config, one))
        slurm = settle(plan.config).slurm
        every.append(
            Asked(plan.folder.name, one.options, one.setup, slurm.parallel, slurm.pack, slurm.workers)
        )
    wrong = problems(found, cluster) + unreachable(plan for plan in plans if plan.state != "done")
    if wrong:
        raise UserError(*wrong)
    try_out(every)
    settled = [settle(plan.config).slurm for plan in plans]
    return {one.run: one for one in reversed(every)}, limits_of(settled, cluster)


def refusals(plans: Sequence[tuple[Config, Plan | None]], cluster: Cluster) -> list[Problem]:
    """What the cluster would say no to, also of runs of which there can be no plan."""
    speeds = Speeds()
    return problems([(config, ask(config, plan, cluster, speeds)) for config, plan in plans], cluster)


def limits_of(wanted: Iterable[Slurm], cluster: Cluster) -> Limits:
    """What the cluster takes at most of jobs that ask for these."""
    return Limits(cluster.max_array_size or MAX_ARRAY_SIZE, _room(wanted, cluster))


def has_room(plans: Sequence[Plan], cluster: Cluster) -> bool:
    """Whether one of these may be submitted now: more than the job at the end of the sweep would take."""
    config = plans[0].config
    room = limits_of([settle(config).slurm], cluster).room
    return room is None or room > (1 if config.then or config.notify else 0)


def try_out(every: Sequence[Asked]) -> None:
    """Ask `sbatch --test-only` about each class of resources.

    Raises:
        UserError: every refusal, with what asked for it.
        NoAnswer: slurmctld says nothing; nothing was submitted.
    """
    classes: dict[str, list[Asked]] = {}
    for one in every:
        classes.setdefault(one.resource_class, []).append(one)
    if not classes:
        return
    with ThreadPoolExecutor(min(8, len(classes))) as pool:
        said = pool.map(_test_only, [members[0] for members in classes.values()])
    refused = [
        Problem(why.where, f"{why.what} (asked for by {_some([one.run for one in members])})")
        for why, members in zip(said, classes.values(), strict=True)
        if why is not None
    ]
    if refused:
        raise UserError(*refused)


def _test_only(one: Asked) -> Problem | None:
    """What sbatch says against it; None where it would be taken. Raises NoAnswer."""
    nothing = "slurmctld did not answer, so nothing was submitted: sbatch --test-only"
    try:
        done = subprocess.run(
            ["sbatch", "--test-only"],
            input=f"#!/bin/bash\n{directives(one.options)}true\n",
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            env=environment(os.environ, one.options),
        )
    except subprocess.TimeoutExpired as error:
        raise NoAnswer(f"{nothing} took longer than {TIMEOUT_S:.0f} s. {_LATER}") from error
    said = " ".join(done.stderr.split())
    if done.returncode == 0 or any(passing in said for passing in _PASSES_BY):
        return None
    if is_unanswered(done.stderr, done.returncode) or is_unreached(done.stderr):
        raise NoAnswer(f"{nothing}: {words(done.stderr)}. {_LATER}")
    return meaning(done.stderr, one.options)


def _room(wanted: Iterable[Slurm], cluster: Cluster) -> int | None:
    """By MaxSubmitJobs, less what the user has in the queue."""
    places = {(slurm.account, slurm.qos) for slurm in wanted}
    limits = [cluster.submit_limit(account, qos) for account, qos in places]
    known = [limit for limit in limits if limit is not None]
    if not known:
        return None
    try:
        queued = run_client(["squeue", "--noheader", "--array", f"--user={cluster.user}", "--format=%i"])
    except NoAnswer:
        return None
    return max(0, min(known) - len(queued.splitlines()))


def _some(runs: Sequence[str]) -> str:
    return runs[0] + (f" and {counted(len(runs) - 1, 'more run')}" if len(runs) > 1 else "")
