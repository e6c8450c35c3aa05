"""`hydra/launcher=slurm` as it is typed: what is submitted, what is told, what is refused before."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_slurm import FakeSlurm

import slurm.submit.request_checks
import slurm.submit.watch_runs
from slurm.launch.code_snapshot import MANIFEST, Snapshot
from slurm.records.submissions import places, submissions
from tests.golden_text import Golden
from tests.slurm.submit.conftest import Type, end


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


@pytest.mark.parametrize(
    ("given", "what"),
    [
        (("seed=range(5)", "slurm.confirm=4"), "slurm.confirm: 5 runs would be submitted"),
        (("seed=0,1", "slurm.partition=batch,nope"), "nope"),
        (("seed=0,1", "optimizer.lr=1e-3,-1"), "optimizer.lr: must be above 0"),
        (("seed=0,1", "wait=true,false"), "wait: cannot be swept"),
        (("seed=0,1", "slurm.mem=1GB,2GB"), "slurm.mem: cannot be swept"),
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


@pytest.mark.parametrize(
    "said", ["Socket timed out on send/recv operation", "Unable to contact slurm controller", None]
)
def test_a_controller_that_does_not_answer_gets_no_run(
    type_: Type, cluster: FakeSlurm, capsys: pytest.CaptureFixture[str], said: str | None, golden: Golden
) -> None:
    """Whether it would take one; None: at all."""
    if said is None:
        scontrol = "#!/bin/sh\necho Unable to contact slurm controller >&2; exit 1\n"
        (cluster.bin / "scontrol").write_text(scontrol)
    else:
        cluster.tell("test_only", f"allocation failure: {said}")
    assert type_("-m", "seed=0,1") == 2
    (line,) = errors(capsys)
    golden.text(line)
    assert cluster.jobs == []
    assert len(cluster.calls("sbatch")) == (said is not None)


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


@pytest.mark.slow
def test_a_sweeper_that_chooses_by_results_gets_them(
    type_: Type, cluster_that_runs: FakeSlurm, foreign_sweeper: Path, place: Path
) -> None:
    sweeper = ("-m", "--config-dir", str(foreign_sweeper), "hydra/sweeper=descent")
    assert type_(*sweeper, "optimizer.lr=interval(1e-3,1)", "wait=true") == 0
    assert eval((place / "losses.txt").read_text()) == ({0.5: 2.5, 0.25: 2.25, 1.0: 3.0}, 2.125)
    assert len(list(submissions(place / "runs" / "default"))) == 2


def test_such_a_sweeper_without_waiting_is_refused(
    type_: Type, cluster: FakeSlurm, foreign_sweeper: Path, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    assert type_("-m", "--config-dir", str(foreign_sweeper), "hydra/sweeper=descent") == 2
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
