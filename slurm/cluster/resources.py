"""What a run asks of the cluster: the options of sbatch, and how each came about.

The rules, which docs/clusters.md tells users:

    mem    auto: the estimate's peak of all ranks on a node and 15%, or memory.margin where that is more,
           rounded up; at most what the largest node has, where the estimate itself fits it
    time   auto: 10 minutes, and 1.5 times what its tokens take to train and evaluate at the slowest measured
           speed of runs like it, rounded up to 10 minutes; at most the partition's limit. Where no such run
           is known, none is asked for: the partition's default holds
    signal slurm.signal_s before the limit, a quarter of it where that is less

Of slurm.pack=N runs that share a task, N times the memory and the cores that are `auto`; what is typed is the
whole task's. A worker's time is the partition's limit.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from conf import AUTO, Config
from conf.by_model import settle
from conf.schema import Slurm
from experiment_utils.quantities import counted, format_count, format_duration, format_limit, parse_duration
from memory import format_bytes
from memory.estimate.constants import LIBRARIES_MAPPED
from memory.estimate.estimate import recommended_mem
from slurm.cluster.facts import Cluster, Partition
from slurm.cluster.job_step import chosen_lines
from slurm.cluster.options import GPUS_OTHERWISE, MEMORY_OTHERWISE, read_options
from slurm.cluster.speeds import Speed, Speeds

if TYPE_CHECKING:
    from training.plan import Plan

LEAST_MARGIN = 0.15
START_S = 600.0
"""To load the code and the data, on a slow file system."""
TIME_MARGIN = 1.5
TIME_UNIT_S = 600.0
EVAL_SHARE = 1 / 3
"""Of a token's cost in training: an evaluation has the forward pass alone."""
SIGNAL_SHARE = 0.25
_MORE_THAN_A_COMMAND = re.compile(r"[;&|<>()#]")
_MB = 1 << 20
OF_EACH_STEP_BYTES = 48 * _MB
"""Of a task that several runs share, for itself and the srun of each (slurm.in_job.slots)."""


@dataclass(frozen=True)
class Ask:
    """options: of sbatch, without dashes; True for one without a value. setup: lines of shell before the run.

    mem_bytes: of a node; None: not by --mem. limit_s: the time limit, asked for or the partition's; None:
    none. expected_s: how long it should train and evaluate; None: not known. tasks, cpus, gpus: of the whole
    run. how_mem, how_time: where they come from, in words.
    """

    options: dict[str, Any]
    setup: tuple[str, ...]
    mem_bytes: int | None
    limit_s: float | None
    expected_s: float | None
    tasks: int
    cpus: int
    gpus: int
    how_mem: str
    how_time: str


def resources(config: Config, plan: Plan, cluster: Cluster | None = None) -> dict[str, Any]:
    """Options of sbatch for a run, without dashes."""
    return ask(config, plan, cluster).options


def ask(
    config: Config, plan: Plan | None, cluster: Cluster | None = None, speeds: Speeds | None = None
) -> Ask:
    """What the run asks for. cluster: None, or with pieces missing: what depends on them is left to Slurm.

    plan: None where it could not be made: what it would say is left to Slurm then. speeds: kept between the
    runs of a sweep. An option that cannot be used is left out: `refuse` tells of it.
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
    limit_s, expected_s, how_time, is_asked = _time(wanted, plan, partitions, tasks, speeds or Speeds())
    return Ask(
        options=sbatch_options(wanted, tasks_per_node, cpus, mem_bytes, limit_s, is_asked) | open_options,
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


def sbatch_options(
    wanted: Slurm,
    tasks_per_node: int,
    cpus: int,
    mem_bytes: int | None,
    limit_s: float | None,
    is_asked: bool,
) -> dict[str, Any]:
    """Without dashes and without `slurm.options`. cpus: of a task. is_asked: sbatch is told of the limit."""
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
        "time": format_limit(limit_s) if limit_s is not None and is_asked else None,
        "signal": f"USR2@{signal_s(wanted, limit_s)}",
        "requeue": True if wanted.requeue else None,
        "no-requeue": None if wanted.requeue else True,
    }
    if wanted.time != AUTO and limit_s is None:
        options["time"] = "UNLIMITED"
    return {name: value for name, value in options.items() if value is not None}


def runs_beside(wanted: Slurm) -> int:
    """Runs that share a task's cores and memory at one time (`slurm.pack`)."""
    return wanted.pack


def runs_per_gpu(wanted: Slurm) -> int:
    """Runs that share a GPU: those of a task are spread over the task's GPUs (`slurm.plans.gpu_slots`)."""
    return -(-runs_beside(wanted) // max(1, wanted.gpus_per_node))


def ranks_per_node(wanted: Slurm) -> int:
    """Tasks on each node: one a GPU, else one, unless it says. Runs that share a job have one rank each."""
    if wanted.tasks_per_node != AUTO:
        return int(wanted.tasks_per_node)
    return 1 if shares_a_job(wanted) else max(1, wanted.gpus_per_node)


def shares_a_job(wanted: Slurm) -> bool:
    """Whether a job takes several runs: side by side, or one after the other."""
    return wanted.pack > 1 or wanted.workers is not None


def cpus_per_task(config: Config, wanted: Slurm) -> int:
    """Return the cores of a task: the threads of each run that shares it (2 if they are left to the job)."""
    if wanted.cpus_per_task != AUTO:
        return int(wanted.cpus_per_task)
    threads = config.training.threads
    return (2 if threads == AUTO else int(threads)) * runs_beside(wanted)


def device_of(config: Config) -> str:
    """cpu or cuda: what `training.device=auto` will be on the nodes, whatever this machine has."""
    device = config.training.device
    if device != AUTO:
        return device
    wanted = settle(config).slurm
    options, _ = read_options(wanted.options)
    return "cuda" if wanted.gpus_per_node or any(name in options for name in GPUS_OTHERWISE) else "cpu"


def signal_s(wanted: Slurm, limit_s: float | None) -> int:
    """Seconds before the limit at which a run is asked to checkpoint: of a short one not all of it."""
    if limit_s is None:
        return wanted.signal_s
    return max(1, min(wanted.signal_s, int(limit_s * SIGNAL_SHARE)))


def setup_lines(wanted: Slurm) -> tuple[str, ...]:
    """Lines of shell before the run: slurm.setup, slurm.offline, slurm.python, slurm.srun_args."""
    offline = ["export HF_HUB_OFFLINE=1 HF_DATASETS_OFFLINE=1 TRANSFORMERS_OFFLINE=1"]
    return (*map(_or_leave, wanted.setup), *(offline if wanted.offline else []), *chosen_lines(wanted))


def _or_leave(line: str) -> str:
    """A module that is not there ends the job: the run would go on without it, with what the node has."""
    is_module = line.split(maxsplit=1)[:1] in (["module"], ["ml"])
    return f"{line} || exit 1" if is_module and not _MORE_THAN_A_COMMAND.search(line) else line


def share_bytes(task_bytes: int, beside: int) -> int:
    """Of a task's memory, what each of its runs gets that share it (slurm.in_job, in whole MB)."""
    if beside == 1:
        return task_bytes
    return max(1, (task_bytes - OF_EACH_STEP_BYTES * (beside + 1)) // beside // _MB) * _MB


def margin_of(config: Config) -> float:
    """On top of the estimate, where nobody has said how much memory."""
    return max(LEAST_MARGIN, config.memory.margin)


def task_bytes(run_bytes: int, beside: int) -> int:
    """What a task takes in which each of `beside` runs has so much: `share_bytes` the other way round."""
    return beside * run_bytes + (OF_EACH_STEP_BYTES * (beside + 1) if beside > 1 else 0)


def room_bytes(wanted: Slurm, partitions: Sequence[Partition]) -> tuple[int | None, str | None]:
    """What a run may take on a node, and whose word that is: slurm.mem, else the largest node."""
    if wanted.mem is not None and wanted.mem != AUTO:
        return int(wanted.mem), "slurm.mem"
    most = node_bytes(partitions)
    if most is None:
        return None, None
    return most, f"the largest node of {','.join(found.name for found in partitions)}"


def node_bytes(partitions: Sequence[Partition]) -> int | None:
    """What the largest of their nodes gives a job; None: not known."""
    return max((one.most_mem_bytes for one in partitions if one.most_mem_bytes is not None), default=None)


def _memory(
    config: Config,
    wanted: Slurm,
    plan: Plan | None,
    partitions: Sequence[Partition],
    ranks: int,
    polled_bytes: int,
) -> tuple[int | None, str]:
    """(--mem, how it is known). polled_bytes: what Slurm's poll of RSS counts besides the estimate."""
    if wanted.mem is None:
        return None, "what the cluster gives (slurm.mem=null)"
    if wanted.mem != AUTO:
        return int(wanted.mem), "slurm.mem"
    if plan is None:
        return None, "no estimate"
    estimate = plan.memory.estimate
    margin = margin_of(config)
    # A plan that was made for all ranks tells what those on one node need together.
    apart = 1 if plan.budget.ranks > 1 else ranks
    beside = runs_beside(wanted)
    needed = apart * beside * (estimate.resumed_bytes + polled_bytes)
    asked = task_bytes(apart * (recommended_mem(estimate, margin) + polled_bytes), beside)
    how = f"estimate {format_bytes(needed)} + {margin:.0%}" + (", libraries count" if polled_bytes else "")
    most, whose = room_bytes(wanted, partitions)
    if most is not None and needed <= most < asked:
        return most, f"{how}, at most {whose}"
    return asked, how


def _time(
    wanted: Slurm, plan: Plan | None, partitions: Sequence[Partition], ranks: int, speeds: Speeds
) -> tuple[float | None, float | None, str, bool]:
    """(the limit, how long it should take, in words, whether sbatch is told)"""
    speed = None if plan is None else speeds.of(plan, device_of(plan.config), ranks)
    expected = None if speed is None or plan is None else expected_seconds(plan, speed)
    if wanted.time != AUTO:
        return parse_duration(wanted.time), expected, "slurm.time", True
    most = _longest(partitions)
    if wanted.workers is not None and most is not None:
        return most, expected, "the partition's limit: a worker takes one run after the other", True
    if expected is None or speed is None:
        default, told = default_limit(partitions)
        return default, None, f"{told}: no run like it has been measured", False
    asked = -(-(START_S + expected * TIME_MARGIN) // TIME_UNIT_S) * TIME_UNIT_S
    measured = f"{format_count(round(speed.tokens_per_s))} tokens/s measured in {counted(speed.runs, 'run')}"
    how = measured if speed.nearby else f"{measured} elsewhere"
    if most is not None and most < asked:
        goes_on = ", and goes on after it" if wanted.requeue else ", which it may not meet"
        return most, expected, f"{how}; the partition's limit{goes_on}", True
    return asked, expected, how, True


def default_limit(partitions: Sequence[Partition]) -> tuple[float | None, str]:
    """(what a job without --time gets, None where that is not known or without end; in words)"""
    defaults = [found.default_time_s for found in partitions if found.default_time_s is not None]
    default = min(defaults) if defaults else _longest(partitions)
    return default, (
        f"the partition's default, {format_duration(default)}" if default else "the cluster's default"
    )


def _longest(partitions: Sequence[Partition]) -> float | None:
    """The least of their limits; None where one has none."""
    limits = [found.max_time_s for found in partitions]
    return None if not limits or None in limits else min(limit for limit in limits if limit is not None)


def expected_seconds(plan: Plan, speed: Speed) -> float:
    """What the run takes to train and to evaluate."""
    evaluated = len(plan.evaluations) * plan.eval_tokens * EVAL_SHARE
    return plan.together * (plan.budget.tokens + evaluated) / speed.tokens_per_s


def _gres(wanted: Slurm) -> str | None:
    if not wanted.gpus_per_node:
        return None
    return ":".join(["gpu", *([wanted.gpu_type] if wanted.gpu_type else []), str(wanted.gpus_per_node)])
