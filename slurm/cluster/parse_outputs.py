"""Readers of the outputs of Slurm's commands, 20.11 to 25.11. A key that a version lacks is not known.

Sources: scontrol(1), sinfo(1), sacctmgr(1). tests/golden/slurm/cluster names outputs of real clusters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from memory.accounting.sacct import to_seconds
from slurm.cluster.facts import Association, NodeKind, Partition

SINFO_FORMAT = "%R|%a|%D|%c|%m|%t|%G|%f"
"""Nodes of one make: partition, whether it takes jobs, count, CPUs, MB, state, GRES, features."""

ASSOCIATION_FIELDS = ("Cluster", "Account", "QOS", "MaxSubmit", "DefaultAccount")
QOS_FIELDS = ("Name", "MaxSubmitPU")

_MB = 1 << 20
_NOT_SET = ("", "UNLIMITED", "INFINITE", "NONE", "N/A", "(NULL)", "NOT_SET")
_AWAY = (
    "down", "fail", "failg", "futr", "inval", "unk", "drain", "drng", "drained", "boot_fail", "maint",
)  # fmt: skip
"""States of nodes, as sinfo's %t shows them, in which no job starts."""
_FLAGS = "*~#!%$@^-"
"""Characters that sinfo's %t adds to a state."""


def parse_partitions(text: str) -> dict[str, Partition]:
    """Partitions in the output of `scontrol show partition`, without the kinds of their nodes."""
    found = (_partition(block) for block in re.split(r"(?=\bPartitionName=)", text))
    return {partition.name: partition for partition in found if partition is not None}


def with_nodes(partitions: dict[str, Partition], sinfo: str) -> dict[str, Partition]:
    """The partitions with the kinds of their nodes, and those that only sinfo lists.

    Args:
        sinfo: Output of `sinfo --exact --format=SINFO_FORMAT`.
    """
    rows: dict[str, list[NodeKind]] = {}
    for name, kind in _kinds(sinfo):
        rows.setdefault(name, []).append(kind)
    found = {}
    for name in [*partitions, *(name for name in rows if name not in partitions)]:
        partition, kinds = partitions.get(name) or Partition(name), _merged(rows.get(name, []))
        nodes = sum(kind.count for kind in kinds) if partition.nodes is None else partition.nodes
        found[name] = replace(partition, kinds=kinds, nodes=nodes)
    return found


def parse_gpus(gres: str) -> dict[str, int]:
    """GPUs by type: `gpu:a100:4(S:0-1),nvme:1` is {"a100": 4}, `gpu:4` {"": 4}. No MPS, no shards."""
    gpus: dict[str, int] = {}
    for entry in re.split(r",(?![^(]*\))", gres.strip()):
        parts = re.sub(r"\(.*?\)", "", entry).split(":")
        counts = [part for part in parts[1:] if re.fullmatch(r"\d+[KMG]?", part)]
        if parts[0].strip() != "gpu" or not counts:
            continue
        kind = next((part for part in parts[1:] if part not in counts and part != "no_consume"), "")
        gpus[kind] = gpus.get(kind, 0) + int(re.sub(r"\D", "", counts[-1]))
    return gpus


def parse_associations(text: str, cluster: str) -> tuple[Association, ...]:
    """Associations in the output of `sacctmgr show user withassoc`, of the cluster, if it has a name."""
    return tuple(
        Association(
            account=row["Account"],
            qos=_names(row.get("QOS", "")),
            max_submit=_count(row.get("MaxSubmit", "")),
        )
        for row in _rows(text)
        if row.get("Account") and (not cluster or row.get("Cluster", cluster) == cluster)
    )


def default_account(text: str) -> str | None:
    """Account of a job that names none, in the same output."""
    named = (row.get("Def Acct") or row.get("DefaultAccount") for row in _rows(text))
    return next((name for name in named if name), None)


def parse_qos(text: str) -> dict[str, int | None]:
    """MaxSubmitJobsPerUser by name, in the output of `sacctmgr --parsable2 show qos` with QOS_FIELDS."""
    return {row["Name"]: _count(row.get("MaxSubmitPU", "")) for row in _rows(text) if row.get("Name")}


def _partition(block: str) -> Partition | None:
    values: dict[str, str] = dict(re.findall(r"([\w/]+)=(\S*)", block))
    if not values.get("PartitionName"):
        return None
    return Partition(
        name=values["PartitionName"],
        is_default=values.get("Default", "").upper() == "YES",
        is_up=values.get("State", "UP").upper() in ("UP", "DOWN"),  # one that is down queues jobs
        max_time_s=_minutes(values.get("MaxTime", "")),
        default_time_s=_minutes(values.get("DefaultTime", "")),
        nodes=_count(values.get("TotalNodes", "")),
        max_nodes=_count(values.get("MaxNodes", "")),
        max_mem_per_node_bytes=_megabytes(values.get("MaxMemPerNode", "")),
        max_cpus_per_node=_count(values.get("MaxCPUsPerNode", "")),
        qos=next(iter(_names(values.get("QoS", ""))), None),
        preempt_mode=values.get("PreemptMode", "").lower() or None,
        grace_s=float(_count(values.get("GraceTime", "")) or 0),
    )


def _kinds(sinfo: str) -> Iterator[tuple[str, NodeKind]]:
    """Partition and nodes of each line; nodes of one make are on a line for each of their states."""
    for line in sinfo.splitlines():
        parts = [part.strip() for part in line.split("|", 7)]
        if len(parts) < 8 or not parts[2].isdigit():
            continue
        name, _, nodes, cpus, mem, state, gres, features = parts
        is_away = state.rstrip(_FLAGS) in _AWAY
        kind = NodeKind(
            count=int(nodes),
            cpus=_count(cpus),
            mem_bytes=_megabytes(mem.rstrip("+")),
            gpus=parse_gpus(gres),
            features=_names(features),
            away=int(nodes) if is_away else 0,
            state=state.rstrip(_FLAGS) if is_away else "",
        )
        yield name.rstrip("*"), kind


def _merged(kinds: list[NodeKind]) -> tuple[NodeKind, ...]:
    """One kind for nodes of one make, whatever their states."""
    makes: dict[str, list[NodeKind]] = {}
    for kind in kinds:
        makes.setdefault(repr((kind.cpus, kind.mem_bytes, dict(kind.gpus), kind.features)), []).append(kind)
    return tuple(
        replace(
            same[0],
            count=sum(kind.count for kind in same),
            away=sum(kind.away for kind in same),
            state="/".join(dict.fromkeys(kind.state for kind in same))
            if all(kind.state for kind in same)
            else "",
        )
        for same in makes.values()
    )


def _rows(text: str) -> Iterator[dict[str, str]]:
    lines = [line.rstrip("\r\n") for line in text.splitlines() if "|" in line]
    if lines:
        header = lines[0].split("|")
        for line in lines[1:]:
            yield dict(zip(header, (cell.strip() for cell in line.split("|")), strict=False))


def _names(text: str) -> tuple[str, ...]:
    """Names of a list with commas; empty if it has none, or allows all."""
    if text.upper() in (*_NOT_SET, "ALL"):
        return ()
    return tuple(name for name in text.split(",") if name)


def _count(text: str) -> int | None:
    match = re.match(r"\d+", text.strip())
    return int(match[0]) if match else None


def _megabytes(text: str) -> int | None:
    """Bytes of `4096` or `96G`; None: no limit, or 0, by which Slurm means all of a node."""
    match = re.fullmatch(r"(\d+)([KMGT]?)B?", text.strip().upper())
    if match is None or int(match[1]) == 0:
        return None
    scale = {"": _MB, "K": 1 << 10, "M": _MB, "G": 1 << 30, "T": 1 << 40}[match[2]]
    return int(match[1]) * scale


def _minutes(text: str) -> float | None:
    """Seconds of `1-00:00:00` or `00:15:00`; a number alone is minutes."""
    if text.upper() in _NOT_SET:
        return None
    return float(text) * 60 if text.isdigit() else to_seconds(text)
