"""RUN and STUDY mean the same to every command, also for runs that have only been submitted."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from made_studies import MadeStudy

from experiment_utils.arguments import find_run as found_by_memory
from experiment_utils.errors import UserError
from slurm.arguments import all_studies, find_run, find_study, study_and_names, study_and_runs
from tests.golden_text import Golden

NAME = "32d-lr0.003-seed1-1a2b3c4d"


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A study with a run that is queued and one that is done, next to copies of the code."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HIGHWATER_RUNS_DIR", raising=False)
    for name, files in ((NAME, ["config.yaml"]), ("32d-lr0.003-seed2-99887766", ["config.yaml", "run.json"])):
        for file in files:
            path = tmp_path / "runs" / "sweep" / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("")
    for hidden in ("runs/.snapshots/ab/conf", "runs/sweep/.submissions/1/1a2b3c4d"):
        (tmp_path / hidden).mkdir(parents=True)
        (tmp_path / hidden / "config.yaml").write_text("")
    inner = tmp_path / "runs" / "sweep" / NAME / "checkpoints" / "step-1-1a2b3c4d"
    inner.mkdir(parents=True)
    (inner / "config.yaml").write_text("")
    return tmp_path / "runs"


@pytest.fixture
def jobs(place: Path) -> Path:
    """A study of three runs, of job 4242, next to another of job 7."""
    MadeStudy(place / "runs" / "other", ["32d-x"], array={"job_id": "7"})
    return MadeStudy(place / "runs" / "sweep", ["32d-a", "32d-b", "32d-c"]).folder


@pytest.mark.parametrize(("given", "names"), [("4242", ["32d-a", "32d-b", "32d-c"]), ("4242_1", ["32d-b"])])
def test_job_id_means_its_runs(jobs: Path, given: str, names: list[str], golden: Golden) -> None:
    study, found = study_and_names(given)
    assert (study.resolve(), found) == (jobs, names)
    if len(names) == 1:
        assert find_run(given).resolve() == jobs / names[0]
    else:
        with golden.refused("several-runs"):
            find_run(given)


@pytest.mark.parametrize("given", ["4243", "4242_3", "4242_x", "4242_[1"])
def test_job_of_no_run_is_refused(jobs: Path, given: str) -> None:
    for find in (find_run, study_and_names):
        with pytest.raises(UserError):
            find(given)


@pytest.mark.parametrize("given", ["1a2b", "1a2b3c4d", NAME, f"sweep/{NAME}", f"runs/sweep/{NAME}"])
def test_a_run_that_is_queued_is_found_by_both(runs: Path, given: str) -> None:
    assert find_run(given) == found_by_memory(given) == Path("runs/sweep") / NAME


@pytest.mark.parametrize("given", ["1a2b3c4d", f"sweep/{NAME}"])
def test_a_run_whose_config_is_gone_is_one_of_its_study_all_the_same(runs: Path, given: str) -> None:
    """It was submitted, and its job is in the queue: `status` counted one run less."""
    (runs / "sweep" / NAME / "config.yaml").rename(runs / "sweep" / NAME / "jobs.json")
    assert len(study_and_runs("sweep")[1]) == 2
    assert find_run(given) == found_by_memory(given) == Path("runs/sweep") / NAME
    (runs / ".set.slurm" / "00000-of-00001").mkdir(parents=True)
    (runs / ".set.slurm" / "00000-of-00001" / "jobs.json").touch()
    assert [study.name for study in all_studies()] == ["sweep"], "tasks of a token set are no runs"


def test_what_is_no_run(runs: Path, golden: Golden) -> None:
    for given in ("conf", "ab", "nosuch", "1a2"):
        for find in (found_by_memory, find_run):
            with pytest.raises(UserError) as error:
                find(given)
            assert error.value.codes == ["no-such-run"]
    with golden.refused("no-run-folder"):
        find_run("runs/sweep")


def test_several(runs: Path, golden: Golden) -> None:
    other = runs / "other" / "64d-lr0.003-seed1-1a2b0000"
    other.mkdir(parents=True)
    (other / "config.yaml").write_text("")
    with golden.refused("several-runs"):
        find_run("1a2b")


def test_studies(runs: Path, golden: Golden) -> None:
    assert find_study("sweep") == Path("runs/sweep")
    assert study_and_runs("sweep")[0] == Path("runs/sweep")
    assert study_and_runs(f"runs/sweep/{NAME}") == (Path("runs/sweep"), [Path("runs/sweep") / NAME])
    newer = runs / "newer" / "a"
    newer.mkdir(parents=True)
    (newer / "config.yaml").write_text("")
    for path in (runs / "sweep", runs / "sweep" / ".submissions"):
        os.utime(path, (1, 1))
    assert [path.name for path in all_studies()] == ["newer", "sweep"]
    with golden.refused("no-such-study"):
        find_study("nosuch")


def test_what_acts_on_a_study_takes_the_folder_of_one_run_for_that_run(
    runs: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    """Not for a study without runs, of which nothing is queued or to be submitted again."""
    assert study_and_names("sweep") == (Path("runs/sweep"), [])
    for given in (f"runs/sweep/{NAME}", f"sweep/{NAME}", str(runs / "sweep" / NAME)):
        study, names = study_and_names(given)
        assert (study.resolve(), names) == ((runs / "sweep").resolve(), [NAME])
    with golden.refused("no-runs"):
        study_and_names("runs")
    assert not (runs / ".submissions").exists()
    monkeypatch.chdir(runs / "sweep" / NAME)
    assert study_and_names(".") == (runs / "sweep", [NAME])
    assert study_and_runs("..")[1][0].name == NAME


def test_a_run_on_another_disk_behind_a_link(runs: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "scratch" / "32d-lr0.003-seed0-99998888"
    elsewhere.mkdir(parents=True)
    (elsewhere / "config.yaml").write_text("")
    (runs / "sweep" / elsewhere.name).symlink_to(elsewhere)
    (runs / "sweep" / "up").symlink_to(runs)
    assert find_run("9999").resolve() == elsewhere
    assert find_run(elsewhere.name) == find_run("9999")


def test_another_place_for_runs(runs: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HIGHWATER_RUNS_DIR", str(runs))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert find_run(NAME) == runs / "sweep" / NAME
    assert [path.name for path in all_studies()] == ["sweep"]


@pytest.mark.parametrize("find", [find_study, study_and_runs, find_run])
@pytest.mark.parametrize(("given", "code"), [("~nosuchuser/x", "no-such-user"), ("a" * 300, "no-such-")])
def test_a_name_that_no_folder_can_have(find: Callable[..., object], given: str, code: str) -> None:
    with pytest.raises(UserError) as error:
        find(given)
    assert error.value.code.startswith(code)


@pytest.mark.parametrize("find", [find_study, study_and_runs, find_run])
def test_a_folder_that_may_not_be_read(
    find: Callable[..., object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As root none is: the kernel's answer is given for it."""
    monkeypatch.setattr(os, "access", lambda path, mode: mode == os.F_OK)
    with pytest.raises(UserError) as error:
        find(str(tmp_path))
    assert error.value.codes == ["not-readable"]


def test_a_checkout_beside_studies_is_none(runs: Path) -> None:
    """runs_dir=..: its conf/ has a config.yaml too."""
    conf = runs / "checkout" / "conf"
    conf.mkdir(parents=True)
    for name in ("config.yaml", "__init__.py"):
        (conf / name).write_text("")
    assert all_studies() == [Path("runs/sweep")]
