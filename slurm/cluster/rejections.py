"""What the cluster would say no to: everything at once, before the first sbatch, with what there is instead.

A cluster with EnforcePartLimits=NO takes a job that can never start and lets it wait for ever, so sbatch
alone is not asked. What the cluster did not tell (`Cluster.notes`) is not judged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from conf import AUTO, Config
from conf.composing.per_model_slurm import settle
from conf.schema import Slurm
from conf.suggestions import nearest, no_such
from experiment_utils.errors import Problem
from experiment_utils.quantities import counted, format_limit
from memory import format_bytes
from slurm.cluster.facts import Cluster, NodeKind, Partition
from slurm.cluster.options import GPUS_OTHERWISE, read_options
from slurm.cluster.resources import Ask, ranks_per_node, runs_beside, shares_a_job

Elsewhere = Callable[[Callable[[Partition], bool]], str]
"""From what a partition must have to the words for another that has it; "" where there is none."""


def problems(asked: Iterable[tuple[Config, Ask]], cluster: Cluster) -> list[Problem]:
    """All that is wrong with what runs ask for, each thing once."""
    found: dict[Problem, None] = {}
    for config, one in asked:
        found |= dict.fromkeys(_of_one(settle(config).slurm, one, cluster))
    return list(found)


def _of_one(wanted: Slurm, asked: Ask, cluster: Cluster) -> Iterator[Problem]:
    options, wrong = read_options(wanted.options)
    yield from wrong
    if wanted.gpus_per_node:
        for name in GPUS_OTHERWISE:
            if name in options:
                what = f"--{name}: GPUs are asked for twice: here and by slurm.gpus_per_node. Take one away"
                yield Problem("slurm.options", what)
    if wanted.workers is not None and wanted.pack > 1:
        what = (
            f"{wanted.pack} side by side with slurm.workers={wanted.workers}: a worker takes one run after "
            "the other. Take one of the two away"
        )
        yield Problem("slurm.pack", what)
    if shares_a_job(wanted):
        how = f"slurm.workers={wanted.workers}" if wanted.workers is not None else f"slurm.pack={wanted.pack}"
        for name, many in (("nodes", wanted.nodes), ("tasks_per_node", ranks_per_node(wanted))):
            if many > 1:
                what = (
                    f"{many} with {how}: runs that share a job have one rank each. Take one of the two away"
                )
                yield Problem(f"slurm.{name}", what)
    if wanted.gpu_type is not None and not wanted.gpus_per_node:
        yield Problem("slurm.gpu_type", f"{wanted.gpu_type}: how many of them? slurm.gpus_per_node=1")
    yield from _accounts(wanted, cluster)
    yield from _qos(wanted, cluster)
    yield from _time_of_the_user(wanted, asked, cluster)
    yield from _partitions(wanted, cluster)
    found = [
        list(_of_partition(wanted, asked, partition, cluster))
        for partition in cluster.partitions_of(wanted.partition)
    ]
    if all(found):  # of `--partition=a,b` one that takes the job is enough
        yield from (problem for of_partition in found for problem in of_partition)


def _partitions(wanted: Slurm, cluster: Cluster) -> Iterator[Problem]:
    if not cluster.partitions:
        return
    if wanted.partition is None:
        if cluster.default_partition is None:
            what = f"this cluster has no default partition; choices: {' '.join(cluster.partitions)}"
            yield Problem("slurm.partition", what)
        return
    for name in wanted.partition.split(","):
        if name not in cluster.partitions:
            yield Problem("slurm.partition", no_such("partition", name, list(cluster.partitions)))


def _accounts(wanted: Slurm, cluster: Cluster) -> Iterator[Problem]:
    if cluster.associations is None:
        return
    if not cluster.accounts:
        if "associations" in cluster.enforces:
            what = f"{cluster.user} has no account on this cluster. Whoever runs it has to make one"
            yield Problem("slurm.account", what)
    elif wanted.account is not None and wanted.account.lower() not in map(str.lower, cluster.accounts):
        yield Problem(
            "slurm.account", no_such(f"account of {cluster.user}", wanted.account, cluster.accounts)
        )


def _qos(wanted: Slurm, cluster: Cluster) -> Iterator[Problem]:
    if wanted.qos is None or not cluster.qos:
        return
    if wanted.qos not in cluster.qos:
        yield Problem("slurm.qos", no_such("quality of service", wanted.qos, sorted(cluster.qos)))
        return
    mine = [found for found in cluster.associations or () if wanted.account in (None, found.account)]
    allowed = {name for found in mine for name in found.qos}
    if allowed and "associations" in cluster.enforces and wanted.qos not in allowed:
        whose = f"account {wanted.account}" if wanted.account else "your accounts"
        choices = " ".join(sorted(allowed))
        yield Problem("slurm.qos", f"{wanted.qos} is not open to {whose}; choices: {choices}")


def _time_of_the_user(wanted: Slurm, asked: Ask, cluster: Cluster) -> Iterator[Problem]:
    """What the partition's quality of service allows, the job's or the account, where limits are kept: as
    Slurm does, by the first that has one.
    """
    if ("limits" not in cluster.enforces and "safe" not in cluster.enforces) or "time" not in asked.options:
        return
    mine = cluster.associations_of(wanted.account, wanted.partition)

    def of_qos(names: Iterable[str | None]) -> list[tuple[str, float]]:
        found = [(cluster.qos or {}).get(name or "") for name in names]
        return [(f"quality of service {one.name}", one.max_time_s) for one in found if one and one.max_time_s]

    of_job = of_qos([wanted.qos] if wanted.qos else [found.default_qos for found in mine])
    of_account = [(f"account {found.account}", found.max_time_s) for found in mine if found.max_time_s]
    for qos in [found.qos for found in cluster.partitions_of(wanted.partition)] or [None]:
        for whose, most in of_qos([qos]) or of_job or of_account:
            if asked.limit_s is None or asked.limit_s > most:
                what = f"{asked.options['time']} is more than {whose} allows: slurm.time={format_limit(most)}"
                yield Problem("slurm.time", what)
                return


def _of_partition(wanted: Slurm, asked: Ask, partition: Partition, cluster: Cluster) -> Iterator[Problem]:
    others = [found for found in cluster.partitions.values() if found.name != partition.name and found.is_up]

    def elsewhere(fits: Callable[[Partition], bool]) -> str:
        names = [found.name for found in others if fits(found)]
        return f"; slurm.partition={names[0]} would take it" if names else ""

    name = partition.name
    if not partition.is_up:
        up = " ".join(found.name for found in others) or "none"
        yield Problem("slurm.partition", f"{name} takes no jobs now (it is not UP); partitions that do: {up}")
    yield from _allowed(wanted, partition)
    most_time = partition.max_time_s
    asked_s = float("inf") if asked.limit_s is None and "time" in asked.options else asked.limit_s
    if asked_s is not None and most_time is not None and asked_s > most_time:
        typed = "UNLIMITED" if asked.limit_s is None else format_limit(asked_s)
        fits = elsewhere(lambda found: found.max_time_s is None or found.max_time_s >= asked_s)
        yield Problem(
            "slurm.time",
            f"{typed} is more than partition {name} allows, {format_limit(most_time)}{fits}. With "
            f"slurm.requeue=true a run goes on after its limit: slurm.time={format_limit(most_time)}",
        )
    yield from _nodes(wanted, partition, elsewhere)
    if partition.kinds:
        yield from _of_kinds(wanted, asked, partition, elsewhere)


def _allowed(wanted: Slurm, partition: Partition) -> Iterator[Problem]:
    for where, given, allowed, denied in (
        ("slurm.account", wanted.account, partition.allow_accounts, partition.deny_accounts),
        ("slurm.qos", wanted.qos, partition.allow_qos, partition.deny_qos),
    ):
        if given is None:
            continue
        if allowed and given.lower() not in map(str.lower, allowed):
            what = f"{given} may not use partition {partition.name}; who may: {' '.join(allowed)}"
            yield Problem(where, what)
        elif given.lower() in map(str.lower, denied):
            yield Problem(where, f"{given} may not use partition {partition.name}")


def _nodes(wanted: Slurm, partition: Partition, elsewhere: Elsewhere) -> Iterator[Problem]:
    bounds = [bound for bound in (partition.nodes, partition.max_nodes) if bound is not None]
    most = min(bounds, default=None)
    if most is not None and wanted.nodes > most:
        fits = elsewhere(
            lambda found: (found.nodes or 0) >= wanted.nodes <= (found.max_nodes or wanted.nodes)
        )
        whose = "has" if most == partition.nodes else "gives a job"
        what = (
            f"{wanted.nodes} are asked for, partition {partition.name} {whose} {counted(most, 'node')}{fits}"
        )
        yield Problem("slurm.nodes", what)
    elif wanted.nodes < partition.min_nodes:
        what = f"partition {partition.name} is for jobs of {partition.min_nodes} nodes and more"
        yield Problem("slurm.nodes", what)


@dataclass(frozen=True)
class _Need:
    """One thing that a node must have. fits: whether one does; most: what there is, in words."""

    where: str
    asks: str
    fits: Callable[[Partition, NodeKind], bool]
    most: Callable[[Partition], str]

    def is_met(self, partition: Partition) -> bool:
        return any(self.fits(partition, kind) for kind in partition.kinds)


def _of_kinds(wanted: Slurm, asked: Ask, partition: Partition, elsewhere: Elsewhere) -> Iterator[Problem]:
    """Needs that no node of the partition meets, each by itself; else that none meets all of them."""
    needs = list(_needs(wanted, asked, partition))
    unmet = [need for need in needs if not need.is_met(partition)]
    for need in unmet:
        yield Problem(need.where, f"{need.asks}, {need.most(partition)}{elsewhere(need.is_met)}")
    if unmet or any(all(need.fits(partition, kind) for need in needs) for kind in partition.kinds):
        return
    wants = " and ".join(need.asks for need in needs)
    listed = "; ".join(dict.fromkeys(_words(kind) for kind in partition.kinds))
    what = f"no node of partition {partition.name} has all of it: {wants}. Its nodes: {listed}"
    yield Problem("slurm.partition", what)


def _needs(wanted: Slurm, asked: Ask, partition: Partition) -> Iterator[_Need]:
    if asked.mem_bytes is not None:
        yield _memory(asked.mem_bytes)
    yield _cpus(asked.cpus // wanted.nodes, wanted)
    if wanted.gpus_per_node:
        yield _gpus(wanted.gpus_per_node, wanted.gpu_type, partition)
    if wanted.constraint is not None and wanted.constraint.replace("_", "").replace("-", "").isalnum():
        yield _feature(wanted.constraint)  # not `a100&80g` and the like, which are sbatch's to judge


def _memory(asked_bytes: int) -> _Need:
    def fits(partition: Partition, kind: NodeKind) -> bool:
        bounds = (kind.mem_bytes, partition.max_mem_per_node_bytes)
        return all(bound is None or asked_bytes <= bound for bound in bounds)

    return _Need(
        "slurm.mem",
        f"{format_bytes(asked_bytes)} of a node are asked for",
        fits,
        lambda found: (
            f"a job in partition {found.name} gets {format_bytes(found.most_mem_bytes or 0)} at most"
        ),
    )


def _cpus(count: int, wanted: Slurm) -> _Need:
    beside = runs_beside(wanted)
    is_of_runs = beside > 1 and wanted.cpus_per_task == AUTO

    def fits(partition: Partition, kind: NodeKind) -> bool:
        return all(bound is None or count <= bound for bound in (kind.cpus, partition.max_cpus_per_node))

    return _Need(
        "slurm.pack" if is_of_runs else "slurm.cpus_per_task",
        f"{counted(count, 'CPU')} of a node are asked for"
        + (f", {count // beside} for each of {beside} runs (slurm.cpus_per_task)" if is_of_runs else ""),
        fits,
        lambda found: f"a job in partition {found.name} gets {found.most_cpus} at most",
    )


def _gpus(count: int, gpu_type: str | None, partition: Partition) -> _Need:
    is_of_type = gpu_type is not None and not partition.most_gpus(gpu_type)
    gpus = " ".join([str(count), *([gpu_type] if gpu_type else []), "GPU" if count == 1 else "GPUs"])

    def most(found: Partition) -> str:
        if not found.most_gpus():
            return f"partition {found.name} has no GPUs"
        if is_of_type:
            types = " ".join(found.gpu_types) or "none has a name, leave slurm.gpu_type out"
            return f"partition {found.name} has no {gpu_type}; types: {types}"
        return f"a node of partition {found.name} has {found.most_gpus(gpu_type)} at most"

    return _Need(
        "slurm.gpu_type" if is_of_type else "slurm.gpus_per_node",
        f"{gpus} of a node are asked for",
        lambda found, kind: kind.gpus_of(gpu_type) >= count,
        most,
    )


def _feature(name: str) -> _Need:
    def most(found: Partition) -> str:
        there = sorted({feature for kind in found.kinds for feature in kind.features})
        close = nearest(name, there)
        listed = f"nearest: {', '.join(close)}" if close else f"there are: {' '.join(there) or 'none'}"
        return f"partition {found.name} has none; {listed}"

    return _Need(
        "slurm.constraint",
        f"nodes with {name} are asked for",
        lambda found, kind: name in kind.features,
        most,
    )


def _words(kind: NodeKind) -> str:
    gpus = ", ".join(f"{count} {name} GPU".replace("  ", " ") for name, count in kind.gpus.items())
    mem = format_bytes(kind.mem_bytes or 0)
    return f"{kind.count} x {kind.cpus} CPUs, {mem}" + (f", {gpus}" if gpus else "")
