"""Check of what runs ask of the cluster, by `sbatch --test-only`, before anything is submitted."""

from __future__ import annotations

import json
import logging
import os
import subprocess
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

from conf import Config
from conf.per_model_slurm import settle
from experiment_utils.errors import Problem, UserError
from experiment_utils.quantities import counted, format_limit, parse_duration
from slurm.cluster import Cluster, Speeds, ask
from slurm.cluster.node_fit import away_nodes, never_fits
from slurm.cluster.reachability import unreachable
from slurm.cluster.resources import key_conflicts
from slurm.cluster.sbatch_errors import (
    directives,
    has_no_room,
    is_unanswered,
    is_unreached,
    meaning,
    unknown_names,
    words,
)
from slurm.queue.arrays import Asked
from slurm.queue.environment import environment
from slurm.queue.slurm_client import TIMEOUT_S, NoAnswer

if TYPE_CHECKING:
    from training.plan.run_plan import Plan

log = logging.getLogger("slurm")

AT_A_TIME = 8
"""Calls of sbatch in parallel."""
_WAITS = ("down, drained or reserved", "nodes are busy")
"""Words of `sbatch --test-only` about a job that sbatch accepts, and that waits."""
_NO_SUCH_NODE = "node configuration is not available"


def asked_of(plans: Sequence[Plan], cluster: Cluster) -> dict[str, Asked]:
    """Resources of each run that is to be submitted, by its name.

    Raises:
        UserError: everything that the cluster refuses.
        NoAnswer: slurmctld does not answer; nothing was submitted.
    """
    speeds = Speeds()
    every: list[Asked] = []  # a run that is there twice with other resources is checked twice
    to_run = [plan for plan in plans if plan.folder and (plan.state != "done" or plan.config.again)]
    for plan in to_run:
        assert plan.folder is not None
        one, slurm = ask(plan.config, plan, cluster, speeds), settle(plan.config).slurm
        every.append(
            Asked(plan.folder.name, one.options, one.setup, slurm.parallel, slurm.pack, slurm.workers)
        )
    wrong = conflicts(plan.config for plan in to_run) + unreachable(to_run)
    refused, notes = check_with_sbatch([(one.run, one.options) for one in every], cluster)
    if wrong or refused:
        raise UserError(*wrong, *refused)
    for note in notes:
        log.warning("%s", note)
    return {one.run: one for one in reversed(every)}


def refusals(plans: Sequence[tuple[Config, Plan | None]], cluster: Cluster) -> list[Problem]:
    """Everything that the cluster refuses, also of runs without a plan. Without an answer of slurmctld, only
    what needs none.
    """
    speeds = Speeds()
    asked = [ask(config, plan, cluster, speeds) for config, plan in plans]
    try:
        refused, _ = check_with_sbatch([("", one.options) for one in asked], cluster)
    except NoAnswer:
        refused = []
    return conflicts(config for config, _ in plans) + refused


def conflicts(configs: Iterable[Config]) -> list[Problem]:
    """Keys of `slurm` that exclude each other, each once."""
    return list(dict.fromkeys(one for config in configs for one in key_conflicts(settle(config).slurm)))


def check_with_sbatch(
    asked: Sequence[tuple[str, dict[str, Any]]], cluster: Cluster
) -> tuple[list[Problem], list[str]]:
    """Ask `sbatch --test-only` once about each set of options.

    Args:
        asked: Name of a run and its options of sbatch, without dashes.

    Returns:
        What is refused, and notes about jobs that are accepted and cannot start now.

    Raises:
        NoAnswer: slurmctld does not answer.
    """
    shapes: dict[str, list[str]] = {}
    for run, options in asked:
        shapes.setdefault(json.dumps(options, sort_keys=True), []).append(run)
    runs_of: dict[Problem | str, list[str]] = {}
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        verdicts = pool.map(partial(_verdict, cluster=cluster), map(json.loads, shapes))
        for verdict, runs in zip(verdicts, shapes.values(), strict=True):
            for one in verdict:
                runs_of.setdefault(one, []).extend(runs)
    notes = [one for one in runs_of if isinstance(one, str)]
    refused = [
        Problem(one.where, one.what + _listed(list(dict.fromkeys(runs))))
        for one, runs in runs_of.items()
        if isinstance(one, Problem)
    ]
    return refused, notes


def _listed(runs: Sequence[str]) -> str:
    """The first run and the number of others, in brackets; empty without a name."""
    more = f" and {counted(len(runs) - 1, 'more run')}" if len(runs) > 1 else ""
    return f" ({runs[0]}{more})" if runs[0] else ""


def _verdict(options: dict[str, Any], cluster: Cluster) -> Sequence[Problem | str]:
    """Refusals of a job; or a note, if it is accepted and cannot start now.

    Raises:
        NoAnswer: slurmctld does not answer.
    """
    wrong = unknown_names(options, cluster)
    if not cluster.checks_partition_limits and "qos" not in options:  # which can allow more
        wrong += _too_long(options, cluster)
    if wrong:
        return wrong
    done = _test_only(options)
    said = words(done.stderr)
    if done.returncode == 0 or has_no_room(said) or any(waits in said for waits in _WAITS):
        return []
    if is_unanswered(done.stderr, done.returncode) or is_unreached(done.stderr):
        raise NoAnswer(_unanswered(said))
    refused = meaning(done.stderr, options, cluster)
    if refused.where == "slurm.time":
        return _too_long(options, cluster) or [refused]
    is_no_node = _NO_SUCH_NODE in said
    if not is_no_node and refused.where not in ("slurm.mem", "slurm.nodes"):
        return [refused]
    partitions = cluster.partitions_of(options.get("partition"))
    never, up = never_fits(options, partitions), [one for one in cluster.partitions.values() if one.is_up]
    if never:
        other = next((one.name for one in up if not never_fits(options, [one])), None)
        fix = f"; slurm.partition={other} has such nodes" if other else ""
        return [Problem(one.where, f"{one.what}{fix}. sbatch says: {said}") for one in never]
    if not is_no_node:
        return [refused]
    away = away_nodes(options, partitions)
    nodes = f"{counted(away, 'node')} that could run it" if away else "nodes"
    return [f"a job waits for {nodes}: down, drained or in maintenance now (sinfo -R)"]


def _too_long(options: dict[str, Any], cluster: Cluster) -> list[Problem]:
    """More time than the partition allows. With EnforcePartLimits=NO sbatch accepts such a job, which then
    waits forever.
    """
    limits = [found.max_time_s for found in cluster.partitions_of(options.get("partition"))]
    if "time" not in options or not limits or None in limits:
        return []
    most_s = max(limit for limit in limits if limit is not None)
    asked_s = parse_duration(options["time"])
    if asked_s is not None and asked_s <= most_s:
        return []
    what = f"{options['time']} is more than the partition allows: slurm.time={format_limit(most_s)}. With "
    return [Problem("slurm.time", f"{what}slurm.requeue=true a run that reaches its limit resumes")]


def _test_only(options: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    """Raises NoAnswer."""
    try:
        return subprocess.run(
            ["sbatch", "--test-only"],
            input=f"#!/bin/bash\n{directives(options)}true\n",
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            env=environment(os.environ, options),
        )
    except (subprocess.TimeoutExpired, FileNotFoundError) as error:
        raise NoAnswer(_unanswered(str(error))) from error


def _unanswered(said: str) -> str:
    return (
        f"slurmctld did not answer, so nothing was submitted: sbatch --test-only: {said}. Type the same "
        "command again in a minute; scontrol ping shows whether it is up"
    )
