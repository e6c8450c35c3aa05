"""Why a job waits: the meaning of squeue's reason, and what can be done about it.

Source: "Job Reason Codes" (slurm.schedmd.com/job_reason_codes.html, 25.11) and squeue(1) of 20.11 to 25.11.
Sentences for families of reasons (`QOSMaxMemoryPerUser`, ...) are built from the parts of the name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Reason:
    """Why a job waits."""

    words: str
    change: str | None = None
    """The remedy; None: wait."""
    never: bool = False
    """Whether it cannot start as it is."""


_RELEASE = "scontrol release {job}"
_SMALLER = (
    "ask for less (slurm.mem, slurm.time, slurm.nodes, slurm.gpus_per_node), or choose another slurm.qos"
)
_CHOOSE = "choose another slurm.partition, slurm.account or slurm.qos: python -m slurm doctor"

REASONS: dict[str, Reason] = {
    "": Reason("the scheduler has not looked at it yet"),
    "None": Reason("the scheduler has not looked at it yet"),
    "Priority": Reason("jobs of higher priority are before it"),
    "Resources": Reason("the nodes it needs are taken: it is next"),
    "JobArrayTaskLimit": Reason(
        "as many tasks of its array run as may (slurm.parallel)",
        "scontrol update JobId={array} ArrayTaskThrottle=N",
    ),
    "Dependency": Reason("another job must end before it"),
    "DependencyNeverSatisfied": Reason(
        "the job that it depends on can no longer end as was asked",
        "cancel it, and submit it again",
        True,
    ),
    "BeginTime": Reason("its earliest start has not come yet"),
    "Licenses": Reason("it waits for a licence"),
    "JobHeldUser": Reason("it is held by its user", _RELEASE),
    "JobHeldAdmin": Reason("it is held by an administrator, or by Slurm after a failed start", _RELEASE),
    "JobHoldMaxRequeue": Reason("it was requeued as often as the cluster allows, and is held", _RELEASE),
    "job requeued in held state": Reason("it was put back into the queue, and is held there", _RELEASE),
    "launch failed requeued held": Reason("its node could not start it; requeued, it is held", _RELEASE),
    "JobLaunchFailure": Reason("it could not be started: a file system, a missing program", _RELEASE),
    "BadConstraints": Reason("no node can ever have what it asks for", _CHOOSE, True),
    "ReqNodeNotAvail": Reason("nodes that it needs are down, drained or reserved"),
    "Constraints": Reason("no node that is up has what slurm.constraint asks for"),
    "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions": Reason(
        "nodes that it needs are down, drained, or kept for other partitions"
    ),
    "PartitionDown": Reason("its partition is down", _CHOOSE),
    "PartitionInactive": Reason("its partition takes no jobs now", _CHOOSE),
    "PartitionNodeLimit": Reason("it asks for more nodes than its partition gives a job", _SMALLER, True),
    "PartitionTimeLimit": Reason("it asks for more time than its partition gives", "set slurm.time", True),
    "PartitionConfig": Reason("its partition does not allow what it asks for", _CHOOSE, True),
    "MaxMemPerLimit": Reason("it asks for more memory than a node or CPU gives", "set slurm.mem", True),
    "AccountNotAllowed": Reason("its account may not use this partition", _CHOOSE, True),
    "InvalidAccount": Reason("its account is not valid", _CHOOSE, True),
    "InvalidQOS": Reason("its QOS is not valid", _CHOOSE, True),
    "QOSNotAllowed": Reason("its QOS may not be used here", _CHOOSE, True),
    "Reservation": Reason("its reservation has not begun"),
    "ReservationDeleted": Reason("its reservation was deleted", "submit it without --reservation", True),
    "DeadLine": Reason("it can no longer end before its deadline", "submit it again", True),
}  # fmt: skip

_FAMILY = re.compile(
    r"^(?P<who>Assoc|QOS|Max)(?P<how>Grp|Max|Min)?(?P<what>[A-Za-z]+?)"
    r"(?P<time>RunMinutes|RunMinutesLimit|MinutesLimit|Minutes)?"
    r"(?P<per>PerJob|PerNode|PerUser|PerAccount|PerAcct)?(?P<end>Limit|NotSatisfied)?$"
)
_WHO = {"Assoc": "its account", "QOS": "its QOS", "Max": "its QOS"}
_WHAT = {
    "Cpu": "CPUs", "CPU": "CPUs", "Mem": "memory", "Memory": "memory", "Node": "nodes", "GRES": "GPUs",
    "Jobs": "jobs at a time", "Job": "jobs at a time", "SubmitJobs": "submitted jobs",
    "SubmitJob": "submitted jobs",
    "Wall": "hours", "WallDuration": "hours", "Billing": "billing units", "License": "licences",
}  # fmt: skip


def reason_of(word: str) -> Reason:
    """The meaning of squeue's reason; an unknown one is shown as it is.

    Details that follow a comma (`ReqNodeNotAvail, UnavailableNodes:n[1-3]`) are shown in parentheses.
    """
    word = word.strip().strip("()")
    known = REASONS.get(word) or REASONS.get(word.replace("_", " "))
    if known is not None:
        return known
    first, _, details = word.partition(",")
    known = REASONS.get(first) or _of_family(first)
    if known is None:
        return Reason(f"Slurm says {word}")
    more = details.strip().replace("UnavailableNodes:", "unavailable: ")
    return Reason(f"{known.words} ({more})", known.change, known.never) if more else known


def _of_family(word: str) -> Reason | None:
    """`QOSMaxCpuPerUserLimit`, `AssocGrpGRESRunMinutes`, `MaxJobsPerAccount`, ..."""
    match = _FAMILY.match(word)
    if match is None or (match["who"] == "Max" and not match["per"]):
        return None
    who, what = _WHO[match["who"]], _WHAT.get(match["what"], match["what"])
    minutes = f"{what}-minutes" if match["time"] else what
    if match["how"] == "Min":
        return Reason(f"it asks for less {what} than {who} demands", _CHOOSE, True)
    per = {"PerJob": "a job", "PerNode": "a node"}.get(match["per"] or "")
    if per is not None or match["what"] == "WallDuration":
        return Reason(f"it asks for more {minutes} than {who} gives {per or 'a job'}", _SMALLER, True)
    if match["how"] == "Grp":
        return Reason(f"all jobs of {who} together use as many {minutes} as they may")
    whose = "the jobs of your account" if (match["per"] or "").startswith("PerAcc") else "your jobs"
    return Reason(f"{whose} use as many {minutes} as {who} allows")
