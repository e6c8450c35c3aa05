"""Meanings of what sbatch says when it ends with an error: the key that it is about, and the choices.

Sources of the messages: slurm_errno.c of 20.11 to 25.11, and what 22.05.8 says (`slurm/local_cluster.sh`).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any

from conf.suggestions import no_such
from experiment_utils.errors import Problem
from slurm.cluster.facts import Cluster

_UNREACHED = r"unable to contact|connection refused|communication connection failure"

MEANINGS = (
    (r"inactive or drain", "slurm.partition", "it takes no jobs now"),
    (r"invalid partition|no partition specified", "slurm.partition", "no such partition"),
    (r"invalid account or account/partition", "slurm.account",
     "not an account of yours, or not for this partition"),
    (r"invalid qos", "slurm.qos", "the account has no such quality of service"),
    (r"time limit is invalid|exceeds? .*time limit", "slurm.time",
     "the partition, the account or the quality of service allows less time: python -m slurm doctor"),
    (r"memory specification can ?not be satisfied|requested memory", "slurm.mem",
     "no node of the partition has as much memory: python -m slurm doctor"),
    (r"node configuration is not available", "slurm.partition",
     "no node of it has these CPUs, memory and GPUs together: python -m slurm doctor"),
    (r"node count specification|more processors requested|requested nodes? (count )?(is|are) (busy|not)",
     "slurm.nodes", "the partition gives a job fewer nodes: python -m slurm doctor"),
    (r"invalid (generic resource|gres)|gres.*specification", "slurm.gpus_per_node",
     "the cluster does not know such a GPU: python -m slurm doctor"),
    (r"invalid feature", "slurm.constraint", "no node has such a feature: sinfo -o '%P %f'"),
    (r"(submit|job).*limit|assocmax|qosmax|accounting/qos policy", "slurm",
     "a limit of the account or its quality of service is reached. Ask for less, or type the same command "
     "again when jobs of yours have ended: it submits what is missing"),
    (r"resource temporarily unavailable", "slurm",
     "the cluster holds as many jobs as it can, those of others too (MaxJobCount). Type the same command "
     "again when some have ended"),
    (r"invalid node name", "slurm.options", "the cluster has no such node: sinfo -N"),
    (r"invalid license", "slurm.options", "the cluster has no such license: scontrol show licenses"),
    (r"reservation is invalid", "slurm.options",
     "no such reservation, or it is not for you: scontrol show reservation"),
    (r"unrecognized option|invalid option|unknown option", "slurm.options", "sbatch has no such option"),
    (r"access/permission denied|user.*not permitted", "slurm.partition", "it is not open to you"),
    (_UNREACHED, "slurm", "slurmctld does not answer. Try again in a minute: scontrol ping"),
)  # fmt: skip
"""Words of sbatch, as a pattern; the key that they are about; what they mean."""

_UNANSWERED = re.compile(
    r"timed out|zero bytes were transmitted|\((send|receive|shutdown) failure\)"
    r"|message (send|receive) failure"
    r"|communication shutdown failure|connection reset|broken pipe|header lengths are longer|insane message"
    r"|unexpected message received|protocol authentication error|unable to contact slurm controller(?! \()",
    re.IGNORECASE,
)
"""Errors of a connection after the request can have left (slurm_errno.c). A connection that was not made
(`connect failure`, `Connection refused`) carried none."""

_NOUNS = {"partition": "partition", "account": "account of yours", "qos": "quality of service"}


def is_unanswered(output: str, exit_code: int) -> bool:
    """Whether sbatch ended so that there can be a job or none. exit_code: negative: of a signal."""
    return exit_code < 0 or _UNANSWERED.search(words(output)) is not None


def is_unreached(output: str) -> bool:
    """Whether there was no connection to slurmctld, and so there is no job."""
    return re.search(_UNREACHED, words(output), re.IGNORECASE) is not None


def has_no_room(output: str) -> bool:
    """Whether the queue has no place for one more job of the user, the account, the quality of service, or
    at all. Later the same job can be accepted.
    """
    return re.search(r"(max|grp)submitjob", output, re.IGNORECASE) is not None or is_full(output)


def is_full(output: str) -> bool:
    """Whether the cluster holds as many jobs as it can, those of others too (MaxJobCount, EAGAIN)."""
    return re.search(r"resource temporarily unavailable", output, re.IGNORECASE) is not None


def directives(options: Mapping[str, Any]) -> str:
    """`#SBATCH` lines; an option that is True has no value."""
    return "".join(
        f"#SBATCH --{name}\n" if value is True else f"#SBATCH --{name}={shlex.quote(str(value))}\n"
        for name, value in options.items()
    )


def unknown_names(options: Mapping[str, Any], cluster: Cluster) -> list[Problem]:
    """Partitions, accounts and qualities of service that the cluster does not list. sbatch accepts any
    account on a cluster that does not enforce associations.
    """
    found = []
    names = {"partition": cluster.partitions, "account": cluster.accounts, "qos": cluster.qos or ()}
    for option, noun in _NOUNS.items():
        known = [name.lower() for name in names[option]]
        given = str(options[option]).split(",") if option in options and known else []
        found += [
            Problem(f"slurm.{option}", no_such(noun, name, _choices(option, cluster)))
            for name in given
            if name.lower() not in known
        ]
    return found


def meaning(output: str, options: Mapping[str, Any], cluster: Cluster | None = None) -> Problem:
    """The key that sbatch's message is about, what it means and sbatch's own words.

    Args:
        options: Options of the job, without dashes.
        cluster: Names of it are listed as choices.
    """
    said = words(output)
    for pattern, where, what in MEANINGS:
        if re.search(pattern, said, re.IGNORECASE):
            option = where.rpartition(".")[2].replace("_", "-")
            given = options.get(option, options.get("gres") if "gpu" in option else None)
            names = [] if cluster is None else _choices(option, cluster)
            typed = "" if given is None else f"{given}: "
            choices = f"; choices: {' '.join(names)}" if names else ""
            return Problem(where, f"{typed}{what}{choices}. sbatch says: {said}")
    return Problem("slurm", f"sbatch says: {said}")


def words(output: str) -> str:
    """Lines of sbatch joined, without `sbatch: error:` and without the hint to its help."""
    lines = [
        re.sub(r"^(sbatch|allocation failure)(: (error|fatal))?: ", "", line.strip())
        for line in output.splitlines()
    ]
    kept = [
        line.removeprefix("Batch job submission failed: ")
        for line in lines
        if line and not line.startswith("Try ")
    ]
    return "; ".join(dict.fromkeys(kept)) or "nothing"


def _choices(option: str, cluster: Cluster) -> list[str]:
    if option == "partition":
        return [found.name for found in cluster.partitions.values() if found.is_up]
    if option == "account":
        return cluster.accounts
    mine = {name for found in cluster.associations or () for name in found.qos}
    return sorted(mine or cluster.qos or ()) if option == "qos" else []
