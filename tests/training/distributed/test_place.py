"""Which process this is: from Slurm's variables, torchrun's, or none."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.golden_text import refused
from training.distributed.place import FIRST_PORT, PORTS, Place, place_of, port_of

STEP = {
    "SLURM_JOB_ID": "812", "SLURM_STEP_ID": "0", "SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "5",
    "SLURM_LOCALID": "1", "SLURM_NODEID": "1", "SLURM_STEP_TASKS_PER_NODE": "2(x2),1",
    "SLURM_STEP_NODELIST": "127.0.0.[1-3]", "SLURM_JOB_NODELIST": "127.0.0.[9-11]",
}  # fmt: skip


@pytest.mark.parametrize(
    ("hosts", "first"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("127.0.0.[1-3]", "127.0.0.1"),
        ("127.0.0.[08-11,20],gpu-a", "127.0.0.08"),
        ("127.0.[0-2].[3,5],b[1]", "127.0.0.3"),
        ("a-1-2,b[1]", "a-1-2"),
        ("r[1-2]n[3,5]-ib", "r1n3-ib"),
    ],
)
def test_rank_0_is_on_the_first_host(hosts: str, first: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.getaddrinfo", lambda *_: [])
    assert place_of("run", {**STEP, "SLURM_STEP_NODELIST": hosts}).address == first


@pytest.mark.parametrize(
    ("counts", "node", "tasks"), [("2(x2),1", 2, 1), ("1,4", 1, 4), ("2x3", 9, 5), ("", 0, 5)]
)
def test_ranks_on_this_node(counts: str, node: int, tasks: int) -> None:
    step = {**STEP, "SLURM_STEP_TASKS_PER_NODE": counts, "SLURM_NODEID": str(node), "SLURM_LOCALID": "0"}
    assert place_of("run", step).local_world_size == tasks


def test_a_process_by_itself_is_alone() -> None:
    assert place_of("run", {}) == Place()
    assert place_of("run", {"RANK": "0", "WORLD_SIZE": "1"}) == Place()
    assert place_of("run", {"WORLD_SIZE": "4"}) == Place(), "not everything that sets it starts ranks"


def test_a_batch_script_is_one_process_though_its_job_has_tasks() -> None:
    batch = {name: text for name, text in STEP.items() if not name.startswith("SLURM_STEP")}
    assert place_of("run", {**batch, "SLURM_NTASKS": "5"}).is_alone


def test_a_task_of_a_step() -> None:
    place = place_of("run", STEP)
    assert (place.rank, place.world_size, place.local_rank, place.local_world_size) == (3, 5, 1, 2)
    assert (place.source, place.address) == ("slurm", "127.0.0.1")
    assert place.port == port_of("812.0.0.run")
    assert place_of("run", {**STEP, "MASTER_ADDR": "head", "MASTER_PORT": "77"}).port == 77


def test_a_host_that_the_network_does_not_know_is_where_srun_ran() -> None:
    there = {"SLURM_STEP_NODELIST": "no-such-host.invalid", "SLURM_LAUNCH_NODE_IPADDR": "127.0.0.1"}
    assert place_of("run", {**STEP, **there}).address == "127.0.0.1"


def test_other_jobs_steps_restarts_and_runs_meet_elsewhere() -> None:
    changed = [
        {},
        {"SLURM_JOB_ID": "813"},
        {"SLURM_STEP_ID": "1"},
        {"SLURM_RESTART_COUNT": "1"},
    ]
    ports = [place_of("run", {**STEP, **change}).port for change in changed] + [place_of("other", STEP).port]
    assert len(set(ports)) == len(ports)


@given(st.text())
def test_ports_are_below_those_that_the_system_hands_out(key: str) -> None:
    assert FIRST_PORT <= port_of(key) < FIRST_PORT + PORTS <= 32_768


def test_torchrun_inside_of_a_job_goes_before_slurm() -> None:
    launched = {
        "RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "head",
        "MASTER_PORT": "29500", "TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "2",
    }  # fmt: skip
    place = place_of("run", {**STEP, **launched})
    assert (place.source, place.rank, place.world_size, place.is_hosted) == ("torchrun", 1, 2, True)
    assert place.key.endswith(".2"), "keys of an earlier start are still in the agent's store"


@pytest.mark.parametrize(
    ("variables", "code"),
    [
        ({"RANK": "0", "WORLD_SIZE": "2"}, "no-master"),
        ({"RANK": "x", "WORLD_SIZE": "2"}, "not-a-number"),
        ({"RANK": "2", "WORLD_SIZE": "2", "MASTER_ADDR": "h", "MASTER_PORT": "1"}, "rank-out-of-range"),
        ({**STEP, "SLURM_STEP_NODELIST": "n["}, "no-node-list"),
        ({**STEP, "SLURM_STEP_NODELIST": "n[a-b]"}, "no-node-list"),
    ],
)
def test_variables_that_contradict_are_refused(variables: dict[str, str], code: str) -> None:
    with refused(code):
        place_of("run", variables)


def test_files_of_a_rank() -> None:
    first, third = Place(rank=0, world_size=4), Place(rank=3, world_size=4)
    assert [first.file("log.txt"), third.file("log.txt")] == ["log.txt", "log.rank3.txt"]
    assert [place.folder(Path("run")) for place in (first, third)] == [Path("run"), Path("run/rank3")]
