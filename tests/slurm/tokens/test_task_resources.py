"""Resources of a task: the site's, what the pretokenizer needs, no GPU."""

from __future__ import annotations

import pytest

from data_loading.pretokenizer.engines.registry import ENGINES, OWN_BYTES, most_memory_bytes
from data_loading.tokenizers.tokenizer import BytesTokenizer
from experiment_utils.errors import UserError
from slurm.cluster import Cluster, NodeKind, Partition
from slurm.tokens.task_resources import TaskRequest, read_site, request_of

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
) -> TaskRequest:
    return request_of(read_site(site, overrides), BytesTokenizer(), "auto", workers, cluster)


def test_memory_is_the_most_that_its_processes_can_hold() -> None:
    each = ENGINES["bytes"].most_bytes
    asked = ask("slurm.cpus_per_task=2")
    assert asked.workers == 2
    assert asked.ask.mem_bytes == OWN_BYTES + 2 * each
    assert asked.ask.options["mem"] == f"{asked.ask.mem_bytes // MB}M"
    assert most_memory_bytes(BytesTokenizer(), "auto", 0) == OWN_BYTES + each


def test_typed_keys_are_used() -> None:
    asked = ask("slurm.mem=600MB", "slurm.time=2h", "slurm.options=['--exclusive']")
    assert asked.ask.options["mem"] == "600M"
    assert asked.ask.options["time"] == "2:00:00"
    assert asked.ask.options["exclusive"] is True
    assert "mem" not in ask("slurm.mem=null").ask.options


def test_cores_are_the_workers_or_four_or_what_a_node_has() -> None:
    assert (ask(workers=7).ask.cpus, ask(workers=7).workers) == (7, 7)
    assert (ask(workers=0).ask.cpus, ask(workers=0).workers) == (1, 0)
    assert ask().ask.cpus == 3
    assert ask(cluster=Cluster()).ask.cpus == 4
    assert ask("slurm.cpus_per_task=1").workers == 0


def test_gpus_of_a_site_are_left_out() -> None:
    asked = ask(site="supercloud")
    assert asked.ask.options["partition"] == "xeon-g6-volta"
    assert "gres" not in asked.ask.options
    assert asked.ask.options["cpus-per-task"] == 20
    assert any("HF_HUB_OFFLINE" in line for line in asked.ask.setup)


def test_time_is_requested_only_when_typed() -> None:
    asked = ask()
    assert "time" not in asked.ask.options
    assert asked.ask.limit_s == 7200.0


@pytest.mark.parametrize("key", ["nodes", "gpus_per_node", "pack", "workers"])
def test_keys_of_runs_are_refused(key: str) -> None:
    with pytest.raises(UserError) as error:
        ask(f"slurm.{key}=2")
    assert [problem.where for problem in error.value.problems] == [f"slurm.{key}"]
