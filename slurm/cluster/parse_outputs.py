"""The outputs of Slurm's commands, 20.11 to 25.11, as facts. A key that a version lacks is a fact not known.

Sources: scontrol(1), sinfo(1), sacctmgr(1); tests/golden/slurm/cluster names outputs of real clusters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from memory.accounting.sacct import to_seconds
from slurm.cluster.facts import Association, NodeKind, Partition, Qos

SINFO_FORMAT = "%R|%a|%D|%c|%m|%t|%G|%f"
"""Of nodes of one make: partition, whether it takes jobs, how many, CPUs, MB, state, GRES, features."""

ASSOCIATION_FIELDS = (
    "Cluster", "Account", "Partition", "QOS", "DefaultQOS", "MaxJobs", "MaxSubmit", "MaxWall",
    "DefaultAccount",
)  # fmt: skip
QOS_FIELDS = ("Name", "MaxWall", "MaxJobsPU", "MaxSubmitPU", "PreemptMode")

_MB = 1 << 20
_NOT_SET = ("", "UNLIMITED", "INFINITE", "NONE", "N/A", "(NULL)", "NOT_SET")
NO_NODES = ("down", "fail", "failg", "futr", "inval", "unk", "drain", "drng", "drained", "boot_fail")
"""States of nodes, as sinfo's %t shows them, in which no job starts."""
FLAGS = "*~#!%$@^-"
"""What sinfo's %t adds to a state."""


def parse_partitions(text: str) -> dict[str, Partition]:
    """Of `scontrol show partition`, on one line each or several. Node kinds are not told there."""
    found = (_partition(block) for block in re.split(r"(?=\bPartitionName=)", text))
    return {partition.name: partition for partition in found if partition is not None}


def with_nodes(partitions: dict[str, Partition], sinfo: str) -> dict[str, Partition]:
    """The partitions with the kinds of their nodes, of `sinfo -e -o SINFO_FORMAT`, and those that only sinfo
    knows."""
    kinds: dict[str, list[NodeKind]] = {}
    for name, kind in _kinds(sinfo):
        kinds.setdefault(name, []).append(kind)
    known = {name: partitions.get(name) or Partition(name) for name in [*partitions, *kinds]}
    return {
        name: replace(
            partition,
            kinds=tuple(_joined(kinds.get(name, []))),
            nodes=partition.nodes
            if partition.nodes is not None
            else sum(kind.count for kind in kinds.get(name, [])),
        )
        for name, partition in known.items()
    }


def parse_gpus(gres: str) -> dict[str, int]:
    """GPUs by type: `gpu:a100:4(S:0-1),nvme:1` is {"a100": 4}, `gpu:4` {"": 4}; MPS and shards are none."""
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
    """Of `sacctmgr show user withassoc` with ASSOCIATION_FIELDS; of one cluster, if it has a name."""
    return tuple(
        Association(
            account=row["Account"],
            partition=row.get("Partition") or None,
            qos=_names(row.get("QOS", "")),
            default_qos=row.get("Def QOS") or row.get("DefaultQOS") or None,
            max_submit=_count(row.get("MaxSubmit", "")),
            max_time_s=to_seconds(row.get("MaxWall", "")),
        )
        for row in _rows(text)
        if row.get("Account") and (not cluster or row.get("Cluster", cluster) == cluster)
    )


def default_account(text: str) -> str | None:
    """The account of a job that names none; of the same output."""
    named = (row.get("Def Acct") or row.get("DefaultAccount") for row in _rows(text))
    return next((name for name in named if name), None)


def parse_qos(text: str) -> dict[str, Qos]:
    """Of `sacctmgr --parsable2` with QOS_FIELDS and a header."""
    return {
        row["Name"]: Qos(
            name=row["Name"],
            max_time_s=to_seconds(row.get("MaxWall", "")),
            max_submit=_count(row.get("MaxSubmitPU", "")),
            preempt_mode=row.get("PreemptMode", "").lower() or None,
        )
        for row in _rows(text)
        if row.get("Name")
    }


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
        min_nodes=_count(values.get("MinNodes", "")) or 0,
        max_nodes=_count(values.get("MaxNodes", "")),
        max_mem_per_node_bytes=_megabytes(values.get("MaxMemPerNode", "")),
        max_cpus_per_node=_count(values.get("MaxCPUsPerNode", "")),
        allow_accounts=_names(values.get("AllowAccounts", "")),
        deny_accounts=_names(values.get("DenyAccounts", "")),
        allow_qos=_names(values.get("AllowQos", values.get("AllowQOS", ""))),
        deny_qos=_names(values.get("DenyQos", values.get("DenyQOS", ""))),
        qos=_one(values.get("QoS", "")),
        preempt_mode=values.get("PreemptMode", "").lower() or None,
        grace_s=float(_count(values.get("GraceTime", "")) or 0),
    )


def _kinds(sinfo: str) -> Iterator[tuple[str, NodeKind]]:
    for line in sinfo.splitlines():
        parts = line.strip().split("|", 7)
        if len(parts) < 8 or not parts[2].strip().isdigit():
            continue
        name, _, nodes, cpus, mem, state, gres, features = (part.strip() for part in parts)
        yield (
            name.rstrip("*"),
            NodeKind(
                count=int(nodes),
                cpus=_count(cpus.rstrip("+")),
                mem_bytes=_megabytes(mem.rstrip("+")),
                gpus=parse_gpus(gres),
                features=_names(features),
                state=state,
            ),
        )


def _joined(kinds: Iterable[NodeKind]) -> Iterator[NodeKind]:
    """Nodes of one make in several states as one kind. state: "" where some of them can run jobs."""
    makes: dict[str, list[NodeKind]] = {}
    for kind in kinds:
        makes.setdefault(repr((kind.cpus, kind.mem_bytes, dict(kind.gpus), kind.features)), []).append(kind)
    for same in makes.values():
        states = [kind.state.rstrip(FLAGS) for kind in same]
        is_up = any(state not in NO_NODES for state in states)
        state = "" if is_up else "/".join(dict.fromkeys(states))
        yield replace(same[0], count=sum(kind.count for kind in same), state=state)


def _rows(text: str) -> Iterator[dict[str, str]]:
    lines = [line.rstrip("\r\n") for line in text.splitlines() if "|" in line]
    if lines:
        header = lines[0].split("|")
        for line in lines[1:]:
            yield dict(zip(header, (cell.strip() for cell in line.split("|")), strict=False))


def _names(text: str) -> tuple[str, ...]:
    """Of a list; empty where everything is allowed, or nothing is named."""
    if text.upper() in (*_NOT_SET, "ALL"):
        return ()
    return tuple(name for name in text.split(",") if name)


def _one(text: str) -> str | None:
    return None if text.upper() in _NOT_SET else text


def _count(text: str) -> int | None:
    match = re.match(r"\d+", text.strip())
    return int(match[0]) if match else None


def _megabytes(text: str) -> int | None:
    """`4096`, or with a unit `96G`. None for no limit, and for 0, by which Slurm means all of a node."""
    match = re.fullmatch(r"(\d+)([KMGT]?)B?", text.strip().upper())
    if match is None or int(match[1]) == 0:
        return None
    scale = {"": _MB, "K": 1 << 10, "M": _MB, "G": 1 << 30, "T": 1 << 40}[match[2]]
    return int(match[1]) * scale


def _minutes(text: str) -> float | None:
    """Of `1-00:00:00` or `00:15:00`; a lone number is minutes."""
    if text.upper() in _NOT_SET:
        return None
    return float(text) * 60 if text.isdigit() else to_seconds(text)
