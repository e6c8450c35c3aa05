"""What a cluster has, from the outputs of 20.11 to 25.11, and with any of them missing."""

from __future__ import annotations

import pytest
from recorded_slurm import VERSIONS, answers_of, recorded

from memory.accounting.sacct import Answer
from slurm.cluster import NodeKind, read_cluster
from slurm.cluster.parse_outputs import parse_gpus, parse_partitions, with_nodes
from slurm.cluster.query_cluster import NO_SLURM
from tests.golden_text import Golden

GB = 1 << 30
MB = 1 << 20


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_is_read(version: str) -> None:
    cluster = recorded(version)
    assert cluster.is_here
    assert cluster.version.startswith(version.partition("-")[0])
    assert cluster.max_array_size is not None
    assert cluster.max_array_size >= 1001
    assert cluster.partitions
    for partition in cluster.partitions.values():
        assert partition.nodes is not None
        assert all(
            kind.mem_bytes is None or kind.mem_bytes > 1000 * MB for kind in partition.kinds if kind.count
        )


def test_limits_of_partitions() -> None:
    partitions = recorded("20.11").partitions
    batch, scavenge = partitions["batch"], partitions["scavenge"]
    assert (batch.is_default, batch.max_time_s, batch.default_time_s) == (True, 3 * 86400, 4 * 3600)
    assert (scavenge.is_default, scavenge.max_time_s, scavenge.default_time_s) == (False, None, None)
    assert (scavenge.preempt_mode, scavenge.grace_s) == ("requeue", 60)
    assert scavenge.most_gpus() == scavenge.most_gpus("v100") == 4
    assert scavenge.most_gpus("a100") == 0
    assert batch.most_mem_bytes == 191000 * MB
    assert scavenge.most_mem_bytes == 382000 * MB


@pytest.mark.parametrize(
    ("state", "takes_jobs"), [("UP", True), ("DOWN", True), ("DRAIN", False), ("INACTIVE", False)]
)
def test_which_partitions_take_jobs(state: str, takes_jobs: bool) -> None:
    """One that is DOWN queues them."""
    assert parse_partitions(f"PartitionName=a State={state}")["a"].is_up == takes_jobs


def test_nodes_of_one_make_in_several_states_are_one_kind() -> None:
    (kind,) = recorded("20.11").partitions["batch"].kinds
    assert kind == NodeKind(16, 40, 191000 * MB, {}, ("skylake", "ib"), away=2)


def test_a_partition_that_takes_no_jobs_and_bounds_of_its_own() -> None:
    cluster = recorded("23.02")
    debug, normal = cluster.partitions["debug"], cluster.partitions["normal"]
    assert (debug.max_time_s, debug.max_nodes, debug.most_cpus) == (3600, 2, 16)
    assert debug.most_mem_bytes == 8192 * MB
    assert normal.max_time_s is None
    assert normal.kinds[0].state == "down"


@pytest.mark.parametrize(
    ("gres", "gpus"),
    [
        ("gpu:a100:4(S:0-1),nvme:1", {"a100": 4}),
        ("gpu:4", {"": 4}),
        ("(null)", {}),
        ("craynetwork:4,gpu:a100:4(S:0,1)", {"a100": 4}),
        ("gpu:nvidia_a100_3g.20gb:2,gpu:a100:1", {"nvidia_a100_3g.20gb": 2, "a100": 1}),
        ("gpu:k80:2,mps:200,shard:8", {"k80": 2}),
        ("gpu:a100:no_consume:4", {"a100": 4}),
        ("", {}),
    ],
)
def test_gpus_of_every_spelling(gres: str, gpus: dict[str, int]) -> None:
    assert parse_gpus(gres) == gpus


def test_accounts_and_limits_of_the_user_on_this_cluster_alone() -> None:
    cluster = recorded("20.11")
    assert (cluster.accounts, cluster.default_account) == (["teaching", "waterlab"], "waterlab")
    assert list(cluster.most_submitted.values()) == [400, 200, 10]
    assert list(recorded("24.11").most_submitted.values()) == [50, 30_000]
    assert cluster.enforces >= {"associations", "limits", "qos"}
    assert recorded("23.02").enforces == frozenset()


def test_limits_that_are_not_kept_are_none() -> None:
    loose = "SLURM_VERSION = 20.11.9\nAccountingStorageEnforce = associations\n"
    assert recorded("20.11", config=Answer(0, loose)).most_submitted == {}


@pytest.mark.parametrize(
    ("version", "signals", "preempts", "counts_rss"),
    [
        ("20.11", False, True, True),
        ("23.02", False, False, False),
        ("23.11", False, True, False),  # NoOverMemoryKill
        ("24.11", True, True, False),  # UsePss: shared pages are shared out
        ("25.11", False, False, False),
    ],
)
def test_what_preemption_and_memory_mean(
    version: str, signals: bool, preempts: bool, counts_rss: bool
) -> None:
    cluster = recorded(version)
    assert (cluster.signals_on_preemption, cluster.preempts, cluster.counts_rss) == (
        signals,
        preempts,
        counts_rss,
    )


def test_the_older_name_of_the_signal_on_preemption() -> None:
    config = "SlurmctldParameters = idle_on_node_suspend,preempt_send_user_signal\nSLURM_VERSION = 22.05.8\n"
    assert recorded("20.11", config=Answer(0, config)).signals_on_preemption


@pytest.mark.parametrize("missing", ["config", "partitions", "nodes", "associations", "qos"])
def test_any_piece_may_be_missing(missing: str, golden: Golden) -> None:
    cluster = recorded("20.11", **{missing: Answer(124)})
    assert cluster.is_here
    assert len(cluster.notes) == 1
    golden.text(cluster.notes[0])
    cluster.to_json()
    for partition in cluster.partitions.values():
        assert partition.most_mem_bytes is None or missing != "nodes"
    if missing == "partitions":  # sinfo alone knows names and nodes
        assert set(cluster.partitions) == {"batch", "scavenge"}
        assert cluster.partitions["batch"].nodes == 16


def test_no_slurm_at_all_is_one_note() -> None:
    cluster = read_cluster(ask=lambda command, timeout_s: Answer(127), user="ada")
    assert (cluster.is_here, cluster.notes) == (False, (NO_SLURM,))


def test_a_controller_that_answers_nothing_is_one_note(golden: Golden) -> None:
    cluster = read_cluster(
        ask=lambda command, timeout_s: Answer(1, error=f"{command[0]}: fatal: no"), user="ada"
    )
    assert not cluster.is_here
    golden.text("\n".join(cluster.notes))


def test_only_questions_are_asked() -> None:
    asked: list[list[str]] = []

    def ask(command: list[str], timeout_s: float) -> Answer:
        asked.append(command)
        return answers_of("24.11")(command, timeout_s)

    read_cluster(ask=ask, user="ada")
    assert len(asked) == 5
    assert {command[0] for command in asked} == {"scontrol", "sinfo", "sacctmgr"}
    assert all("show" in command or command[0] == "sinfo" for command in asked)


def test_lines_that_are_no_rows_are_passed_over() -> None:
    told = (
        "sinfo: warning: something\nmain|up|x|4|1000|idle|(null)|(null)\nmain|up|1|4|1000|idle|(null)|a|b\n"
    )
    (partition,) = with_nodes(parse_partitions("No partitions in the system\n"), told).values()
    assert partition.kinds == (NodeKind(1, 4, 1000 * MB, {}, ("a|b",)),)
