"""What will not work on this cluster, or not as one expects, and what to do: `python -m slurm doctor`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from experiment_utils.quantities import format_duration
from memory import format_bytes
from memory.accounting.sacct import Ask, run_client
from slurm.cluster.facts import Cluster, Partition

FAILS, MIND, FINE = "fails", "mind", "fine"
"""It cannot work; it works otherwise than one expects; it is as it should be."""
SLOW_S = 3.0
SACCT_TIMEOUT_S = 15.0
_CLIENTS = ("sbatch", "squeue", "scontrol", "srun", "scancel", "sinfo")
_SHORT_S = 3600.0


@dataclass(frozen=True)
class Finding:
    """level: FAILS, MIND or FINE. name: of the check. what: is found. do: what to type, or whom to ask."""

    level: str
    name: str
    what: str
    do: str = ""


def findings(cluster: Cluster, runs_dir: Path, *, ask: Ask | None = None) -> list[Finding]:
    """Everything that is looked at, the worst first. ask: runs a client command; tests hand in answers."""
    found = [*_clients(cluster)]
    if cluster.is_here:
        for check in (_partitions, _memory, _time_limit, _preemption, _requeue, _arrays, _accounts, _mail):
            found += check(cluster)
        found += _sacct(cluster, ask or run_client)
        found += _folders(cluster, runs_dir)
    order = (FAILS, MIND, FINE)
    return sorted(found, key=lambda finding: order.index(finding.level))


def _clients(cluster: Cluster) -> Iterator[Finding]:
    missing = [name for name in _CLIENTS if shutil.which(name) is None]
    if len(missing) == len(_CLIENTS):
        yield Finding(
            FAILS, "slurm", "there is no Slurm on this machine",
            "type this on a login node of the cluster. On this machine: hydra/launcher=local, or a cluster "
            "to try things on: slurm/local_cluster.sh start",
        )  # fmt: skip
    elif not cluster.is_here:
        why = cluster.notes[0] if cluster.notes else "it gave no answer"
        yield Finding(
            FAILS, "controller", f"Slurm is installed and its controller does not answer: {why}",
            'scontrol ping; for slurm/local_cluster.sh: eval "$(slurm/local_cluster.sh env)"',
        )  # fmt: skip
    else:
        if missing:
            yield Finding(
                FAILS, "slurm", f"no {', '.join(missing)} in PATH", "module load slurm, or ask for it"
            )
        for note in cluster.notes:
            yield Finding(MIND, "questions", note, "what it would have told is left to Slurm to judge")
        version = tuple(int(part) for part in cluster.version.split(".")[:2] if part.isdigit())
        if version and version < (20, 11):
            yield Finding(MIND, "version", f"Slurm {cluster.version}", "tried are 20.11 to 25.11")
        else:
            yield Finding(FINE, "version", f"Slurm {cluster.version or '?'}, cluster {cluster.name or '?'}")


def _partitions(cluster: Cluster) -> Iterator[Finding]:
    if cluster.partitions and cluster.default_partition is None:
        names = " ".join(cluster.partitions)
        yield Finding(MIND, "partition", "there is no default partition", f"slurm.partition=NAME: {names}")
    down = [partition.name for partition in cluster.partitions.values() if not partition.is_up]
    if down:
        yield Finding(
            MIND, "partition", f"take no jobs now: {' '.join(down)}", "choose another slurm.partition="
        )
    dead = [found.name for found in cluster.partitions.values() if found.kinds and not _can_run(found)]
    if dead:
        yield Finding(MIND, "nodes", f"no node of {' '.join(dead)} can run a job now", "sinfo -R tells why")


def _can_run(partition: Partition) -> bool:
    return any(kind.count and not kind.state for kind in partition.kinds)


def _memory(cluster: Cluster) -> Iterator[Finding]:
    if cluster.counts_rss:
        yield Finding(
            MIND, "memory", "limited by RSS that slurmd polls (OverMemoryKill), with mapped files in it: a "
            "run that maps more than its --mem is killed though it needs far less",
            "nothing for reader=auto, which reads with pread there, and slurm.mem=auto, which adds mapped "
            "libraries; dataset.reader=mmap would be killed",
        )  # fmt: skip
        return
    plugin, task = cluster.setting("CgroupPlugin"), cluster.setting("TaskPlugin").lower()
    if task and "cgroup" not in task:
        yield Finding(
            MIND, "memory", f"no limit is kept (TaskPlugin={cluster.setting('TaskPlugin')}): a run above its "
            "--mem takes its neighbours' memory, and the host's OOM killer takes whom it likes",
            "python -m memory explain RUN tells oom_host from the rest",
        )  # fmt: skip
    elif task:
        yield Finding(FINE, "memory", f"limited by the kernel ({plugin or task}): mapped files are reclaimed")
    if not any(kind.mem_bytes for found in cluster.partitions.values() for kind in found.kinds):
        yield Finding(MIND, "memory", "how much the nodes have is not told", "slurm.mem=SIZE is not checked")
    if "memory" not in cluster.setting("SelectTypeParameters").lower() and cluster.setting(
        "SelectTypeParameters"
    ):
        yield Finding(
            MIND, "memory", f"is not shared out ({cluster.setting('SelectTypeParameters')}): --mem reserves "
            "nothing, several jobs may get one node's whole memory",
            "slurm.options=[--exclusive] where it matters",
        )  # fmt: skip


def _time_limit(cluster: Cluster) -> Iterator[Finding]:
    default = cluster.default_partition
    if default is not None and default.default_time_s is not None and default.default_time_s < _SHORT_S:
        yield Finding(
            MIND, "time", f"a job that names no time gets {format_duration(default.default_time_s)} in "
            f"{default.name}: a run that is not the first of its kind asks by itself",
            "slurm.time=4:00:00 for the first ones",
        )  # fmt: skip
    kill_wait = cluster.kill_wait_s
    if kill_wait is not None and kill_wait < 10:
        yield Finding(
            MIND, "KillWait", f"{kill_wait:g} s between SIGTERM and SIGKILL: too short for a checkpoint of a "
            "large model", "slurm.signal_s is what counts; leave it at 60 or more",
        )  # fmt: skip


def _preemption(cluster: Cluster) -> Iterator[Finding]:
    if not cluster.preempts:
        yield Finding(FINE, "preemption", "jobs are not preempted")
        return
    modes = {found.name: found.preempt_mode or "" for found in cluster.partitions.values()}
    mode = cluster.setting("PreemptMode").lower()
    cancelled = [name for name, of in modes.items() if "cancel" in of] or (
        ["jobs"] if "cancel" in mode else []
    )
    if cancelled:
        yield Finding(
            MIND, "preemption", f"{' '.join(cancelled)}: a preempted job is cancelled, not requeued",
            "python -m slurm resubmit STUDY --only preempted; the runs go on from their checkpoints",
        )  # fmt: skip
    if cluster.signals_on_preemption:
        yield Finding(FINE, "preemption", "a preempted job is asked to checkpoint first (send_user_signal)")
        return
    graces = [found.grace_s or 0 for found in cluster.partitions.values()]
    grace = f"SIGTERM comes up to {max(graces):.0f} s before" if any(graces) else "there is no grace time"
    yield Finding(
        MIND, "preemption", f"a preempted job gets no --signal (no preempt_send_user_signal); {grace}",
        "a run checkpoints on SIGTERM too. Where there is no grace it goes on from the last one: "
        "training.checkpoint_every=N small enough",
    )  # fmt: skip


def _requeue(cluster: Cluster) -> Iterator[Finding]:
    if not cluster.requeues_by_default:
        yield Finding(
            MIND, "requeue", "jobs are not requeued unless they ask (JobRequeue=0)",
            "slurm.requeue=true, the default, asks",
        )  # fmt: skip


def _arrays(cluster: Cluster) -> Iterator[Finding]:
    size = cluster.max_array_size
    if size is not None and size <= 1:
        yield Finding(
            MIND, "arrays", f"job arrays are off (MaxArraySize={size})",
            "each run is submitted as a job of its own; slurm.workers=K needs K jobs for a sweep",
        )  # fmt: skip
    elif size is not None:
        yield Finding(FINE, "arrays", f"up to {size:,} runs each; a larger sweep is split")
    limits: dict[str, int | None] = {}
    for account in cluster.accounts:
        own = [one.most for one in cluster.submit_limits_of_account(account)]
        limits[f"account {account}"] = min(own, default=None)
    for partition in cluster.partitions.values():
        of_all = [
            one.most
            for one in cluster.submit_limits(partition=partition.name)
            if one.qos and one.qos == partition.qos
        ]
        limits[f"partition {partition.name}"] = min(of_all, default=None)
    told = [f"{most:,} of {whose}" for whose, most in limits.items() if most is not None]
    if told:
        yield Finding(
            MIND, "MaxSubmitJobs", f"tasks of yours that may be queued at once: {', '.join(told)}",
            "a larger sweep: slurm.pack=8 or slurm.workers=K, or type the command again when some have ended",
        )  # fmt: skip


def _accounts(cluster: Cluster) -> Iterator[Finding]:
    if cluster.associations is None:
        return
    if cluster.accounts:
        qos = sorted({name for found in cluster.associations for name in found.qos})
        told = f"{' '.join(cluster.accounts)}" + (f"; quality of service: {' '.join(qos)}" if qos else "")
        yield Finding(FINE, "accounts", f"of {cluster.user}: {told}")
    elif "associations" in cluster.enforces:
        yield Finding(
            FAILS, "accounts", f"{cluster.user} has none on this cluster", "ask whoever runs it for one"
        )


def _mail(cluster: Cluster) -> Iterator[Finding]:
    if cluster.settings and not cluster.setting("MailProg"):
        yield Finding(MIND, "mail", "Slurm sends none here", "notify=https://... takes a webhook")


def _sacct(cluster: Cluster, ask: Ask) -> Iterator[Finding]:
    import time

    began = time.monotonic()
    answer = ask(["sacct", "--allocations", "--noheader", "--parsable2", "--format=JobID"], SACCT_TIMEOUT_S)
    seconds = time.monotonic() - began
    without = "status and why read squeue and the runs' own files, and know less of jobs that are long gone"
    if answer.code == 124:
        yield Finding(MIND, "sacct", f"did not answer within {SACCT_TIMEOUT_S:g} s", without)
    elif answer.code == 127:
        yield Finding(MIND, "sacct", "is not installed", without)
    elif answer.code != 0:
        said = (answer.error.strip().splitlines() or ["it says nothing"])[-1]
        yield Finding(MIND, "sacct", f"does not work: {said}", without)
    elif seconds > SLOW_S:
        yield Finding(MIND, "sacct", f"takes {seconds:.0f} s", "status asks it once for a whole study")
    else:
        yield Finding(FINE, "sacct", "answers")


def _folders(cluster: Cluster, runs_dir: Path) -> Iterator[Finding]:
    from slurm.cluster.reachability import local_kind

    there = next(path for path in (runs_dir.absolute(), *runs_dir.absolute().parents) if path.exists())
    if not os.access(there, os.W_OK):
        yield Finding(FAILS, "runs_dir", f"{there} cannot be written", "runs_dir=FOLDER that can be")
    else:
        free = shutil.disk_usage(there).free
        level = MIND if free < 10 << 30 else FINE
        yield Finding(level, "runs_dir", f"{runs_dir.absolute()}: {format_bytes(free)} free")
    if cluster.is_this_machine:
        return
    for name, path in (("runs_dir", runs_dir.absolute()), ("code", Path(__file__).resolve().parents[2])):
        kind = local_kind(path)
        if kind is not None:
            yield Finding(
                FAILS, name, f"{path} is {kind}: a node has another one there",
                "put it on a file system that all nodes share",
            )  # fmt: skip
    yield Finding(
        MIND, "home", "whether nodes can write your home folder and reach the internet only a job can tell",
        "srun sh -c 'touch ~/.try && rm ~/.try; curl -sI https://huggingface.co | head -1'. If they cannot: "
        "slurm.offline=true, and runs_dir= on a file system that they can",
    )  # fmt: skip
