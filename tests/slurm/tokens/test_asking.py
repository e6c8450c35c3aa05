"""What a task asks for: the site's words, what the pretokenizer needs, no GPU."""

from __future__ import annotations

import pytest

from data_loading.pretokenizer.engines import ENGINES
from data_loading.pretokenizer.most_memory import OWN_BYTES, most_memory_bytes
from data_loading.tokenizer import BytesTokenizer
from experiment_utils.errors import UserError
from slurm.cluster import Cluster, NodeKind, Partition
from slurm.tokens.asking import MERGE_BYTES, Asking, ask_for, read_site

MB = 1 << 20
CLUSTER = Cluster(
    is_here=True,
    partitions={
        "small": Partition(
            "small", is_default=True, max_time_s=7200.0, kinds=(NodeKind(2, cpus=3, mem_bytes=8 << 30),)
        )
    },
)


def ask(
    *overrides: str, site: str = "default", workers: int | None = None, cluster: Cluster = CLUSTER
) -> Asking:
    return ask_for(read_site(site, overrides), BytesTokenizer(), "auto", workers, cluster)


def test_memory_is_the_most_that_its_processes_can_hold() -> None:
    each = ENGINES["bytes"].most_bytes
    asked = ask("slurm.cpus_per_task=2")
    assert asked.workers == 2
    assert asked.task.mem_bytes == OWN_BYTES + 2 * each
    assert asked.task.options["mem"] == f"{asked.task.mem_bytes // MB}M"
    assert asked.merge.mem_bytes == MERGE_BYTES
    assert most_memory_bytes(BytesTokenizer(), "auto", 0) == OWN_BYTES + each


def test_what_is_typed_is_for_the_tasks() -> None:
    asked = ask("slurm.mem=600MB", "slurm.time=2h", "slurm.options=['--exclusive']")
    assert asked.task.options["mem"] == asked.merge.options["mem"] == "600M"
    assert asked.task.options["time"] == "2:00:00"
    assert asked.task.options["exclusive"] is True
    assert ask("slurm.mem=64GB").merge.mem_bytes == MERGE_BYTES
    assert "mem" not in ask("slurm.mem=null").task.options


def test_cores_are_the_workers_or_four_or_what_a_node_has() -> None:
    assert (ask(workers=7).task.cpus, ask(workers=7).workers) == (7, 7)
    assert (ask(workers=0).task.cpus, ask(workers=0).workers) == (1, 0)
    assert ask().task.cpus == 3
    assert ask(cluster=Cluster()).task.cpus == 4
    assert ask("slurm.cpus_per_task=1").workers == 0
    assert ask().merge.cpus == 1


def test_a_sites_gpus_are_left_out() -> None:
    asked = ask(site="supercloud")
    assert asked.task.options["partition"] == "xeon-g6-volta"
    assert "gres" not in asked.task.options
    assert asked.task.options["cpus-per-task"] == 20
    assert any("HF_HUB_OFFLINE" in line for line in asked.task.setup)


def test_no_time_is_asked_for_unless_it_is_typed() -> None:
    asked = ask()
    assert "time" not in asked.task.options
    assert asked.task.limit_s == 7200.0


def test_without_requeue_no_signal_comes() -> None:
    assert "signal" in ask().task.options
    assert "signal" not in ask("slurm.requeue=false").task.options
    assert "signal" not in ask().merge.options


@pytest.mark.parametrize("key", ["nodes", "gpus_per_node", "pack", "workers"])
def test_keys_of_runs_are_refused(key: str) -> None:
    with pytest.raises(UserError) as error:
        ask(f"slurm.{key}=2")
    assert [problem.where for problem in error.value.problems] == [f"slurm.{key}"]
