"""Facts of a cluster, as its own commands report them. A fact that could not be had is None or empty."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class NodeKind:
    """Nodes of one make in a partition."""

    count: int
    cpus: int | None = None
    mem_bytes: int | None = None
    """RealMemory, of which the system can keep a part."""
    gpus: Mapping[str, int] = field(default_factory=dict)
    """GPUs of each node by type; the type is "" if they have none."""
    features: tuple[str, ...] = ()
    away: int = 0
    """Nodes that are down, drained or in maintenance now."""
    state: str = ""
    """Their states if all of them are away, else ""."""

    def gpus_of(self, kind: str | None) -> int:
        """GPUs of one type on each node; None: of any type."""
        return sum(count for name, count in self.gpus.items() if kind is None or name.lower() == kind.lower())

    def to_json(self) -> dict[str, Any]:
        return {
            "nodes": self.count,
            "cpus": self.cpus,
            "mem_bytes": self.mem_bytes,
            "gpus": dict(self.gpus),
            "features": list(self.features),
            "state": self.state,
        }


@dataclass(frozen=True)
class Partition:
    """A partition. A limit that is None is no limit, or not known."""

    name: str
    is_default: bool = False
    is_up: bool = True
    """Whether it takes jobs; one that is DOWN does, and keeps them waiting."""
    max_time_s: float | None = None
    default_time_s: float | None = None
    """Time limit of a job without --time; None: max_time_s."""
    nodes: int | None = None
    max_nodes: int | None = None
    max_mem_per_node_bytes: int | None = None
    max_cpus_per_node: int | None = None
    qos: str | None = None
    preempt_mode: str | None = None
    grace_s: float | None = None
    kinds: tuple[NodeKind, ...] = ()

    @property
    def most_mem_bytes(self) -> int | None:
        """Most memory that a job gets on one node."""
        return _least(self.max_mem_per_node_bytes, (kind.mem_bytes for kind in self.kinds))

    @property
    def most_cpus(self) -> int | None:
        """Most CPUs that a job gets on one node."""
        return _least(self.max_cpus_per_node, (kind.cpus for kind in self.kinds))

    def most_gpus(self, kind: str | None = None) -> int | None:
        """Most GPUs of one node, of a type or of any."""
        return max((nodes.gpus_of(kind) for nodes in self.kinds), default=None)

    @property
    def gpu_types(self) -> list[str]:
        return sorted({name for kind in self.kinds for name in kind.gpus if name})

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "default": self.is_default,
            "up": self.is_up,
            "max_time_s": self.max_time_s,
            "default_time_s": self.default_time_s,
            "nodes": self.nodes,
            "max_nodes": self.max_nodes,
            "most_mem_bytes": self.most_mem_bytes,
            "preempt_mode": self.preempt_mode,
            "grace_s": self.grace_s,
            "kinds": [kind.to_json() for kind in self.kinds],
        }


@dataclass(frozen=True)
class Association:
    """An account that the user can charge."""

    account: str
    qos: tuple[str, ...] = ()
    """Names of its qualities of service."""
    max_submit: int | None = None
    """MaxSubmitJobs; None: no limit."""


@dataclass(frozen=True)
class Cluster:
    """A cluster, and what its user can use of it."""

    is_here: bool = False
    """Whether its controller answered."""
    version: str = ""
    name: str = ""
    user: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Lines of `scontrol show config`."""
    partitions: Mapping[str, Partition] = field(default_factory=dict)
    associations: tuple[Association, ...] | None = None
    """Accounts of the user; None: sacctmgr did not answer."""
    default_account: str | None = None
    qos: Mapping[str, int | None] | None = None
    """MaxSubmitJobsPerUser of each quality of service, None: no limit; None: sacctmgr did not answer."""
    notes: tuple[str, ...] = ()
    """Answers that are missing, and why."""

    def setting(self, name: str) -> str:
        """Value of a setting of slurm.conf; "" if it is not set or not known."""
        value = self.settings.get(name, "").strip()
        return "" if value.lower() in ("(null)", "n/a", "none") else value

    @property
    def default_partition(self) -> Partition | None:
        return next((found for found in self.partitions.values() if found.is_default), None)

    def partitions_of(self, names: str | None) -> list[Partition]:
        """Partitions of `--partition=a,b`, without unknown names; None: the default partition."""
        if names is None:
            return [self.default_partition] if self.default_partition else []
        return [self.partitions[name] for name in names.split(",") if name in self.partitions]

    @property
    def max_array_size(self) -> int | None:
        """MaxArraySize: the largest index of an array is one below it. Slurm's default is 1001."""
        return _whole(self.setting("MaxArraySize"))

    @property
    def kill_wait_s(self) -> float | None:
        """KillWait: between SIGTERM and SIGKILL at the time limit."""
        return _whole(self.setting("KillWait").split(" ")[0])

    @property
    def enforces(self) -> frozenset[str]:
        """AccountingStorageEnforce. Each word but `none` implies `associations` (slurm.conf(5))."""
        named = {word.strip() for word in self.setting("AccountingStorageEnforce").lower().split(",")} - {""}
        implied = {"associations"} if named & {"limits", "safe", "qos", "wckeys", "nosteps"} else set()
        return frozenset(named | implied)

    @property
    def checks_partition_limits(self) -> bool:
        """Whether sbatch refuses more time or nodes than a partition allows (EnforcePartLimits)."""
        return self.setting("EnforcePartLimits").upper() not in ("", "NO")

    @property
    def counts_rss(self) -> bool:
        """Whether slurmd kills by the RSS that it polls, in which mapped files are counted."""
        named = [word.strip() for word in self.setting("JobAcctGatherParams").lower().split(",")]
        return "overmemorykill" in named and "usepss" not in named

    @property
    def signals_on_preemption(self) -> bool:
        """Whether a preempted job gets its --signal. The setting has had two names and places."""
        named = f"{self.setting('SlurmctldParameters')},{self.setting('PreemptParameters')}".lower()
        return bool({"preempt_send_user_signal", "send_user_signal"} & set(named.split(",")))

    @property
    def preempts(self) -> bool:
        return self.setting("PreemptType").removeprefix("preempt/").lower() not in ("", "none")

    @property
    def requeues_by_default(self) -> bool:
        """JobRequeue: whether a job without --requeue and --no-requeue is requeued."""
        return self.settings.get("JobRequeue", "1").strip() != "0"

    @property
    def is_this_machine(self) -> bool:
        """Whether its controller listens on loopback: a cluster of slurm/local_cluster.sh."""
        hosts = [value for name, value in self.settings.items() if name.startswith("SlurmctldHost")]
        return any("(127.0.0.1)" in host or host.startswith("localhost") for host in hosts)

    @property
    def accounts(self) -> list[str]:
        return sorted({found.account for found in self.associations or ()})

    @property
    def most_submitted(self) -> dict[str, int]:
        """MaxSubmitJobs of the user's accounts and their qualities of service, and of those of partitions."""
        mine, partitions = self.associations or (), self.partitions.values()
        names = {name for found in mine for name in found.qos} | {found.qos for found in partitions}
        limits = {f"account {found.account}": found.max_submit for found in mine}
        limits |= {f"qos {name}": most for name, most in (self.qos or {}).items() if name in names}
        is_kept = not self.settings or bool({"limits", "safe"} & self.enforces)
        return {name: most for name, most in limits.items() if most is not None and is_kept}

    def to_json(self) -> dict[str, Any]:
        return {
            "here": self.is_here,
            "version": self.version,
            "name": self.name,
            "user": self.user,
            "partitions": [found.to_json() for found in self.partitions.values()],
            "accounts": self.accounts,
            "default_account": self.default_account,
            "qos": sorted(self.qos or {}),
            "max_array_size": self.max_array_size,
            "max_submit": min(self.most_submitted.values(), default=None),
            "kill_wait_s": self.kill_wait_s,
            "counts_rss": self.counts_rss,
            "preempts": self.preempts,
            "signals_on_preemption": self.signals_on_preemption,
            "requeues_by_default": self.requeues_by_default,
            "notes": list(self.notes),
        }


def _least(limit: int | None, of_nodes: Iterable[int | None]) -> int | None:
    """The limit of a job, or what the largest node has, if that is less."""
    largest = max((known for known in of_nodes if known is not None), default=None)
    return min((known for known in (limit, largest) if known is not None), default=None)


def _whole(text: str) -> int | None:
    return int(text) if text.isdigit() else None
