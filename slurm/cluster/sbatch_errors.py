"""What sbatch says when it ends with an error: the problem of the key that it is about; or that slurmctld was
asked and its answer did not arrive, so that it may make the job all the same.

Sources of the messages: slurm_errno.c of 20.11 to 25.11, and what 22.05.8 says (`slurm/local_cluster.sh`).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any

from experiment_utils.errors import Problem

_UNREACHED = r"unable to contact|connection refused|communication connection failure"

MEANINGS = (
    (r"invalid partition", "slurm.partition", "there is no such partition, or it is not open to you: sinfo"),
    (r"invalid account or account/partition", "slurm.account",
     "not an account of yours, or not for this partition: python -m slurm doctor lists yours"),
    (r"invalid qos", "slurm.qos", "the account has no such one: python -m slurm doctor lists them"),
    (r"time limit is invalid|exceeds? .*time limit", "slurm.time",
     "the partition, the account or the quality of service allows less time"),
    (r"memory specification can ?not be satisfied|requested memory", "slurm.mem",
     "no node of the partition has as much memory"),
    (r"node configuration is not available", "slurm.partition",
     "no node of it has these CPUs, memory and GPUs together: python -m slurm doctor lists them"),
    (r"node count specification|more processors requested|requested nodes? (count )?(is|are) (busy|not)",
     "slurm.nodes", "the partition gives a job fewer nodes"),
    (r"invalid (generic resource|gres)|gres.*specification", "slurm.gpus_per_node",
     "the cluster does not know such a GPU"),
    (r"invalid feature", "slurm.constraint", "no node has such a feature: sinfo -o '%P %f'"),
    (r"(submit|job).*limit|assocmax|qosmax|accounting/qos policy", "slurm",
     "a limit of the account or its quality of service is reached: ask for less, or wait until jobs of yours "
     "have ended and type the same command again, which submits what is missing. A sweep that is larger than "
     "the limit fits as few jobs that take one run after the other: slurm.workers=1"),
    (r"resource temporarily unavailable", "slurm",
     "the cluster holds as many jobs as it may (MaxJobCount), those of others too. Type the same command "
     "again when some have ended"),
    (r"invalid node name", "slurm.options", "the cluster has no such node: sinfo -N"),
    (r"invalid license", "slurm.options", "the cluster has no such license: scontrol show licenses"),
    (r"unrecognized option|invalid option|unknown option", "slurm.options", "sbatch has no such option"),
    (r"access/permission denied|user.*not permitted", "slurm.partition", "it is not open to you"),
    (_UNREACHED, "slurm",
     "the cluster's controller does not answer: try again in a minute; scontrol ping"),
)  # fmt: skip
"""What sbatch says, as a pattern; the key it is about; what it means."""

_UNANSWERED = re.compile(
    r"timed out|zero bytes were transmitted|\((send|receive|shutdown) failure\)"
    r"|message (send|receive) failure"
    r"|communication shutdown failure|connection reset|broken pipe|header lengths are longer|insane message"
    r"|unexpected message received|protocol authentication error|unable to contact slurm controller(?! \()",
    re.IGNORECASE,
)
"""Of errors on the way, those after the request may have left (slurm_errno.c). A connection that was not made
at all (`connect failure`, `Connection refused`) carried none."""


def is_unanswered(told: str, exit_code: int) -> bool:
    """Whether nobody can tell from how sbatch ended if there is a job. exit_code: negative: of a signal."""
    return exit_code < 0 or _UNANSWERED.search(words(told)) is not None


def is_unreached(told: str) -> bool:
    """Whether there was no connection to slurmctld, and so there is no job."""
    return re.search(_UNREACHED, words(told), re.IGNORECASE) is not None


def has_no_room(told: str) -> bool:
    """Whether it is one job too many in the queue, of the user, the account or the quality of service, or of
    all that the cluster holds: later it may be taken as it is.
    """
    return re.search(r"(max|grp)submitjob", told, re.IGNORECASE) is not None or is_full(told)


def is_full(told: str) -> bool:
    """Whether the cluster holds as many jobs as it may, those of others too (MaxJobCount, EAGAIN)."""
    return re.search(r"resource temporarily unavailable", told, re.IGNORECASE) is not None


def directives(options: Mapping[str, Any]) -> str:
    """`#SBATCH` lines; an option that is True has no value."""
    return "".join(
        f"#SBATCH --{name}\n" if value is True else f"#SBATCH --{name}={shlex.quote(str(value))}\n"
        for name, value in options.items()
    )


def meaning(told: str, options: Mapping[str, Any]) -> Problem:
    """What sbatch said, as the problem of the key that it is about; its own words are kept."""
    said = words(told)
    for pattern, where, what in MEANINGS:
        if re.search(pattern, said, re.IGNORECASE):
            name = where.rpartition(".")[2].replace("_", "-")
            given = next(
                (options[key] for key in (name, "gres" if "gpu" in name else "") if key in options), None
            )
            typed = "" if given is None else f"{given}: "
            return Problem(where, f"{typed}{what}. sbatch says: {said}")
    return Problem("slurm", f"sbatch says: {said}")


def words(told: str) -> str:
    """Without `sbatch: error:` and what follows from the first line."""
    lines = [
        re.sub(r"^(sbatch|allocation failure)(: (error|fatal))?: ", "", line.strip())
        for line in told.splitlines()
    ]
    kept = [
        line.removeprefix("Batch job submission failed: ")
        for line in lines
        if line and not line.startswith("Try ")
    ]
    return "; ".join(dict.fromkeys(kept)) or "nothing"
