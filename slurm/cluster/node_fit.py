"""Nodes that have what a job asks of each of them, whatever state they are in now.

`sbatch --test-only` says "Requested node configuration is not available" both of a job that no node can ever
run and of one whose nodes are only drained or down now, which sbatch itself accepts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiment_utils.errors import Problem
from experiment_utils.quantities import counted, parse_size
from memory import format_bytes
from slurm.cluster.facts import NodeKind, Partition


@dataclass(frozen=True)
class _Need:
    key: str
    asked: str
    """The amount, as text."""
    fits: Callable[[NodeKind], bool]
    most: str
    """The most that a node has, as text."""


def never_fits(options: Mapping[str, Any], partitions: Sequence[Partition]) -> list[Problem]:
    """Needs of a job that no node of its partitions meets in any state; empty if some nodes can, or if it is
    not known what nodes have.

    Args:
        options: Options of sbatch, without dashes.
    """
    kinds = [kind for partition in partitions for kind in partition.kinds if kind.count]
    names = ",".join(partition.name for partition in partitions)
    needs = list(_needs(options, partitions))
    fitting = [kind for kind in kinds if all(need.fits(kind) for need in needs)]
    nodes = int(options.get("nodes", 1))
    if not kinds or sum(kind.count for kind in fitting) >= nodes:
        return []
    if fitting:
        most = sum(kind.count for kind in fitting)
        return [Problem("slurm.nodes", f"{nodes} nodes: partition {names} has {most} that fit the job")]
    unmet = [need for need in needs if not any(need.fits(kind) for kind in kinds)]
    if unmet:
        return [
            Problem(need.key, f"{need.asked} on a node: partition {names} has {need.most}") for need in unmet
        ]
    listed = "; ".join(dict.fromkeys(_describe(kind) for kind in kinds))
    asked = " and ".join(need.asked for need in needs)
    what = f"no node of partition {names} has all of it: {asked}. Its nodes: {listed}"
    return [Problem("slurm.partition", what)]


def away_nodes(options: Mapping[str, Any], partitions: Sequence[Partition]) -> int:
    """Nodes that fit the job and are down, drained or in maintenance now."""
    needs = list(_needs(options, partitions))
    kinds = (kind for partition in partitions for kind in partition.kinds)
    return sum(kind.away for kind in kinds if all(need.fits(kind) for need in needs))


def _needs(options: Mapping[str, Any], partitions: Sequence[Partition]) -> Iterator[_Need]:
    """Options of ours; what `slurm.options` adds is not looked at."""
    mem = options.get("mem")
    if mem is not None:
        mem_bytes = parse_size(str(mem))
        most_bytes = max((found.most_mem_bytes or 0 for found in partitions), default=0)
        yield _Need(
            "slurm.mem",
            format_bytes(mem_bytes),
            lambda kind: kind.mem_bytes is None or mem_bytes <= kind.mem_bytes,
            f"at most {format_bytes(most_bytes)}",
        )
    cpus = int(options.get("cpus-per-task", 1)) * int(options.get("ntasks-per-node", 1))
    most_cpus = max((found.most_cpus or 0 for found in partitions), default=0)
    yield _Need(
        "slurm.cpus_per_task",
        counted(cpus, "CPU"),
        lambda kind: kind.cpus is None or cpus <= kind.cpus,
        f"at most {most_cpus}",
    )
    kind_of_gres, *of_gpus = str(options.get("gres", "")).split(":")
    if kind_of_gres == "gpu" and of_gpus and of_gpus[-1].isdigit():
        count, gpu_type = int(of_gpus[-1]), of_gpus[0] if len(of_gpus) == 2 else None
        most = max((found.most_gpus(gpu_type) or 0 for found in partitions), default=0)
        types = sorted({name for found in partitions for name in found.gpu_types})
        has_type = gpu_type is None or most > 0
        yield _Need(
            "slurm.gpus_per_node" if has_type else "slurm.gpu_type",
            f"{count} {gpu_type or ''} GPU".replace("  ", " "),
            lambda kind: kind.gpus_of(gpu_type) >= count,
            f"at most {most}"
            if has_type
            else f"no {gpu_type}; types: {' '.join(types) or 'none has a name'}",
        )
    constraint = str(options.get("constraint", ""))
    if re.fullmatch(r"[\w-]+", constraint):  # not `a100&80g`
        features = sorted({name for found in partitions for kind in found.kinds for name in kind.features})
        yield _Need(
            "slurm.constraint",
            constraint,
            lambda kind: constraint in kind.features,
            f"no such feature; choices: {' '.join(features) or 'none'}",
        )


def _describe(kind: NodeKind) -> str:
    """`8 x 96 CPUs, 375 GB, 4 a100 GPU`."""
    gpus = "".join(f", {count} {name} GPU".replace("  ", " ") for name, count in kind.gpus.items())
    return f"{kind.count} x {kind.cpus} CPUs, {format_bytes(kind.mem_bytes or 0)}{gpus}"
