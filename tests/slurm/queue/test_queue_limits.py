"""Room in the queue: each limit counts what is its own, and the job at the end has a place."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from tiny_run import tiny_config

import slurm.queue.queue_limits
from conf.schema import Slurm
from slurm.cluster import Cluster
from slurm.cluster.facts import Association, Partition, Qos
from slurm.queue.arrays import Asked, first_runs
from slurm.queue.queue_limits import Limits, Queue, Room, limits_of
from slurm.submit.resource_check import has_room

GPU, MAIN = Queue(partition="gpu"), Queue()


def two(gpu: int, main: int) -> tuple[Room, ...]:
    return Room(gpu, frozenset([GPU])), Room(main, frozenset([MAIN]))


def lab(monkeypatch: pytest.MonkeyPatch, of_account: int, of_gpu: int) -> Cluster:
    """Ten jobs of the user's are in the default partition, one in gpu."""
    queued = "lab|normal|main\n" * 10 + "lab|normal|gpu\n"
    monkeypatch.setattr(slurm.queue.queue_limits, "run_client", lambda command: queued)
    return Cluster(
        partitions={"main": Partition("main", is_default=True), "gpu": Partition("gpu", qos="gpu")},
        associations=(Association("lab", max_submit=of_account),),
        default_account="lab",
        qos={"gpu": Qos("gpu", max_submit=of_gpu)},
    )


def test_jobs_that_a_limit_is_not_for_take_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of another partition count for the account's limit alone."""
    cluster = lab(monkeypatch, of_account=20, of_gpu=3)
    assert limits_of([GPU], cluster).room(GPU) == 2
    limits = limits_of([GPU, MAIN], cluster)
    assert [limits.room(queue) for queue in (GPU, MAIN)] == [2, 9]
    assert limits.takes({GPU: 2, MAIN: 7}, MAIN)
    assert not limits.takes({GPU: 2, MAIN: 8}, MAIN), "the account's limit counts both"
    assert not limits.takes({GPU: 3}, GPU)
    limits = limits.less({GPU: 1, MAIN: 7})
    assert [limits.room(queue) for queue in (GPU, MAIN)] == [1, 1]
    assert limits.less_one_of([GPU, MAIN]).room(MAIN) == 0


def test_a_quality_of_service_goes_before_the_account(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slurm 22.05.8: with MaxSubmitJobs=2 of the user and 4 of the partition's quality of service it takes
    four there, and then none elsewhere.
    """
    cluster = lab(monkeypatch, of_account=12, of_gpu=5)
    limits = limits_of([GPU, MAIN], cluster)
    assert [limits.room(queue) for queue in (GPU, MAIN)] == [4, 1]
    assert limits.takes({GPU: 4, MAIN: 1}, GPU)
    assert not limits.takes({GPU: 1, MAIN: 1}, MAIN), "the account counts them all"
    assert limits.less({GPU: 1}).room(MAIN) == 0
    assert cluster.submit_limit(partition="gpu") == 5


def test_a_run_of_another_limit_leaves_the_job_at_the_end_its_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a real Slurm 22.05 counted: the run of gpu took the account's last place, and then= was refused."""
    limits = limits_of([GPU, MAIN], lab(monkeypatch, of_account=14, of_gpu=2))
    asked = [Asked("a"), Asked("b"), Asked("c", {"partition": "gpu"})]
    assert first_runs(asked, limits) == asked
    assert first_runs(asked, limits, {GPU, MAIN}) == asked[:2]
    assert first_runs(asked[2:], limits, {GPU, MAIN}) == asked[2:]
    assert first_runs(asked, Limits(), {GPU, MAIN}) == asked


def test_the_job_at_the_end_takes_room_where_most_is() -> None:
    limits = Limits(rooms=two(gpu=1, main=5)).less_one_of([GPU, MAIN])
    assert (limits.room(GPU), limits.room(MAIN)) == (1, 4)
    assert Limits(rooms=two(0, 0)).less_one_of([GPU, MAIN]).rooms == two(0, 0)
    of_gpu = Limits(rooms=two(1, 0)[:1])
    assert of_gpu.less_one_of([GPU, MAIN]) == of_gpu, "the other takes any number"
    assert Limits().less_one_of([]) == Limits()


@pytest.mark.parametrize(
    ("rooms", "then", "is_one"),
    [
        ((), None, True),
        ((0, 0), None, False),
        ((0, 1), None, True),
        ((0, 1), "analysis", True),
        ((0, 0), "analysis", False),
    ],
)
def test_one_waiting_run_with_room_is_enough(
    rooms: tuple[int, ...], then: str | None, is_one: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        slurm.queue.queue_limits, "rooms_of", lambda queues, cluster: two(*rooms) if rooms else ()
    )
    config = dataclasses.replace(tiny_config(tmp_path), then=then)
    of_gpu = dataclasses.replace(config, slurm=Slurm(partition="gpu"))
    plans = [SimpleNamespace(config=one, folder=tmp_path / "study" / "run") for one in (of_gpu, config)]
    assert has_room(cast("list", plans), Cluster()) == is_one
    if then and any(rooms):
        assert not has_room(cast("list", plans[1:]), Cluster()), "the last one goes with what comes after it"
