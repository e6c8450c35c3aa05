"""What a cluster does to jobs: preemption, lost nodes, a controller that starts anew. One after the other."""

from __future__ import annotations

import dataclasses
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from conf import Config
from conf.schema import Memory, Slurm
from tests.local_slurm import Cluster
from tests.slurm.real_jobs import GOES_ON, Sent, send
from tests.tiny_run import tiny_config

pytestmark = [
    pytest.mark.slow,
    pytest.mark.privileged,
    pytest.mark.timeout(900),
    pytest.mark.usefixtures("its_clients"),
]


@pytest.fixture
def calm(slurm_cluster: Cluster) -> Iterator[Cluster]:
    """The cluster, and afterwards as it was: all nodes up, nobody's job in it."""
    yield slurm_cluster
    slurm_cluster.say("scancel", "--user=root", check=False)
    slurm_cluster.script("preempt-signal", "on")
    slurm_cluster.script("start")


def config(folder: Path, steps: int = 1_000_000) -> Config:
    found = tiny_config(folder, max_steps=steps, evals=2, checkpoint_every=100)
    repeating = dataclasses.replace(found.dataset, repeat=True)
    return dataclasses.replace(found, dataset=repeating, memory=Memory(every_steps=1000))


def until_second_attempt(job: Sent) -> None:
    """Until it trains, and `status` says so."""

    def trains() -> bool:
        return bool(job.status["attempt"] == 2 and job.status["stage"] == "train")

    job.until(trains, "the second attempt", meanwhile=GOES_ON)
    job.until_told("running", str(job.starts[1].host))


def end_well(job: Sent) -> None:
    """Stop it for good: these runs have no end of their own."""
    job.where.say("scancel", job.job)
    job.until_over()
    job.until_told("cancelled", "root")


@pytest.mark.parametrize("preempt_signal", ["on", "off"])
def test_preemption(calm: Cluster, tmp_path: Path, preempt_signal: str) -> None:
    """With preempt_send_user_signal SIGUSR2 comes, else SIGTERM; both ways it goes on from that very step."""
    calm.script("preempt-signal", preempt_signal)
    job = send(calm, config(tmp_path), "--partition=main", "--nodelist=n1", "--exclusive", "--signal=USR2@60")
    job.until_training()
    calm.say(
        "sbatch", "--partition=high", "--nodelist=n1", "--exclusive", "--output=/dev/null", "--wrap=sleep 3"
    )
    job.until(lambda: len(job.starts) > 1, "another start", meanwhile=GOES_ON)
    first, second = job.starts
    number = "SIGUSR2" if preempt_signal == "on" else "SIGTERM"
    assert (first.end, first.signal, first.state) == ("requeued", number, "preempted"), job.told()
    assert second.step_before == first.step_after != 0
    until_second_attempt(job)
    end_well(job)


def test_preempted_for_good(calm: Cluster, tmp_path: Path) -> None:
    """Of a job that may not be requeued."""
    asked = dataclasses.replace(config(tmp_path), slurm=Slurm(requeue=False))
    job = send(calm, asked, "--partition=main", "--nodelist=n1", "--exclusive", "--no-requeue")
    job.until_training()
    calm.say(
        "sbatch", "--partition=high", "--nodelist=n1", "--exclusive", "--output=/dev/null", "--wrap=true"
    )
    job.until_over()
    job.until_told("preempted")


def test_lost_node(calm: Cluster, tmp_path: Path) -> None:
    """The lock of the dead start stands still; the next one goes on from its last checkpoint, elsewhere."""
    job = send(calm, config(tmp_path))
    job.until_training(101)
    node = job.starts[0].host
    calm.script("kill-node", node)
    job.until(lambda: len(job.starts) > 1, "another start", meanwhile=GOES_ON)
    first, second = job.starts
    assert (first.end, first.host) == (None, node), "it had no time for a word"
    assert second.host != node
    assert second.step_before >= 100
    until_second_attempt(job)
    end_well(job)


def test_a_node_of_two_that_comes_back(calm: Cluster, tmp_path: Path) -> None:
    """Slurm repeats to it, a minute late, what was to end the start before, and so ends the next one."""
    job = send(calm, config(tmp_path), "--nodes=2", "--ntasks-per-node=1")
    job.until_training(101)
    (node,) = {"n1", "n2"} - {job.starts[0].host}
    calm.script("kill-node", node)
    job.until(lambda: job.state == "PENDING", "the job to be put back")
    calm.script("start-node", node)

    def goes_on() -> bool:
        """The order comes 60 to 75 s after the node was lost."""
        starts, trains = job.starts, job.status["stage"] == "train"
        return trains and (len(starts) > 2 or (len(starts) == 2 and time.time() - starts[1].started_s > 100))

    job.until(goes_on, "a start that is let be", meanwhile=GOES_ON)
    late = [start.reason for start in job.starts[1:-1]]
    told = "stopped by SIGTERM, which Slurm sent for the start before, whose node was lost"
    assert late in ([], [told]), job.told()
    assert job.starts[-1].step_before >= 100
    end_well(job)


@pytest.mark.parametrize("end", ["its node answers", "it is killed"])
def test_a_job_that_runs_twice(calm: Cluster, tmp_path: Path, end: str) -> None:
    """slurmd dies alone: the run lives on, and Slurm starts the job again. The second start waits in its job
    as long as the first lives, and takes over when that one stops: 60 s after the last touch if it is killed.
    """
    job = send(calm, config(tmp_path))
    job.until_training()
    node, pid = job.starts[0].host, job.status["pid"]
    log = job.run / "log.txt"
    calm.script("kill-slurmd", node)
    job.until(lambda: f"job {job.job} waits" in log.read_text(), "the second start", meanwhile=GOES_ON)
    assert (job.state, len(job.starts)) == ("RUNNING", 1), job.told()
    before = job.status["step"]
    job.until(lambda: job.status["step"] > before, "the first to go on", meanwhile=["running"])
    job.until_told("running", str(node))
    if end == "it is killed":
        os.kill(pid, signal.SIGKILL)
    else:
        calm.script("start-node", node)
    until_second_attempt(job)
    assert [start.restart for start in job.starts] == [0, 1], job.told()
    end_well(job)


def test_a_new_controller_and_an_administrator(calm: Cluster, tmp_path: Path) -> None:
    """What is queued and what runs stays when slurmctld starts anew. Of a job that somebody requeues: Slurm
    puts it back by itself, and ends it by SIGTERM; it is not put back twice.
    """
    running = send(calm, config(tmp_path))
    queued = send(calm, dataclasses.replace(config(tmp_path, steps=20), seed=2), "--hold")
    running.until_training()
    queued.until_told("queued")
    calm.script("restart-controller")
    assert running.state == "RUNNING"
    running.until_told("running", str(running.starts[0].host))
    queued.until_told("queued")
    calm.say("scontrol", "release", queued.job)
    calm.say("scontrol", "requeue", running.job)
    queued.until_over()
    assert queued.ends() == [("done", "done", None)], queued.told()
    queued.until_told("done")
    running.until(lambda: len(running.starts) > 1, "another start", meanwhile=GOES_ON)
    first, second = running.starts
    assert first.end in ("ended", None), "None: KillWait was over before it could say so"
    assert (second.restart, second.step_before > 0) == (1, True), running.told()
    until_second_attempt(running)
    end_well(running)
