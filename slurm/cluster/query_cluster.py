"""Read what a cluster has, by a few quick calls of its own commands."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from memory.accounting.sacct import Answer, Ask, read_settings, run_client, why_not
from slurm.cluster.facts import Cluster
from slurm.cluster.parse_outputs import (
    ASSOCIATION_FIELDS,
    QOS_FIELDS,
    SINFO_FORMAT,
    default_account,
    parse_associations,
    parse_partitions,
    parse_qos,
    with_nodes,
)
from slurm.records.submissions import this_user

TIMEOUT_S = 10.0
NO_SLURM = "there is no Slurm on this machine"


def read_cluster(*, ask: Ask | None = None, timeout_s: float = TIMEOUT_S, user: str | None = None) -> Cluster:
    """Ask scontrol, sinfo and sacctmgr in parallel. Never raises: an answer that is missing is a note.

    Args:
        ask: Runs a command within a number of seconds; tests pass recorded answers.
        timeout_s: Of each command.
        user: Whose accounts; None: of this process.
    """
    ask, user = ask or run_client, user or this_user()
    commands = {
        "config": ["scontrol", "show", "config"],
        # without --all hidden partitions are left out, which a user can need
        "partitions": ["scontrol", "--all", "--oneliner", "show", "partition"],
        "nodes": ["sinfo", "--all", "--noheader", "--exact", f"--format={SINFO_FORMAT}"],
        "associations": [
            "sacctmgr", "--parsable2", "--readonly", "show", "user", user, "withassoc",
            f"format={','.join(ASSOCIATION_FIELDS)}",
        ],
        "qos": ["sacctmgr", "--parsable2", "--readonly", "show", "qos", f"format={','.join(QOS_FIELDS)}"],
    }  # fmt: skip
    with ThreadPoolExecutor(len(commands)) as pool:
        waiting = {name: pool.submit(ask, command, timeout_s) for name, command in commands.items()}
        answers = {name: future.result() for name, future in waiting.items()}
    if answers["config"].code == 127 and answers["nodes"].code == 127:
        return Cluster(user=user, notes=(NO_SLURM,))
    return _joined(answers, user, timeout_s, {name: command[0] for name, command in commands.items()})


def _joined(answers: dict[str, Answer], user: str, timeout_s: float, names: dict[str, str]) -> Cluster:
    notes: dict[str, None] = {}

    def answer(name: str) -> str | None:
        if answers[name].code == 0:
            return answers[name].out
        notes[why_not(answers[name], names[name], timeout_s)] = None
        return None

    settings = read_settings(answer("config") or "")
    config = {name: value for name, value in settings.items() if name}
    partitions = with_nodes(parse_partitions(answer("partitions") or ""), answer("nodes") or "")
    cluster = config.get("ClusterName", "")
    associations, qos = answer("associations"), answer("qos")
    if not config and not partitions:  # the others say the same
        notes = dict.fromkeys(list(notes)[:1])
    found = None if associations is None else parse_associations(associations, cluster)
    return Cluster(
        is_here=bool(config or partitions),
        version=config.get("SLURM_VERSION", ""),
        name=cluster,
        user=user,
        settings=config,
        partitions=partitions,
        associations=found,
        default_account=default_account(associations or ""),
        qos=None if qos is None else parse_qos(qos),
        notes=tuple(notes),
    )
