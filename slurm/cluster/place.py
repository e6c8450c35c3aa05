"""How the plan of a run is made that goes to a node: for what is there, not for what this machine has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from conf import Config
from conf.by_model import settle
from memory.room import Room
from slurm.cluster.facts import Cluster
from slurm.cluster.resources import device_of, ranks_per_node, room_bytes, runs_beside, share_bytes


def planned_for(cluster: Cluster) -> Callable[[Config], dict[str, Any]]:
    """For `slurm.plans.plan_all`: of each configuration the room it will have, the device and the ranks.

    The memory of a login node says nothing: the room is slurm.mem, or what the largest node has. Of a GPU's
    memory the cluster tells nothing.
    """

    def of(config: Config) -> dict[str, Any]:
        wanted = settle(config).slurm
        most, whose = room_bytes(wanted, cluster.partitions_of(wanted.partition))
        on_a_node, beside = ranks_per_node(wanted), runs_beside(wanted)
        shared = f", shared by {beside} runs (slurm.pack)," if beside > 1 else ""
        return {
            "room": Room(
                limit_bytes=None if most is None else share_bytes(most, beside),
                limit_at=None if whose is None else f"{whose}{shared}",
            ),
            "kept": {"device": device_of(config)},
            "ranks": wanted.nodes * on_a_node,
            "ranks_here": on_a_node,
        }

    return of
