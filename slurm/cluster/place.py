"""Plans for runs on the nodes of a cluster: memory, device and ranks there, not of this machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from conf import Config
from conf.per_model_slurm import settle
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
    runs_per_gpu,
    share_bytes,
    task_bytes,
)


def planned_for(cluster: Cluster) -> Callable[[Config], dict[str, Any]]:
    """Function for `plan_all` (slurm.plans): memory, device and ranks that a configuration has on a node.

    The memory is slurm.mem, or that of the largest node; of a GPU that of its type
    (`slurm.cluster.gpu_memory`).
    """

    def of(config: Config) -> dict[str, Any]:
        wanted = settle(config).slurm
        partitions = cluster.partitions_of(wanted.partition)
        most, whose = room_bytes(wanted, partitions)
        on_a_node, runs = ranks_per_node(wanted), wanted.pack
        shared = f", shared by {runs} runs (slurm.pack)," if runs > 1 else ""
        on_a_gpu, of_gpu = runs_per_gpu(wanted), gpu_bytes(wanted, partitions)
        return {
            "room": Room(
                limit_bytes=None if most is None else share_bytes(most, runs),
                limit_at=None if whose is None else f"{whose}{shared}",
                gpu_total_bytes=None if of_gpu is None else of_gpu // on_a_gpu,
                gpu_at=f"a GPU that {on_a_gpu} runs share (slurm.pack)" if on_a_gpu > 1 else "the GPU",
                raised=partial(_more_mem, config, runs, partitions) if whose == "slurm.mem" else None,
            ),
            "kept": {"device": device_of(config)},
            "ranks": wanted.nodes * on_a_node,
            "ranks_here": on_a_node,
        }

    return of


def _more_mem(config: Config, runs: int, partitions: Sequence[Partition], estimate: Estimate) -> str | None:
    """The slurm.mem that `auto` asks for, as an override, if a node has it; else None."""
    wanted_bytes = task_bytes(recommended_mem(estimate, margin_of(config)), runs)
    most_bytes = node_bytes(partitions)
    if most_bytes is not None and wanted_bytes > most_bytes:
        return None
    return f"slurm.mem={-(-wanted_bytes // (1 << 20))}MB"
