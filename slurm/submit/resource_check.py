"""What the runs ask of the cluster, and everything that it says no to, before anything is submitted."""

from __future__ import annotations

import logging
import os
import subprocess
import time
from collections import Counter
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

from conf import Config
from conf.composing.per_model_slurm import settle
from experiment_utils.errors import Problem, UserError
from experiment_utils.quantities import counted
from slurm.cluster import Cluster, Speeds, ask
from slurm.cluster.parse_outputs import FLAGS, NO_NODES
from slurm.cluster.reachability import unreachable
from slurm.cluster.rejections import problems
from slurm.cluster.sbatch_errors import directives, has_no_room, is_unanswered, is_unreached, meaning, words
from slurm.queue.arrays import Asked
from slurm.queue.environment import environment
from slurm.queue.queue_limits import Limits, Queue, Room, limits_of, queues_of_study
from slurm.queue.slurm_client import TIMEOUT_S, NoAnswer
from slurm.queue.slurm_client import ask as run_client

if TYPE_CHECKING:
    from training.plan.run_plan import Plan

log = logging.getLogger("slurm")

_PASSES_BY = (
    "down, drained or reserved",
    "nodes are busy",
    "inactive or drain",
)
"""What `sbatch --test-only` says of a cluster that cannot start the job now: it may wait all the same, as for
room in the queue (`has_no_room`), of which what is there already needs none.
"""

_NO_SUCH_NODE = "node configuration is not available"
_NODES_COME_S, _ASKED_AGAIN_S = 30.0, 0.5

_NOTHING = "slurmctld did not answer, so nothing was submitted: sbatch --test-only"
_LATER = "Type the same command again in a minute; scontrol ping tells whether it is up"


def asked_of(plans: Sequence[Plan], cluster: Cluster) -> tuple[dict[str, Asked], Limits]:
    """What each run that is to be submitted asks for, by its name, and what the cluster takes at most.

    Raises:
        UserError: every refusal, each once; by what the cluster has told of itself, and by `sbatch
            --test-only` for each class of resources; or that it never takes one (MaxSubmitJobs).
    """
    speeds = Speeds()
    every: list[Asked] = []  # what a run is asked for with a second time too: it may be a mistake
    found = []
    to_run = [plan for plan in plans if plan.state != "done" or plan.config.again]
    for plan in to_run:
        if plan.folder is None:
            continue
        one = ask(plan.config, plan, cluster, speeds)
        found.append((plan.config, one))
        slurm = settle(plan.config).slurm
        every.append(
            Asked(plan.folder.name, one.options, one.setup, slurm.parallel, slurm.pack, slurm.workers)
        )
    wrong = problems(found, cluster) + unreachable(to_run)
    if wrong:
        raise UserError(*wrong)
    queues, ends = {one.queue for one in every}, _ends(plans)
    limits = try_out(every, limits_of([*queues, *ends], cluster), 1 if ends else 0)
    _check_queue(queues, ends, cluster)
    return {one.run: one for one in reversed(every)}, limits


def refusals(plans: Sequence[tuple[Config, Plan | None]], cluster: Cluster) -> list[Problem]:
    """What the cluster would say no to, also of runs of which there can be no plan."""
    speeds = Speeds()
    return problems([(config, ask(config, plan, cluster, speeds)) for config, plan in plans], cluster)


def has_room(plans: Sequence[Plan], cluster: Cluster) -> bool:
    """Whether one of these may be submitted now; the last one beside the job at the end of the sweep."""
    queues, ends = {Queue.wanted(settle(plan.config).slurm) for plan in plans}, _ends(plans)
    limits = limits_of([*queues, *ends], cluster)
    if len(plans) > 1:
        ends = set()
    return any(limits.takes({queue: 1}, queue) and limits.takes_the_end({queue: 1}, ends) for queue in queues)


def try_out(every: Sequence[Asked], limits: Limits, after: int) -> Limits:
    """Ask `sbatch --test-only` about each class of resources, as the arrays that are to be submitted. after:
    jobs at the end of them.

    Returns the limits, with less room where it knows of one that nobody else tells: of a group, in which jobs
    of others count too (GrpSubmitJobs), or of the whole cluster (MaxJobCount).

    Raises:
        UserError: every refusal, with what asked for it.
        NoAnswer: slurmctld says nothing; nothing was submitted.
    """
    classes: dict[str, list[Asked]] = {}
    for one in every:
        classes.setdefault(one.resource_class, []).append(one)
    if not classes:
        return limits
    tasks: Counter[Queue] = Counter()  # a limit counts those of all classes that go to the same queue
    for first, *others in classes.values():
        tasks[first.queue] += first.workers or -(-(1 + len(others)) // first.pack)

    def wanted(queue: Queue) -> int:
        room = limits.room(queue)
        most = limits.most_tasks if room is None else max(1, min(limits.most_tasks, room))
        return min(most, tasks[queue] + after)

    with ThreadPoolExecutor(min(8, len(classes))) as pool:
        rooms = pool.map(lambda members: _room_for(members[0], wanted(members[0].queue)), classes.values())
        said = list(zip(rooms, classes.values(), strict=True))
    refused = [
        Problem(
            why.where, f"{why.what} (asked for by {_some(list(dict.fromkeys(one.run for one in members)))})"
        )
        for why, members in said
        if isinstance(why, Problem)
    ]
    if refused:
        raise UserError(*refused)
    less = tuple(
        Room(room, frozenset([members[0].queue]))
        for room, members in said
        if isinstance(room, int) and room < wanted(members[0].queue)
    )
    return replace(limits, rooms=limits.rooms + less)


def _room_for(one: Asked, tasks: int) -> Problem | int:
    """Tasks of an array of so many that sbatch would take now; or what it says against any number of them."""
    taken, too_many, asked = 0, tasks + 1, tasks
    while taken + 1 < too_many:
        said = _test_only(one, asked)
        if isinstance(said, Problem):
            return said
        taken, too_many = (asked, too_many) if said else (taken, asked)
        asked = (taken + too_many) // 2
    return taken


def _test_only(one: Asked, tasks: int) -> Problem | bool:
    """What sbatch says against it; else whether the queue has room for so many tasks of it.

    A slurmctld that has just started knows nothing of its nodes for some seconds, and says of each job that
    no node has what it asks for: then it is asked again.

    Raises:
        NoAnswer: slurmctld says nothing.
    """
    until_s, are_known = time.monotonic() + _NODES_COME_S, False
    while True:
        done = _say(one, tasks)
        said = " ".join(done.stderr.split())
        if done.returncode == 0 or any(passing in said for passing in _PASSES_BY):
            return True
        if has_no_room(said):
            return False
        if is_unanswered(done.stderr, done.returncode) or is_unreached(done.stderr):
            raise NoAnswer(f"{_NOTHING}: {words(done.stderr)}. {_LATER}")
        refused = meaning(done.stderr, one.options)
        if _NO_SUCH_NODE not in said:
            return refused
        states = _node_states(one.options.get("partition"))
        away = [state for state in states if state in NO_NODES and state != "unk"]
        if away:  # sbatch itself takes the job, or refuses what no node has, drained or not
            log.warning(
                "no node that is up can run %s; others are %s: its job waits for them (sinfo -R)",
                one.run,
                ", ".join(away),
            )
            return True
        if are_known:
            return refused
        are_known = "unk" not in states  # since a moment, maybe: that answer may be of before
        if not are_known:
            if time.monotonic() > until_s:
                return Problem(
                    refused.where, f"{refused.what}. slurmctld has no word of its nodes yet: sinfo"
                )
            time.sleep(_ASKED_AGAIN_S)


def _say(one: Asked, tasks: int) -> subprocess.CompletedProcess[str]:
    """Raises NoAnswer."""
    options = one.options | ({"array": f"0-{tasks - 1}"} if tasks > 1 else {})
    try:
        return subprocess.run(
            ["sbatch", "--test-only"],
            input=f"#!/bin/bash\n{directives(options)}true\n",
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            env=environment(os.environ, one.options),
        )
    except subprocess.TimeoutExpired as error:
        raise NoAnswer(f"{_NOTHING} took longer than {TIMEOUT_S:.0f} s. {_LATER}") from error


def _node_states(partition: str | None) -> list[str]:
    """States of the nodes of a partition (None: of all), each once, without sinfo's flags; empty if sinfo
    does not answer. `unk`: slurmctld waits for the first word of a node.
    """
    where = [f"--partition={partition}"] if partition else []
    try:
        answer = run_client(["sinfo", "--all", "--noheader", *where, "--format=%t"])
    except NoAnswer:
        return []
    return list(dict.fromkeys(state.rstrip(FLAGS) for state in answer.split()))


def _ends(plans: Sequence[Plan]) -> set[Queue]:
    """Where the job at the end of the sweep may go; none where none is to come."""
    wanting = [plan for plan in plans if plan.config.then or plan.config.notify]
    studies = {plan.folder.parent for plan in wanting if plan.folder is not None}
    of_plans = {Queue.wanted(settle(plan.config).slurm) for plan in wanting}
    return of_plans.union(*(queues_of_study(study) for study in studies))


def _check_queue(queues: Collection[Queue], ends: Collection[Queue], cluster: Cluster) -> None:
    """Raises UserError: not even an empty queue has room for a run. ends: of `_ends`."""
    limits = {queue: cluster.submit_limit(*queue) for queue in (*queues, *ends)}
    # beside a run there is room for the job at the end where any number is taken, or two
    after = 1 if ends and all(limits[end] in (0, 1) for end in ends) else 0
    for queue in queues:
        most = limits[queue]
        if most is None or most > after:
            continue
        more = ", of which then= or notify= takes one" if after else ""
        where = f" of {queue}" if len(queues) > 1 else ""
        what = f"the cluster lets you have {counted(most, 'job')} in its queue{where} (MaxSubmitJobs){more}"
        raise UserError(
            Problem("slurm.account", f"{what}: no run would ever be taken. Another account or qos?")
        )


def _some(runs: Sequence[str]) -> str:
    return runs[0] + (f" and {counted(len(runs) - 1, 'more run')}" if len(runs) > 1 else "")
