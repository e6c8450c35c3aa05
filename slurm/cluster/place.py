"""How the plan of a run is made that goes to a node: for what is there, not for what this machine has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from conf import Config
from conf.composing.per_model_slurm import settle
from memory.estimate.available import Room
from memory.estimate.estimate import Estimate, recommended_mem
from slurm.cluster.facts import Cluster, Partition
from slurm.cluster.gpu_memory import gpu_bytes
from slurm.cluster.resources import (
    device_of,
    margin_of,
    node_bytes,
    ranks_per_node,
    room_bytes,
    runs_beside,
    runs_per_gpu,
    share_bytes,
    task_bytes,
)


def planned_for(cluster: Cluster) -> Callable[[Config], dict[str, Any]]:
    """For `plan_all` (slurm.plans): of each configuration the room it will have, the device and the ranks.

    The memory of a login node says nothing: the room is slurm.mem, or what the largest node has, and
    the memory of a GPU is that of its type (`slurm.cluster.gpu_memory`).
    """

    def of(config: Config) -> dict[str, Any]:
        wanted = settle(config).slurm
        partitions = cluster.partitions_of(wanted.partition)
        most, whose = room_bytes(wanted, partitions)
        on_a_node, beside = ranks_per_node(wanted), runs_beside(wanted)
        shared = f", shared by {beside} runs (slurm.pack)," if beside > 1 else ""
        on_a_gpu, of_gpu = runs_per_gpu(wanted), gpu_bytes(wanted, partitions)
        return {
            "room": Room(
                limit_bytes=None if most is None else share_bytes(most, beside),
                limit_at=None if whose is None else f"{whose}{shared}",
                gpu_total_bytes=None if of_gpu is None else of_gpu // on_a_gpu,
                gpu_at=f"a GPU that {on_a_gpu} runs share (slurm.pack)" if on_a_gpu > 1 else "the GPU",
                raised=partial(_more_mem, config, beside, partitions) if whose == "slurm.mem" else None,
            ),
            "kept": {"device": device_of(config)},
            "ranks": wanted.nodes * on_a_node,
            "ranks_here": on_a_node,
        }

    return of


def _more_mem(config: Config, beside: int, partitions: Sequence[Partition], estimate: Estimate) -> str | None:
    """In place of a slurm.mem that is too small: what `auto` would ask for, where a node has it."""
    wanted_bytes = task_bytes(recommended_mem(estimate, margin_of(config)), beside)
    most_bytes = node_bytes(partitions)
    if most_bytes is not None and wanted_bytes > most_bytes:
        return None
    return f"slurm.mem={-(-wanted_bytes // (1 << 20))}MB"
