"""What the runs ask of the cluster, and everything that it says no to, before anything is submitted."""

from __future__ import annotations

import logging
import os
import subprocess
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from conf import Config
from conf.by_model import settle
from experiment_utils.errors import Problem, UserError
from experiment_utils.quantities import counted
from slurm.cluster import Cluster, Speeds, ask
from slurm.cluster.parse_outputs import FLAGS, NO_NODES
from slurm.cluster.reachability import unreachable
from slurm.cluster.rejections import problems
from slurm.cluster.sbatch_errors import directives, has_no_room, is_unanswered, is_unreached, meaning, words
from slurm.queue.arrays import Asked
from slurm.queue.environment import environment
from slurm.queue.slurm_client import TIMEOUT_S, NoAnswer
from slurm.queue.slurm_client import ask as run_client

if TYPE_CHECKING:
    from training.plan import Plan

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


def asked_of(plans: Sequence[Plan], cluster: Cluster) -> dict[str, Asked]:
    """What each run that is to be submitted asks for, by its name.

    Raises:
        UserError: every refusal, each once; by what the cluster has told of itself, and by `sbatch
            --test-only` for each class of resources.
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
    try_out(every)
    return {one.run: one for one in reversed(every)}


def refusals(plans: Sequence[tuple[Config, Plan | None]], cluster: Cluster) -> list[Problem]:
    """What the cluster would say no to, also of runs of which there can be no plan."""
    speeds = Speeds()
    return problems([(config, ask(config, plan, cluster, speeds)) for config, plan in plans], cluster)


def try_out(every: Sequence[Asked]) -> None:
    """Ask `sbatch --test-only` about one job of each class of resources.

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
        said = list(pool.map(lambda members: _test_only(members[0]), classes.values()))
    refused = [
        Problem(
            why.where, f"{why.what} (asked for by {_some(list(dict.fromkeys(one.run for one in members)))})"
        )
        for why, members in zip(said, classes.values(), strict=True)
        if why is not None
    ]
    if refused:
        raise UserError(*refused)


def _test_only(one: Asked) -> Problem | None:
    """What sbatch says against it. A queue that is full now says nothing against it.

    A slurmctld that has just started knows nothing of its nodes for some seconds, and says of each job that
    no node has what it asks for: then it is asked again.

    Raises:
        NoAnswer: slurmctld says nothing.
    """
    until_s, are_known = time.monotonic() + _NODES_COME_S, False
    while True:
        done = _say(one)
        said = " ".join(done.stderr.split())
        if done.returncode == 0 or any(passing in said for passing in _PASSES_BY) or has_no_room(said):
            return None
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
            return None
        if are_known:
            return refused
        are_known = "unk" not in states  # since a moment, maybe: that answer may be of before
        if not are_known:
            if time.monotonic() > until_s:
                return Problem(
                    refused.where, f"{refused.what}. slurmctld has no word of its nodes yet: sinfo"
                )
            time.sleep(_ASKED_AGAIN_S)


def _say(one: Asked) -> subprocess.CompletedProcess[str]:
    """Raises NoAnswer."""
    try:
        return subprocess.run(
            ["sbatch", "--test-only"],
            input=f"#!/bin/bash\n{directives(one.options)}true\n",
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


def _some(runs: Sequence[str]) -> str:
    return runs[0] + (f" and {counted(len(runs) - 1, 'more run')}" if len(runs) > 1 else "")
