"""`hydra/launcher=slurm` as it is typed: what is submitted, what is told, what is refused before."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_slurm import FakeSlurm

import slurm.queue.queue_limits
import slurm.submit.request_checks
import slurm.submit.watch_runs
from experiment_utils import atomic_files
from memory.measure.process import started_at
from slurm.cluster import Cluster
from slurm.cluster.facts import SubmitLimit
from slurm.launch.code_snapshot import MANIFEST, Snapshot
from slurm.queue.queue_limits import Queue, Room
from slurm.records.submissions import places, submissions
from slurm.status import study_states
from slurm.submit import follow_up
from slurm.submit.batch import Submitted
from slurm.submit.cancel_jobs import cancel as cancel_runs
from slurm.submit.submit_runs import render
from slurm.submit.watch_runs import WaitInterrupted
from tests.golden_text import Golden
from tests.slurm.submit.conftest import Type, end, one_room

ROOT = Path(__file__).parents[3]
FOREIGN = """
from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper

class Halving(Sweeper):
    '''Successive halving: of each batch the better half goes on with twice the steps.'''

    def setup(self, *, hydra_context, task_function, config):
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config)

    def sweep(self, arguments):
        fixed = [a for a in arguments if not a.startswith(("optimizer.lr=", "training.max_steps="))]
        rates, steps, told = [1e-3, 2e-3, 4e-3, 8e-3], 2, []
        while rates:
            jobs = [[*fixed, f"optimizer.lr={rate}", f"training.max_steps={steps}"] for rate in rates]
            losses = [job.return_value for job in self.launcher.launch(jobs, initial_job_idx=len(told))]
            told.append(sorted(zip(losses, rates)))
            rates, steps = [rate for _, rate in told[-1]][: len(rates) // 2], 2 * steps
        open("told.txt", "w").write(repr(told))
"""


def errors(captured: pytest.CaptureFixture[str]) -> list[str]:
    """What was told of a command that cannot be used."""
    out, error = captured.readouterr()
    assert out == ""
    return [line.removeprefix("error: ") for line in error.splitlines()]


@pytest.mark.usefixtures("through_hydra")
def test_a_sweep_is_one_array_and_the_command_ends_at_once(
    type_: Type, cluster: FakeSlurm, place: Path, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    assert type_("-m", "seed=0,1,2", "slurm.parallel=2", "study.name=three") == 0
    (job,) = cluster.jobs
    assert (job["options"]["array"], job["options"]["time"]) == ("0-2%2", "0:05:00")
    assert job["cwd"] == str(place)
    (submission,) = submissions(place / "runs" / "three")
    assert "experiments.py -m dataset=text" in submission.command
    told = capsys.readouterr().out
    golden.text(told)
    assert type_("-m", "seed=0,1,2,3", "slurm.parallel=2", "study.name=three", "--json") == 0
    (answer,) = json.loads(capsys.readouterr().out)
    assert set(answer["left"].values()) == {"queued"}
    assert len(answer["submitted"]) == 1
    assert [one["job"] for one in answer["jobs"]] == [str(cluster.jobs[1]["id"])]


def test_a_study_elsewhere_is_told_by_its_path(
    type_: Type, cluster: FakeSlurm, place: Path, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    """`python -m slurm` knows no runs_dir that was typed."""
    from slurm.records.submissions import find_study

    assert type_("-m", "seed=0,1", "study.name=far", "runs_dir=else where") == 0
    golden.text(capsys.readouterr().out)
    assert find_study("else where/far") == Path("else where/far")


def test_refused_for_changed_code_no_folder_is_made_for_the_others(
    type_: Type, cluster: FakeSlurm, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert type_("seed=0", "study.name=s") == 0
    (run,) = (path.parent for path in place.glob("runs/s/*/config.yaml"))
    end(cluster, place, {0: "cancelled"})
    (run / "checkpoints" / "step-00000001").mkdir(parents=True)
    (run / "run.json").write_text('{"attempts": [{"attempt": 1, "code": {"hash": "earlier"}}]}')
    capsys.readouterr()
    assert type_("-m", "seed=0,1", "study.name=s") == 2
    assert "code=any" in capsys.readouterr().err
    assert [path.parent for path in place.glob("runs/s/*/config.yaml")] == [run]
    assert len(cluster.jobs) == 1


def test_one_run_without_m_is_submitted_too(type_: Type, cluster: FakeSlurm, place: Path) -> None:
    assert type_("seed=7") == 0
    assert "array" not in cluster.jobs[0]["options"]
    (folder,) = (path.parent for path in place.glob("runs/default/*/config.yaml"))
    assert [(one.array, one.task) for one in places(folder)] == [(0, 0)]


def test_a_config_of_ones_own_may_choose_the_launcher(
    type_: Type, cluster: FakeSlurm, place: Path, tmp_path: Path
) -> None:
    conf = tmp_path / "mine"
    conf.mkdir()
    (conf / "ours.yaml").write_text("defaults:\n  - config\n  - override hydra/launcher: slurm\n  - _self_\n")
    assert type_("--config-dir", str(conf), "--config-name", "ours", "hydra/launcher=slurm") == 0
    from experiments import main
    from tests.slurm.submit.conftest import ASKED

    assert main(["--config-dir", str(conf), "--config-name", "ours", *ASKED, "seed=5"]) == 0
    assert len(cluster.jobs) == 2


def test_where_arrays_are_off_each_task_is_a_plain_job(type_: Type, cluster: FakeSlurm) -> None:
    """sbatch refuses all of them there, also one of workers."""
    cluster.tell("config", "MaxArraySize            = 0\n")
    assert type_("-m", "seed=0,1,2") == 0
    assert type_("-m", "seed=3,4,5", "slurm.workers=2") == 0
    assert [job["options"].get("array") for job in cluster.jobs] == [None] * 5


def test_a_sweep_of_what_makes_no_other_run_is_refused(type_: Type, cluster: FakeSlurm) -> None:
    """One of the sizes of memory would be lost."""
    assert type_("-m", "seed=0,1", "slurm.mem=1GB,2GB", "training.max_steps=2") == 2
    assert cluster.jobs == []


def test_from_inside_a_job(type_: Type, cluster: FakeSlurm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "5")
    monkeypatch.setenv("SLURM_MEM_PER_NODE", "100")
    monkeypatch.setenv("SLURM_CONF", __file__)
    assert type_("seed=1") == 0
    around = cluster.jobs[0]["environment"]
    assert around["SLURM_CONF"] == __file__
    assert not {"SLURM_JOB_ID", "SLURM_MEM_PER_NODE"} & set(around)


@pytest.mark.parametrize(
    ("given", "what"),
    [
        (("seed=range(5)", "slurm.confirm=4"), "slurm.confirm: 5 runs would be submitted"),
        (("seed=0,1", "slurm.partition=batch,nope"), "nope"),
        (("seed=0,1", "optimizer.lr=1e-3,-1"), "optimizer.lr: must be above 0"),
        (("seed=0,1", "wait=true,false"), "wait: cannot be swept"),
        (("seed=0,1", "runs_dir=50%"), "runs_dir: "),
        (("seed=0,1", "runs_dir='a:b'"), "Python reads : as the end of a folder's name"),
        (("slurm.pack=2", "slurm.tasks_per_node=2", "slurm.mem=9GB"), "share a job have one rank each"),
    ],
)
def test_what_is_wrong_with_any_run_is_told_before_the_first_sbatch(
    type_: Type,
    cluster: FakeSlurm,
    place: Path,
    capsys: pytest.CaptureFixture[str],
    given: tuple[str, ...],
    what: str,
) -> None:
    assert type_("-m", *given) == 2
    found = errors(capsys)
    assert any(what in line for line in found), found
    assert cluster.jobs == []
    assert not list(place.glob("runs/**/config.yaml"))


def test_all_that_is_wrong_is_told_at_once(
    type_: Type, cluster: FakeSlurm, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the command alone tells, what the data and the memory tell, what the cluster would say."""
    wrong = ("slurm.mem=900GB", "training.effective_batch=4", "slurm.nodes=3")
    assert type_("-m", *wrong, "slurm.gpu_type=a100", "notify=nobody", "seed=0,1") == 2
    found = [line.partition(":")[0] for line in errors(capsys)]
    assert set(found) == {"notify", "training.effective_batch", "slurm.gpu_type"}
    assert type_("slurm.mem=1MB", "slurm.gpu_type=a100") == 2
    found = [line.partition(":")[0] for line in errors(capsys)]
    assert set(found) == {"training.micro_batch", "slurm.gpu_type"}
    assert cluster.jobs == []


def test_no_slurm_here_names_the_local_launcher(
    type_: Type,
    cluster: FakeSlurm,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    golden: Golden,
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert type_("-m", "seed=0,1") == 2
    (line,) = errors(capsys)
    golden.text(line)
    assert "hydra/launcher=local" in line


def test_a_controller_that_is_down_is_told(
    type_: Type, cluster: FakeSlurm, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    (cluster.bin / "scontrol").write_text("#!/bin/sh\necho Unable to contact slurm controller >&2; exit 1\n")
    assert type_("-m", "seed=0,1") == 2
    (line,) = errors(capsys)
    golden.text(line)
    assert cluster.jobs == []


@pytest.mark.parametrize(
    "said", ["Socket timed out on send/recv operation", "Unable to contact slurm controller"]
)
def test_a_controller_that_does_not_answer_whether_it_would_take_a_run_gets_none(
    type_: Type, cluster: FakeSlurm, capsys: pytest.CaptureFixture[str], said: str, golden: Golden
) -> None:
    cluster.tell("test_only", f"allocation failure: {said}")
    assert type_("-m", "seed=0,1") == 2
    (line,) = errors(capsys)
    golden.text(line)
    assert said in line
    assert cluster.jobs == []
    assert len(cluster.calls("sbatch")) == 1


def test_a_dirty_tree_is_refused_where_that_is_asked_for(
    type_: Type,
    cluster: FakeSlurm,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    golden: Golden,
) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    git = ["git", "-C", str(tree), "-c", "user.name=a", "-c", "user.email=a@b"]
    (tree / "a.py").write_text("")
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-qm", "all"]):
        subprocess.run([*git, *arguments], check=True)
    monkeypatch.setattr(slurm.submit.submit_runs, "ROOT", tree)
    assert type_("seed=1", "slurm.require_clean=true") == 0
    (tree / "b.py").write_text("")
    assert type_("seed=2") == 0
    capsys.readouterr()
    assert type_("seed=3", "slurm.require_clean=true") == 2
    (line,) = errors(capsys)
    golden.text(line)
    subprocess.run([*git, "add", "."], check=True)
    assert type_("seed=3", "slurm.require_clean=true") == 2
    golden.text(errors(capsys)[0])


def test_waiting_tells_how_they_ended(
    type_: Type, cluster_that_runs: FakeSlurm, capsys: pytest.CaptureFixture[str]
) -> None:
    assert type_("-m", "seed=0,1", "wait=true", "--json") == 1
    answer = json.loads(capsys.readouterr().out)
    assert [one["state"] for one in answer["outcomes"]] == ["done", "failed"]
    assert answer["outcomes"][0]["val_loss"] == pytest.approx(2.003)
    assert answer["outcomes"][1]["reason"] == "luckless"
    assert type_("seed=0", "wait=true") == 0
    assert "32d-lr0.003-seed0" in capsys.readouterr().out.replace("16d", "32d")


@pytest.mark.parametrize(
    ("typed", "runs_of_a_task"),
    [("seed=0,1,2,3,4", [1] * 5), ("optimizer.beta1=0.9,0.8,0.7 ensemble.seed=[0,1]", [2] * 3)],
)
def test_waiting_submits_the_rest_as_others_end(
    typed: str,
    runs_of_a_task: list[int],
    type_: Type,
    cluster: FakeSlurm,
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A queue of two at a time (MaxSubmitJobs)."""
    monkeypatch.setattr(slurm.submit.watch_runs, "POLL_S", 0.05)
    monkeypatch.setattr(
        slurm.queue.queue_limits, "rooms_of", one_room(lambda: max(0, 2 - len(cluster.pending)))
    )
    copies = list[int]()

    def taken(runs_dir: str, known: dict[str, Path]) -> Path:
        copies.append(id(known))
        return ROOT

    monkeypatch.setattr(slurm.submit.submit_runs, "_snapshot", taken)
    most, tasks, stop = [], list[int](), threading.Event()

    def run() -> None:
        while not stop.wait(0.1):
            most.append(len(cluster.pending))
            for job, task in cluster.pending[:1]:
                for submission in submissions(place / "runs" / "default"):
                    if submission.arrays[0].job_id == str(job):
                        tasks.append(len(submission.arrays[0].tasks[task]))
                        for name in submission.arrays[0].tasks[task]:
                            folder = submission.study / name
                            atomic_files.write_json(folder / "run.json", {"results": {"val_loss": 2.0}})
                            atomic_files.write_json(folder / "status.json", {"state": "done"})
                        cluster.set_state(job, "COMPLETED", task=task)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        assert type_("-m", *typed.split(), "wait=true", "--json") == 0
    finally:
        stop.set()
        thread.join()
    answer = json.loads(capsys.readouterr().out)
    assert [one["state"] for one in answer["outcomes"]] == ["done"] * sum(runs_of_a_task)
    assert sum(len(one["submitted"]) for one in answer["submitted"]) == sum(runs_of_a_task)
    assert tasks == runs_of_a_task
    assert max(most) == 2
    assert len(copies) == len(cluster.jobs) > 1
    assert len(set(copies)) == 1, "what is submitted later runs the same code"


def test_what_comes_after_a_sweep_comes_once_and_tells_all_of_it(
    type_: Type,
    cluster: FakeSlurm,
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    golden: Golden,
) -> None:
    """Also where the queue had no room for it at once: it came after each part, and told of that alone."""
    caplog.set_level("INFO", "slurm")
    monkeypatch.setattr(slurm.submit.watch_runs, "POLL_S", 0.05)
    monkeypatch.setattr(slurm.queue.queue_limits, "rooms_of", one_room(lambda: 3 - len(cluster.pending)))
    stop = threading.Event()

    def run() -> None:
        while not stop.wait(0.1):
            for job in cluster.jobs:
                if "dependency" in job["options"]:
                    cluster.set_state(job["id"], "COMPLETED")
                elif "PENDING" in job["states"]:
                    cluster.set_state(job["id"], "FAILED", task=job["states"].index("PENDING"))
                    break

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        assert type_("-m", "seed=0,1,2,3,4", "wait=true", "then=analysis") == 1
    finally:
        stop.set()
        thread.join()
    told = re.findall(r"^\d of (.*?) after", "\n".join(caplog.messages), re.MULTILINE)
    assert told[0] != told[-1]
    assert "queued" in told[0], "what waits for room is of the sweep"
    golden.text(told[-1])
    made = list(submissions(place / "runs" / "default"))
    assert len(made) > 1
    assert sum(len(array.tasks) for array in made[0].arrays if array.is_sent) == 3, "it goes with the last"
    assert [one.follow_up is not None for one in made] == [False] * (len(made) - 1) + [True]
    assert made[-1].earlier == [one.id for one in made[:-1]]
    assert sum(follow_up.summary(made[-1])["counts"].values()) == 5


def test_one_command_makes_one_copy_of_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Editing it meanwhile changes nothing of what the command submits later."""
    copy, made = tmp_path / "copy", list[str]()

    def take(runs_dir: str) -> Snapshot:
        made.append(runs_dir)
        copy.mkdir()
        (copy / MANIFEST).touch()
        return Snapshot(copy, "hash", None, None)

    monkeypatch.undo()
    monkeypatch.setattr(slurm.submit.submit_runs, "take", take)
    copies = dict[str, Path]()
    assert [slurm.submit.submit_runs._snapshot("runs", copies) for _ in range(2)] == [copy] * 2
    assert made == ["runs"]
    shutil.rmtree(copy)  # `clean` takes one that no open run needs
    assert slurm.submit.submit_runs._snapshot("runs", copies) == copy
    assert made == ["runs"] * 2


def test_room_that_another_study_leaves_is_taken_while_none_of_these_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its own runs may go on for days."""
    rooms, looks = iter([False, True]), iter(range(200))

    def running(study: Path, runs: list[str]) -> dict[str, str]:
        assert next(looks, None) is not None, "nobody asks for room"
        return {"a": "running"}

    monkeypatch.setattr(slurm.submit.watch_runs, "POLL_S", 0.001)
    monkeypatch.setattr(slurm.submit.watch_runs, "ROOM_POLL_S", 0.002, raising=False)
    monkeypatch.setattr(slurm.submit.watch_runs, "in_flight", running)
    slurm.submit.watch_runs.wait_for(Path("study"), ["a"], lambda: next(rooms))


@pytest.mark.parametrize(("most", "more", "status"), [(0, (), 2), (1, ("then=analysis",), 2), (1, (), 0)])
def test_a_queue_that_never_takes_a_run_is_not_waited_for(
    type_: Type,
    cluster: FakeSlurm,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    most: int,
    more: tuple[str, ...],
    status: int,
    golden: Golden,
) -> None:
    monkeypatch.setattr(Cluster, "submit_limit", lambda *queue: most)
    assert type_("seed=0", *more) == status
    golden.text(capsys.readouterr().err)


def test_the_room_of_a_partition_is_what_its_quality_of_service_leaves(
    type_: Type,
    cluster: FakeSlurm,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    golden: Golden,
) -> None:
    """As on many sites: the limit is the partition's, and jobs of other partitions take nothing of it."""
    of_partition = SubmitLimit(3, qos="small", partitions=("smallcpu",))
    monkeypatch.setattr(Cluster, "submit_limits", lambda self, *place: [of_partition])
    queued = "a|normal|smallcpu\na|normal|big\na|small|big"
    cluster.write_client("squeue", f"#!/bin/sh\ncase \"$*\" in *%P*) echo '{queued}';; esac\n")
    assert type_("-m", "seed=0,1", "--json") == 1
    (told,) = json.loads(capsys.readouterr().out)
    assert len(told["submitted"]) == 1
    (why,) = told["not_submitted"].values()
    golden.text(why)


FULL = "sbatch: error: AssocMaxSubmitJobLimit; Job violates accounting/QOS policy (job submit limit)"
AWAY = "allocation failure: Unable to contact slurm controller (connect failure)"


@pytest.mark.parametrize("said", [FULL, "allocation failure: Resource temporarily unavailable"])
def test_a_full_queue_is_no_mistake_of_who_submits(
    said: str,
    type_: Type,
    cluster: FakeSlurm,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    golden: Golden,
) -> None:
    """`sbatch --test-only` refuses everything then, also runs that are queued and need no room. Of a user's
    limit, and of the cluster's own (MaxJobCount)."""
    assert type_("-m", "seed=0,1") == 0
    cluster.tell("test_only", said)
    monkeypatch.setattr(slurm.queue.queue_limits, "rooms_of", one_room(lambda: 0))
    capsys.readouterr()
    assert type_("-m", "seed=0,1") == 0
    golden.text(capsys.readouterr().out)
    assert type_("-m", "seed=0,1,2") == 1
    told = capsys.readouterr().out
    golden.text(told)
    assert "slurm.workers=1" not in told, "one worker has no room either"
    assert len(cluster.jobs) == 1


def test_a_limit_that_sbatch_alone_knows_of_divides_the_sweep(
    type_: Type, cluster: FakeSlurm, place: Path, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    """GrpSubmitJobs: in it jobs of other users count. A sweep that is larger was refused as a whole."""
    cluster.tell("most", "3")
    sweep = ("-m", "seed=0,1,2,3,4,5,6", "slurm.by_model={32d: {mem: 1GB}}")
    assert type_(*sweep) == 1
    assert [len(job["states"]) for job in cluster.jobs] == [3]
    told = capsys.readouterr().out
    golden.text(told)
    assert type_(*sweep) == 1, "it is full"
    golden.text(capsys.readouterr().out)
    assert len(cluster.jobs) == 1


def test_such_a_limit_counts_all_resource_classes_together(type_: Type, cluster: FakeSlurm) -> None:
    """Each was asked about by itself: the second was refused as a whole, or the job at the end."""
    cluster.tell("most", "5")
    mems = "slurm.by_model={32d: {mem: 1GB}, 48d: {mem: 2GB}}"
    assert type_("-m", "model=32d,48d", "seed=0,1,2", mems, "then=analysis") == 1
    sent = [(len(job["states"]), "dependency" in job["options"]) for job in cluster.jobs]
    assert sent == [(3, False), (1, False), (1, True)]


SPLIT = "slurm.by_model={32d: {partition: gpu}, 48d: {partition: main}}"


def test_a_partition_without_room_holds_back_its_own_runs_alone(
    type_: Type, cluster: FakeSlurm, place: Path, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    """Those of the sweep for another waited too, until the command was typed again."""
    cluster.tell("most_in", "gpu 1")
    sweep = ("-m", "model=32d,48d", "seed=0,1,2", SPLIT, "then=analysis")
    assert type_(*sweep) == 1
    queued = [(job["options"]["partition"], len(job["states"])) for job in cluster.jobs]
    assert queued == [("gpu", 1), ("main", 3), ("main", 1)], "the analysis has no room beside the first"
    assert "dependency" in cluster.jobs[-1]["options"]
    told = " ".join(capsys.readouterr().out.split())
    golden.text(told)


def test_a_partition_that_takes_one_job_takes_a_run_and_the_end_goes_elsewhere(
    type_: Type, cluster: FakeSlurm, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every run was refused; and of one that came later it was forgotten that its study is in another too."""
    cluster.tell("most_in", "gpu 1")
    monkeypatch.setattr(Cluster, "submit_limit", lambda self, *queue: 1 if "gpu" in queue else None)
    assert type_("-m", "model=32d,48d", SPLIT, "then=analysis") == 0
    end(cluster, place)
    assert type_("-m", "model=32d", "seed=1", SPLIT, "then=analysis") == 0
    sent = [(job["options"]["partition"], "dependency" in job["options"]) for job in cluster.jobs]
    assert sent == [("gpu", False), ("main", False), ("main", True), ("gpu", False), ("main", True)]


def test_what_sbatch_has_no_room_for_holds_back_its_own_partition_alone(
    type_: Type, cluster: FakeSlurm, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another command has taken the place meanwhile."""
    monkeypatch.setattr(slurm.submit.resource_check, "_test_only", lambda one, tasks: True)
    cluster.tell("most_in", "gpu 1")
    assert type_("-m", "model=32d,48d", "seed=0,1", SPLIT) == 1
    assert [job["options"]["partition"] for job in cluster.jobs] == ["main"]
    states = {entry.state for entry in study_states(place / "runs" / "default") if entry.job is None}
    assert states == {"never_started"}


def test_a_cluster_that_is_full_is_asked_once(
    type_: Type, cluster: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """sbatch tries for two minutes by itself to be taken where MaxJobCount is reached."""
    monkeypatch.setattr(slurm.submit.resource_check, "_test_only", lambda one, tasks: True)
    cluster.tell("refuse_job", "sbatch: error: Batch job submission failed: Resource temporarily unavailable")
    assert type_("-m", "model=32d,48d", SPLIT) == 1
    assert len(cluster.calls("sbatch")) == 1


@pytest.mark.slow
def test_waiting_for_room_in_one_of_two_partitions(
    type_: Type, cluster: FakeSlurm, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By limits that are known (MaxSubmitJobs): each goes as its own has room."""
    monkeypatch.setattr(slurm.submit.watch_runs, "POLL_S", 0.05)
    monkeypatch.setattr(slurm.submit.submit_runs, "ROOM_POLL_S", 0.1)
    gpu_is_full = True  # of jobs of other studies

    def rooms_of(queues: list[Queue], cluster_: object) -> tuple[Room, ...]:
        there = [cluster.jobs[job - 101]["options"]["partition"] for job, _ in cluster.pending]
        left = {"gpu": 0 if gpu_is_full else 1 - there.count("gpu"), "main": 1 - there.count("main")}
        return tuple(Room(left[str(queue.partition)], frozenset([queue])) for queue in queues)

    monkeypatch.setattr(slurm.queue.queue_limits, "rooms_of", rooms_of)
    stop = threading.Event()

    def run() -> None:
        nonlocal gpu_is_full
        while not stop.wait(0.2):
            gpu_is_full = len(cluster.jobs) < 3
            for job, task in cluster.pending[:1]:
                cluster.set_state(job, "FAILED", task=task)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        assert type_("-m", "model=32d,48d", "seed=0,1,2", SPLIT, "wait=true") == 1
    finally:
        stop.set()
        thread.join()
    assert [job["options"]["partition"] for job in cluster.jobs] == ["main"] * 3 + ["gpu"] * 3


def test_the_job_at_the_end_has_its_room_there_too(type_: Type, cluster: FakeSlurm) -> None:
    cluster.tell("most", "3")
    assert type_("-m", "seed=0,1,2", "then=analysis") == 1
    assert [len(job["states"]) for job in cluster.jobs] == [2, 1]
    assert "dependency" in cluster.jobs[1]["options"]


@pytest.mark.slow
def test_waiting_submits_what_of_another_study_of_the_sweep_has_room(
    type_: Type, cluster: FakeSlurm, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second waited until the first had ended, however long its last run took."""
    monkeypatch.setattr(slurm.submit.watch_runs, "POLL_S", 0.05)
    monkeypatch.setattr(slurm.submit.watch_runs, "ROOM_POLL_S", 0.1)
    monkeypatch.setattr(
        slurm.queue.queue_limits, "rooms_of", one_room(lambda: max(0, 2 - len(cluster.pending)))
    )
    stop, seen = threading.Event(), list[int]()

    def run() -> None:
        """The first run of all ends last."""
        while not stop.wait(0.2):
            seen.append(len(cluster.jobs))
            others = [(job, task) for job, task in cluster.pending if (job, task) != (101, 0)]
            for job, task in others[:1] or (cluster.pending if len(cluster.jobs) > 2 else []):
                cluster.set_state(job, "FAILED", task=task)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        assert type_("-m", "study.name=first,second", "seed=0,1", "wait=true", "--json") == 1
    finally:
        stop.set()
        thread.join()
    assert [len(job["states"]) for job in cluster.jobs] == [2, 1, 1]


@pytest.mark.slow
def test_waiting_for_room_that_sbatch_alone_knows_of(
    type_: Type, cluster: FakeSlurm, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm.submit.watch_runs, "POLL_S", 0.05)
    monkeypatch.setattr(slurm.submit.submit_runs, "ROOM_POLL_S", 0.1)
    cluster.tell("most", "2")
    stop = threading.Event()

    def run() -> None:
        while not stop.wait(0.5):
            for job, task in cluster.pending[:1]:
                cluster.set_state(job, "FAILED", task=task)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        assert type_("-m", "seed=0,1,2,3,4", "wait=true") == 1
    finally:
        stop.set()
        thread.join()
    tasks = [len(job["states"]) for job in cluster.jobs]
    assert (max(tasks), sum(tasks)) == (2, 5)
    made = list(submissions(place / "runs" / "default"))
    assert len(made) == len(cluster.jobs), "one that has no room leaves no new record"


def test_waiting_begins_when_a_full_queue_has_room(
    type_: Type,
    cluster_that_runs: FakeSlurm,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    golden: Golden,
) -> None:
    rooms = iter([0, 0])

    def room() -> int:
        found = next(rooms, 2)
        if found:
            (cluster_that_runs.folder / "test_only").unlink(missing_ok=True)
        return found

    caplog.set_level("INFO", "slurm")
    cluster_that_runs.tell("test_only", FULL)
    monkeypatch.setattr(slurm.queue.queue_limits, "rooms_of", one_room(room))
    assert type_("-m", "seed=2,3,4", "wait=true") == 0
    told = caplog.text
    (waits,) = {line for line in caplog.messages if line.startswith("default: 3 ")}
    golden.text(waits)
    assert "0 of 0 runs" not in told


@pytest.mark.parametrize("comes_back", [True, False])
def test_waiting_for_room_goes_on_while_slurmctld_is_away(
    comes_back: bool,
    type_: Type,
    cluster_that_runs: FakeSlurm,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = 0

    def room() -> int | None:
        nonlocal asked
        asked += 1
        if asked == 2:  # squeue does not answer either, so no limit is known
            cluster_that_runs.tell("test_only", AWAY)
        if asked == 5 and comes_back:
            (cluster_that_runs.folder / "test_only").unlink()
        return 0 if asked == 1 else None

    monkeypatch.setattr(slurm.submit.submit_runs, "POLL_S", 0.05)
    monkeypatch.setattr(slurm.submit.submit_runs, "PATIENCE_S", 60 if comes_back else 0.1)
    cluster_that_runs.tell("test_only", FULL)
    monkeypatch.setattr(slurm.queue.queue_limits, "rooms_of", one_room(room))
    assert type_("-m", "seed=2,3", "wait=true") == (0 if comes_back else 2)
    assert ("slurmctld" in capsys.readouterr().err) != comes_back
    assert [len(job["states"]) for job in cluster_that_runs.jobs] == ([2] if comes_back else [])


@pytest.mark.parametrize("sees_it", [True, False])
def test_waiting_goes_on_where_another_command_takes_the_place(
    sees_it: bool,
    type_: Type,
    cluster_that_runs: FakeSlurm,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Two sweeps wait at once: each sees the place that has come free, and one of them is too late.

    sees_it: before it calls sbatch, or only by what that says.
    """
    caplog.set_level("INFO", "slurm")
    monkeypatch.setattr(slurm.submit.submit_runs, "ROOM_POLL_S", 0.1, raising=False)
    rooms = iter([1, 1, 0] if sees_it else [1])
    monkeypatch.setattr(slurm.queue.queue_limits, "rooms_of", one_room(lambda: next(rooms, 2)))
    if not sees_it:
        cluster_that_runs.tell("refuse_job", FULL)
        monkeypatch.setattr(
            slurm.submit.submit_runs, "has_room", lambda *asked: _takes_again(cluster_that_runs)
        )
    assert type_("-m", "seed=2,3,4", "wait=true") == 0


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_waiting_submits_what_another_command_waited_to_submit_and_has_not(
    type_: Type,
    cluster: FakeSlurm,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    is_cancelled: bool,
) -> None:
    """Two shells wait with the same sweep for room; the one that was first is killed. Once the study was
    cancelled the other submits nothing: it submitted what had waited as soon as the rest was ended.
    """
    first = subprocess.Popen(["sleep", "100"])

    def pressed(*asked: object) -> None:
        raise WaitInterrupted("")

    with monkeypatch.context() as of_the_first:
        process = f"{os.uname().nodename}:{first.pid}:{started_at(first.pid)}"
        of_the_first.setattr(slurm.submit.submit_runs, "this_process", lambda: process)
        of_the_first.setattr(slurm.submit.submit_runs, "wait_for", pressed)
        of_the_first.setattr(slurm.queue.queue_limits, "rooms_of", one_room(lambda: 1))
        assert type_("-m", "seed=2,3,4", "wait=true") == 130

    def ended(*asked: object) -> bool:
        first.kill()
        first.wait()
        if is_cancelled and not asked_to_end:
            asked_to_end.extend(cancel_runs(Path("runs/default")))
        for job in cluster.jobs:
            cluster.set_state(job["id"], "COMPLETED")
        return True

    asked_to_end: list[object] = []
    monkeypatch.setattr(slurm.submit.submit_runs, "wait_for", ended)
    capsys.readouterr()
    assert type_("-m", "seed=2,3,4", "wait=true", "--json") == 1
    found, *rest = json.loads(capsys.readouterr().out)["submitted"]
    assert bool(rest) != is_cancelled
    if is_cancelled:
        return
    (more,) = rest
    assert list(found["left"].values()) == ["queued"], "of the first command"
    assert [run.partition("-seed")[2][0] for run in more["submitted"]] == ["3", "4"]
    assert sum(len(job["states"]) for job in cluster.jobs) == 3


def _takes_again(cluster: FakeSlurm) -> bool:
    (cluster.folder / "refuse_job").unlink(missing_ok=True)
    return True


def test_studies_of_one_sweep_share_the_room_of_the_queue(
    type_: Type,
    cluster: FakeSlurm,
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    golden: Golden,
) -> None:
    """The second is told what fits beside the first, and not submitted whole to be refused whole."""
    monkeypatch.setattr(slurm.queue.queue_limits, "rooms_of", one_room(lambda: 5))
    assert type_("-m", "study.name=a,b", "seed=0,1,2", "then=analysis", "--json") == 1
    first, second = json.loads(capsys.readouterr().out)
    assert [len(one["submitted"]) for one in (first, second)] == [3, 0]
    cluster.jobs.clear()
    assert type_("-m", "study.name=c,d", "seed=0,1,2", "--json") == 1
    first, second = json.loads(capsys.readouterr().out)
    assert [len(one["submitted"]) for one in (first, second)] == [3, 2]
    (why,) = second["not_submitted"].values()
    golden.text(why)


def test_what_waits_for_room_is_told_as_what_becomes_of_it(tmp_path: Path, golden: Golden) -> None:
    """Nobody has to type anything while the command waits."""
    one = Submitted(tmp_path / "s", ["a", "b"], left={"a": "queued"}, not_sent={"b": "why"}, no_room=("b",))
    golden.text("\n".join(render([one], waiting=True)))
    golden.text("\n".join(render([one])))


@pytest.fixture
def ctrl_c(cluster: FakeSlurm, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Comes while the jobs of the test are waited for."""
    monkeypatch.setattr(slurm.submit.watch_runs, "POLL_S", 0.05)

    def interrupt() -> None:
        while len(cluster.calls("squeue")) < 3:
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    yield
    thread.join()


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_ends_the_waiting_and_no_job(
    type_: Type, cluster: FakeSlurm, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    assert type_("-m", "seed=0,1", "wait=true") == 130
    told = capsys.readouterr().err
    golden.text(told)
    assert cluster.jobs[0]["states"] == ["PENDING"] * 2
    assert cluster.calls("scancel") == []


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_tells_what_no_job_does(
    type_: Type,
    cluster: FakeSlurm,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    golden: Golden,
) -> None:
    """Runs without room in the queue, and the rungs to come, are the command's that ends."""

    def queued() -> list[str]:
        return [state for job in cluster.jobs for state in job["states"]]

    monkeypatch.setattr(slurm.queue.queue_limits, "rooms_of", one_room(lambda: 2 - len(queued())))
    search = ("hydra/sweeper=halving", "optimizer.lr=1e-3,2e-3,4e-3,8e-3", "schedule=constant")
    assert type_("-m", *search, "training.max_steps=8", "wait=true") == 130
    told = capsys.readouterr().err
    golden.text(told)
    assert queued() == ["PENDING"] * 2


@pytest.fixture
def their_sweeper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A sweeper that another package brings, as Optuna's does."""
    from hydra.core.plugins import Plugins
    from hydra.core.singleton import Singleton

    package = tmp_path / "site" / "hydra_plugins" / "halving"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "halving.py").write_text(FOREIGN)
    conf = tmp_path / "their_conf" / "hydra" / "sweeper"
    conf.mkdir(parents=True)
    (conf / "theirs.yaml").write_text("_target_: hydra_plugins.halving.halving.Halving\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    Singleton._instances.pop(Plugins, None)
    yield tmp_path / "their_conf"
    Singleton._instances.pop(Plugins, None)


@pytest.mark.slow
def test_a_sweeper_that_chooses_by_results_gets_them(
    type_: Type, cluster_that_runs: FakeSlurm, their_sweeper: Path, place: Path
) -> None:
    sweeper = ("-m", "--config-dir", str(their_sweeper), "hydra/sweeper=theirs")
    assert type_(*sweeper, "optimizer.lr=interval(1e-3,1e-2)", "wait=true") == 0
    told = eval((place / "told.txt").read_text())
    assert [[round(loss, 6) for loss, _ in batch] for batch in told] == [
        [2.001, 2.002, 2.004, 2.008],
        [2.001, 2.002],
        [2.001],
    ]
    assert len(list(submissions(place / "runs" / "default"))) == 3


def test_such_a_sweeper_without_waiting_is_refused(
    type_: Type, cluster: FakeSlurm, their_sweeper: Path, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    assert type_("-m", "--config-dir", str(their_sweeper), "hydra/sweeper=theirs") == 2
    golden.text("\n".join(errors(capsys)))
    assert cluster.jobs == []


def test_what_only_a_submission_can_do_is_not_passed_over(
    place: Path, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    from experiments import main
    from tests.slurm.submit.conftest import ASKED

    assert main([*ASKED, "then=analysis"]) == 2
    (line,) = errors(capsys)
    golden.text(line)
    assert not (place / "runs").exists()
