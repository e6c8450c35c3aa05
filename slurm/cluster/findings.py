"""Checks of a cluster, with what to do about each: `python -m slurm doctor`."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from experiment_utils.quantities import format_duration
from memory import format_bytes
from memory.accounting.sacct import Ask, run_client, why_not
from slurm.cluster.facts import Cluster
from slurm.cluster.reachability import local_kind

FAILS, MIND, FINE = "fails", "mind", "fine"
"""It cannot work; it works in another way than most users expect; it is as it should be."""
SLOW_S = 3.0
SACCT_TIMEOUT_S = 15.0
_CLIENTS = ("sbatch", "squeue", "scontrol", "srun", "scancel", "sinfo")
_SHORT_S = 3600.0


@dataclass(frozen=True)
class Finding:
    """Result of one check."""

    level: str
    """FAILS, MIND or FINE."""
    name: str
    what: str
    do: str = ""
    """A command to type, or a person to ask."""


def findings(cluster: Cluster, runs_dir: Path, *, ask: Ask | None = None) -> list[Finding]:
    """Results of all checks, the worst first. ask: runs a client command; tests pass answers."""
    found = [*_clients(cluster)]
    if cluster.is_here:
        for check in (_partitions, _memory, _time_limit, _preemption, _arrays, _accounts, _mail):
            found += check(cluster)
        found += _sacct(ask or run_client)
        found += _folders(cluster, runs_dir)
    order = (FAILS, MIND, FINE)
    return sorted(found, key=lambda finding: order.index(finding.level))


def _clients(cluster: Cluster) -> Iterator[Finding]:
    missing = [name for name in _CLIENTS if shutil.which(name) is None]
    if len(missing) == len(_CLIENTS):
        yield Finding(
            FAILS, "slurm", "this machine has no Slurm",
            "type this on a login node of the cluster. On this machine: hydra/launcher=local, or a cluster "
            "for trials: slurm/local_cluster.sh start",
        )  # fmt: skip
        return
    if not cluster.is_here:
        why = cluster.notes[0] if cluster.notes else "no answer"
        yield Finding(
            FAILS, "controller", f"Slurm is installed and its controller does not answer: {why}",
            'scontrol ping; for slurm/local_cluster.sh: eval "$(slurm/local_cluster.sh env)"',
        )  # fmt: skip
        return
    if missing:
        yield Finding(FAILS, "slurm", f"no {', '.join(missing)} in PATH", "module load slurm, or ask for it")
    for note in cluster.notes:
        yield Finding(MIND, "questions", note, "sbatch still refuses what the cluster does not accept")
    version = tuple(int(part) for part in cluster.version.split(".")[:2] if part.isdigit())
    if version and version < (20, 11):
        yield Finding(MIND, "version", f"Slurm {cluster.version}", "20.11 to 25.11 were tested")
    else:
        yield Finding(FINE, "version", f"Slurm {cluster.version or '?'}, cluster {cluster.name or '?'}")


def _partitions(cluster: Cluster) -> Iterator[Finding]:
    partitions = cluster.partitions.values()
    if partitions and cluster.default_partition is None:
        names = " ".join(cluster.partitions)
        yield Finding(MIND, "partition", "there is no default partition", f"slurm.partition=NAME: {names}")
    closed = [found.name for found in partitions if not found.is_up]
    if closed:
        yield Finding(MIND, "partition", f"take no jobs now: {' '.join(closed)}", "slurm.partition=NAME")
    dead = [found.name for found in partitions if found.kinds and all(kind.state for kind in found.kinds)]
    if dead:
        yield Finding(MIND, "nodes", f"no node of {' '.join(dead)} can run a job now", "sinfo -R shows why")
    if cluster.setting("EnforcePartLimits").upper() == "NO":
        yield Finding(
            MIND, "limits", "sbatch accepts jobs above the limits of a partition (EnforcePartLimits=NO)",
            "slurm.time is checked here; status shows another job that can never start as queued, with "
            "Slurm's reason (PartitionNodeLimit, PartitionConfig)",
        )  # fmt: skip


def _memory(cluster: Cluster) -> Iterator[Finding]:
    if cluster.counts_rss:
        yield Finding(
            MIND, "memory", "limited by RSS that slurmd polls (OverMemoryKill), including mapped files: a "
            "run that maps more than its --mem is killed, even if it needs far less",
            "nothing for reader=auto, which reads with pread there, and slurm.mem=auto, which adds mapped "
            "libraries; dataset.reader=mmap would be killed",
        )  # fmt: skip
        return
    plugin, task = cluster.setting("CgroupPlugin"), cluster.setting("TaskPlugin")
    if task and "cgroup" not in task.lower():
        yield Finding(
            MIND, "memory", f"not limited (TaskPlugin={task}): a run above its --mem takes memory of other "
            "jobs, and the OOM killer of the host kills any of them",
            "python -m memory explain RUN shows it as oom_host",
        )  # fmt: skip
    elif task:
        yield Finding(FINE, "memory", f"limited by the kernel ({plugin or task}): mapped files are reclaimed")
    if not any(kind.mem_bytes for found in cluster.partitions.values() for kind in found.kinds):
        yield Finding(MIND, "memory", "sinfo does not report that of nodes", "plans need slurm.mem=SIZE")
    shared = cluster.setting("SelectTypeParameters")
    if shared and "memory" not in shared.lower():
        yield Finding(
            MIND, "memory", f"not a resource of jobs ({shared}): --mem reserves nothing, several jobs can "
            "each use all memory of a node", "slurm.options=[--exclusive] where it matters",
        )  # fmt: skip


def _time_limit(cluster: Cluster) -> Iterator[Finding]:
    default = cluster.default_partition
    if default is not None and default.default_time_s is not None and default.default_time_s < _SHORT_S:
        yield Finding(
            MIND, "time", f"a job without --time gets {format_duration(default.default_time_s)} in "
            f"{default.name}. slurm.time=auto asks for none until a run of the same kind has been measured",
            "slurm.time=4:00:00 for the first ones",
        )  # fmt: skip


def _preemption(cluster: Cluster) -> Iterator[Finding]:
    if not cluster.preempts:
        yield Finding(FINE, "preemption", "jobs are not preempted")
        return
    partitions = cluster.partitions.values()
    ends = [found.name for found in partitions if "cancel" in (found.preempt_mode or "")]
    if not ends and "cancel" in cluster.setting("PreemptMode").lower():
        ends = ["jobs"]
    if ends:
        yield Finding(
            MIND, "preemption", f"{' '.join(ends)}: a preempted job is cancelled, not requeued",
            "python -m slurm resubmit STUDY --only preempted; the runs resume from their checkpoints",
        )  # fmt: skip
    if cluster.signals_on_preemption:
        yield Finding(FINE, "preemption", "a preempted job gets its --signal first (send_user_signal)")
        return
    grace_s = max((found.grace_s or 0 for found in partitions), default=0)
    grace = f"SIGTERM comes up to {grace_s:.0f} s before" if grace_s else "there is no grace time"
    yield Finding(
        MIND, "preemption", f"a preempted job gets no --signal (no preempt_send_user_signal); {grace}",
        "a run checkpoints on SIGTERM too. Without a grace time it resumes from its last checkpoint: "
        "training.checkpoint_every=N small enough",
    )  # fmt: skip


def _arrays(cluster: Cluster) -> Iterator[Finding]:
    size = cluster.max_array_size
    if size is not None and size <= 1:
        yield Finding(
            MIND, "arrays", f"job arrays are off (MaxArraySize={size})",
            "each run is submitted as a job of its own; slurm.workers=K needs K jobs for a sweep",
        )  # fmt: skip
    elif size is not None:
        yield Finding(FINE, "arrays", f"up to {size:,} tasks each")
    limits = [f"{most:,} for {name}" for name, most in cluster.most_submitted.items()]
    if limits:
        yield Finding(
            MIND, "MaxSubmitJobs", f"jobs of yours in the queue at a time: {', '.join(limits)}",
            "a larger sweep shares jobs: slurm.pack=8 or slurm.workers=K",
        )  # fmt: skip


def _accounts(cluster: Cluster) -> Iterator[Finding]:
    if cluster.accounts:
        qos = sorted({name for found in cluster.associations or () for name in found.qos})
        listed = " ".join(cluster.accounts) + (f"; quality of service: {' '.join(qos)}" if qos else "")
        yield Finding(FINE, "accounts", f"of {cluster.user}: {listed}")
    elif cluster.associations is not None and "associations" in cluster.enforces:
        yield Finding(
            FAILS, "accounts", f"{cluster.user} has none on this cluster", "ask its operators for one"
        )


def _mail(cluster: Cluster) -> Iterator[Finding]:
    if cluster.settings and not cluster.setting("MailProg"):
        yield Finding(MIND, "mail", "Slurm sends none here", "notify=https://... takes a webhook")


def _sacct(ask: Ask) -> Iterator[Finding]:
    began = time.monotonic()
    answer = ask(["sacct", "--allocations", "--noheader", "--parsable2", "--format=JobID"], SACCT_TIMEOUT_S)
    seconds = time.monotonic() - began
    if answer.code != 0:
        without = (
            "status and why read squeue and the runs' own files, and know less of jobs that ended long ago"
        )
        yield Finding(MIND, "sacct", why_not(answer, "sacct", SACCT_TIMEOUT_S), without)
    elif seconds > SLOW_S:
        yield Finding(MIND, "sacct", f"takes {seconds:.0f} s", "status asks it once for a whole study")
    else:
        yield Finding(FINE, "sacct", "answers")


def _folders(cluster: Cluster, runs_dir: Path) -> Iterator[Finding]:
    runs_dir = runs_dir.absolute()
    existing = next(path for path in (runs_dir, *runs_dir.parents) if path.exists())
    if not os.access(existing, os.W_OK):
        yield Finding(FAILS, "runs_dir", f"{existing} cannot be written", "runs_dir=FOLDER that can be")
    else:
        free = shutil.disk_usage(existing).free
        yield Finding(MIND if free < 10 << 30 else FINE, "runs_dir", f"{runs_dir}: {format_bytes(free)} free")
    if cluster.is_this_machine:
        return
    for name, path in (("runs_dir", runs_dir), ("code", Path(__file__).resolve().parents[2])):
        kind = local_kind(path)
        if kind is not None:
            yield Finding(
                FAILS, name, f"{path} is {kind}: a node has another one there",
                "put it on a file system that all nodes share",
            )  # fmt: skip
    yield Finding(
        MIND, "home", "only a job can check that nodes can write your home folder and reach the internet",
        "srun sh -c 'touch ~/.try && rm ~/.try; curl -sI https://huggingface.co | head -1'. If they cannot: "
        "slurm.offline=true, and runs_dir= on a file system that they can write",
    )  # fmt: skip
