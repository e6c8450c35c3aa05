"""Options of sbatch that a run asks for, and where each value comes from. docs/clusters.md has the rules."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from conf import AUTO, Config
from conf.per_model_slurm import settle
from conf.schema import Slurm
from experiment_utils.errors import Problem
from experiment_utils.quantities import counted, format_count, format_duration, format_limit, parse_duration
from memory import format_bytes
from memory.estimate.constants import LIBRARIES_MAPPED
from memory.estimate.efficiency import time_to_ask
from memory.estimate.estimate import recommended_mem
from slurm.cluster.facts import Cluster, Partition
from slurm.cluster.job_step import chosen_lines
from slurm.cluster.options import GPUS_OTHERWISE, MEMORY_OTHERWISE, read_options
from slurm.cluster.speeds import Speed, Speeds

if TYPE_CHECKING:
    from training.plan.run_plan import Plan

LEAST_MARGIN = 0.15
EVAL_SHARE = 1 / 3
"""Cost of a token in evaluation, which has the forward pass alone, as a share of that in training."""
SIGNAL_SHARE = 0.25
_MORE_THAN_A_COMMAND = re.compile(r"[;&|<>()#]")
_MB = 1 << 20
OF_EACH_STEP_BYTES = 48 * _MB
"""Memory of the srun of each run in a shared task, and of the task itself (slurm.in_job.slots)."""


@dataclass(frozen=True)
class Ask:
    """Resources that a run asks for."""

    options: dict[str, Any]
    """Options of sbatch, without dashes; True for one without a value."""
    setup: tuple[str, ...]
    """Lines of shell before the run."""
    mem_bytes: int | None
    """Memory of a node; None: not asked for by --mem."""
    limit_s: float | None
    """The time limit, asked for or the partition's; None: none."""
    expected_s: float | None
    """Time that the run should take to train and evaluate; None: not known."""
    tasks: int
    cpus: int
    gpus: int
    how_mem: str
    """Source of mem_bytes, as text; `how_time` that of limit_s."""
    how_time: str


def ask(
    config: Config, plan: Plan | None, cluster: Cluster | None = None, speeds: Speeds | None = None
) -> Ask:
    """Resources of a run. An option that cannot be used is left out: `key_conflicts` reports it.

    Args:
        plan: None if it could not be made; what depends on it is then left to Slurm.
        cluster: None, or with pieces missing; what depends on them is then left to Slurm.
        speeds: Kept between the runs of a sweep.
    """
    wanted = settle(config).slurm
    cluster = cluster or Cluster()
    partitions = cluster.partitions_of(wanted.partition)
    open_options, _ = read_options(wanted.options)
    tasks_per_node = ranks_per_node(wanted)
    tasks, cpus = wanted.nodes * tasks_per_node, cpus_per_task(config, wanted)
    polled_bytes = LIBRARIES_MAPPED.in_bytes if cluster.counts_rss else 0
    mem_bytes, how_mem = _memory(config, wanted, plan, partitions, tasks_per_node, polled_bytes)
    if any(name in open_options for name in MEMORY_OTHERWISE):
        mem_bytes, how_mem = None, "slurm.options"
    limit_s, time, expected_s, how_time = _time(wanted, plan, partitions, tasks, speeds or Speeds())
    options: dict[str, Any | None] = {
        "partition": wanted.partition,
        "account": wanted.account,
        "qos": wanted.qos,
        "constraint": wanted.constraint,
        "nodes": wanted.nodes,
        "ntasks-per-node": tasks_per_node,
        "cpus-per-task": cpus,
        "gres": _gres(wanted),
        "mem": None if mem_bytes is None else f"{-(-mem_bytes // _MB)}M",
        "time": time,
        "signal": f"USR2@{signal_s(wanted, limit_s)}",
        "requeue" if wanted.requeue else "no-requeue": True,
    }
    return Ask(
        options={name: value for name, value in options.items() if value is not None} | open_options,
        setup=setup_lines(wanted),
        mem_bytes=mem_bytes,
        limit_s=limit_s,
        expected_s=expected_s,
        tasks=tasks,
        cpus=tasks * cpus,
        gpus=wanted.nodes * wanted.gpus_per_node,
        how_mem=how_mem,
        how_time=how_time,
    )


def key_conflicts(wanted: Slurm) -> Iterator[Problem]:
    """Keys of `slurm` that exclude each other, of which sbatch cannot know."""
    options, wrong = read_options(wanted.options)
    yield from wrong
    if wanted.gpus_per_node:
        for name in GPUS_OTHERWISE:
            if name in options:
                what = f"--{name}: slurm.gpus_per_node asks for GPUs too. Remove one of the two"
                yield Problem("slurm.options", what)
    elif wanted.gpu_type is not None:
        yield Problem("slurm.gpu_type", f"{wanted.gpu_type}: the number is missing: slurm.gpus_per_node=1")
    if shares_a_job(wanted):
        how = f"slurm.workers={wanted.workers}" if wanted.workers is not None else f"slurm.pack={wanted.pack}"
        for name, count in (("nodes", wanted.nodes), ("tasks_per_node", ranks_per_node(wanted))):
            if count > 1:
                what = f"{count} with {how}: runs that share a job have one rank each. Remove one of the two"
                yield Problem(f"slurm.{name}", what)


def runs_per_gpu(wanted: Slurm) -> int:
    """Runs on each GPU of a task (`slurm.plans.gpu_slots` spreads them)."""
    return -(-wanted.pack // max(1, wanted.gpus_per_node))


def ranks_per_node(wanted: Slurm) -> int:
    """Tasks on each node: as typed, else one a GPU, else one. Runs that share a job have one rank each."""
    if wanted.tasks_per_node != AUTO:
        return int(wanted.tasks_per_node)
    return 1 if shares_a_job(wanted) else max(1, wanted.gpus_per_node)


def shares_a_job(wanted: Slurm) -> bool:
    """Whether a job takes several runs: in parallel, or one after the other."""
    return wanted.pack > 1 or wanted.workers is not None


def cpus_per_task(config: Config, wanted: Slurm) -> int:
    """Return the cores of a task: the threads of each run that shares it (2 if they are left to the job)."""
    if wanted.cpus_per_task != AUTO:
        return int(wanted.cpus_per_task)
    threads = config.training.threads
    return (2 if threads == AUTO else int(threads)) * wanted.pack


def device_of(config: Config) -> str:
    """`cpu` or `cuda`: the device that `training.device=auto` chooses on the nodes."""
    device = config.training.device
    if device != AUTO:
        return device
    wanted = settle(config).slurm
    options, _ = read_options(wanted.options)
    return "cuda" if wanted.gpus_per_node or any(name in options for name in GPUS_OTHERWISE) else "cpu"


def signal_s(wanted: Slurm, limit_s: float | None) -> int:
    """Seconds before the limit at which a run is asked to checkpoint, at most a quarter of the limit."""
    if limit_s is None:
        return wanted.signal_s
    return max(1, min(wanted.signal_s, int(limit_s * SIGNAL_SHARE)))


def setup_lines(wanted: Slurm) -> tuple[str, ...]:
    """Lines of shell before the run: slurm.setup, slurm.offline, slurm.python, slurm.srun_args."""
    offline = ["export HF_HUB_OFFLINE=1 HF_DATASETS_OFFLINE=1 TRANSFORMERS_OFFLINE=1"]
    return (*map(_or_leave, wanted.setup), *(offline if wanted.offline else []), *chosen_lines(wanted))


def _or_leave(line: str) -> str:
    """The line; a module that cannot be loaded ends the job, which would run without it otherwise."""
    is_module = line.split(maxsplit=1)[:1] in (["module"], ["ml"])
    return f"{line} || exit 1" if is_module and not _MORE_THAN_A_COMMAND.search(line) else line


def share_bytes(task_bytes: int, runs: int) -> int:
    """Memory that each of the runs of a task gets, in whole MB (slurm.in_job)."""
    if runs == 1:
        return task_bytes
    return max(1, (task_bytes - OF_EACH_STEP_BYTES * (runs + 1)) // runs // _MB) * _MB


def margin_of(config: Config) -> float:
    """Share of the estimate that slurm.mem=auto adds."""
    return max(LEAST_MARGIN, config.memory.margin)


def task_bytes(run_bytes: int, runs: int) -> int:
    """Memory of a task in which each of the runs has `run_bytes`: the inverse of `share_bytes`."""
    return runs * run_bytes + (OF_EACH_STEP_BYTES * (runs + 1) if runs > 1 else 0)


def room_bytes(wanted: Slurm, partitions: Sequence[Partition]) -> tuple[int | None, str | None]:
    """Most memory of a run on a node, and where that comes from: slurm.mem, else the largest node."""
    if wanted.mem is not None and wanted.mem != AUTO:
        return int(wanted.mem), "slurm.mem"
    most = node_bytes(partitions)
    if most is None:
        return None, None
    return most, f"the largest node of {','.join(found.name for found in partitions)}"


def node_bytes(partitions: Sequence[Partition]) -> int | None:
    """Memory that a job gets on the largest node; None: not known."""
    return max((one.most_mem_bytes for one in partitions if one.most_mem_bytes is not None), default=None)


def _memory(
    config: Config,
    wanted: Slurm,
    plan: Plan | None,
    partitions: Sequence[Partition],
    ranks: int,
    polled_bytes: int,
) -> tuple[int | None, str]:
    """--mem in bytes, and where it comes from. polled_bytes: mapped libraries, if Slurm counts them."""
    if wanted.mem is None:
        return None, "what the cluster gives (slurm.mem=null)"
    if wanted.mem != AUTO:
        return int(wanted.mem), "slurm.mem"
    if plan is None:
        return None, "no estimate"
    estimate = plan.memory.estimate
    margin = margin_of(config)
    # A plan for several ranks has the memory of all that are on one node.
    apart = 1 if plan.budget.ranks > 1 else ranks
    needed = apart * wanted.pack * (estimate.resumed_bytes + polled_bytes)
    asked = task_bytes(apart * (recommended_mem(estimate, margin) + polled_bytes), wanted.pack)
    how = f"estimate {format_bytes(needed)} + {margin:.0%}" + (", libraries count" if polled_bytes else "")
    most, whose = room_bytes(wanted, partitions)
    if most is not None and needed <= most < asked:
        return most, f"{how}, at most {whose}"
    return asked, how


def _time(
    wanted: Slurm, plan: Plan | None, partitions: Sequence[Partition], ranks: int, speeds: Speeds
) -> tuple[float | None, str | None, float | None, str]:
    """The limit, None for none; --time; the seconds that the run should take; the source of the limit."""
    speed = None if plan is None else speeds.of(plan, device_of(plan.config), ranks)
    expected_s = None if speed is None or plan is None else expected_seconds(plan, speed)
    if wanted.time != AUTO:
        typed_s = parse_duration(wanted.time)
        return typed_s, "UNLIMITED" if typed_s is None else format_limit(typed_s), expected_s, "slurm.time"
    most_s = _longest(partitions)
    if wanted.workers is not None and most_s is not None:
        how = "the partition's limit: a worker takes one run after the other"
        return most_s, format_limit(most_s), expected_s, how
    if expected_s is None or speed is None:
        defaults = [found.default_time_s for found in partitions if found.default_time_s is not None]
        default_s = min(defaults) if defaults else most_s
        how = (
            f"the partition's default, {format_duration(default_s)}" if default_s else "the cluster's default"
        )
        return default_s, None, None, f"{how}: no run like it has been measured"
    limit_s = time_to_ask(expected_s)
    how = f"{format_count(round(speed.tokens_per_s))} tokens/s measured in {counted(speed.runs, 'run')}"
    how += "" if speed.nearby else " elsewhere"
    if most_s is not None and most_s < limit_s:
        after = "and resumes after it" if wanted.requeue else "in which it may not end"
        limit_s, how = most_s, f"{how}; the partition's limit, {after}"
    return limit_s, format_limit(limit_s), expected_s, how


def _longest(partitions: Sequence[Partition]) -> float | None:
    """The least of their time limits; None if one has none."""
    limits = [found.max_time_s for found in partitions]
    return None if not limits or None in limits else min(limit for limit in limits if limit is not None)


def expected_seconds(plan: Plan, speed: Speed) -> float:
    """Seconds to train and to evaluate."""
    evaluated = len(plan.evaluations) * plan.eval_tokens * EVAL_SHARE
    return plan.together * (plan.budget.tokens + evaluated) / speed.tokens_per_s


def _gres(wanted: Slurm) -> str | None:
    if not wanted.gpus_per_node:
        return None
    return ":".join(["gpu", *([wanted.gpu_type] if wanted.gpu_type else []), str(wanted.gpus_per_node)])
