"""A copy of a study's or run's folder: its jobs and processes belong to the original."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from fake_slurm import FakeSlurm
from made_studies import MadeStudy, here

from experiment_utils import lock_file
from memory.record.ring import RingWriter, read_head
from memory.show.find_live import find_live
from slurm.records.submissions import submissions
from slurm.status import study_states
from tests.slurm.submit.conftest import Type
from tests.slurm.submit.test_resubmit_runs import command


@pytest.fixture
def study(type_: Type, place: Path) -> Path:
    """Two runs in the queue."""
    assert type_("-m", "seed=0,1") == 0
    return place / "runs" / "default"


def test_no_command_acts_on_jobs_of_the_original(study: Path, cluster: FakeSlurm) -> None:
    copy = study.with_name("backup")
    shutil.copytree(study, copy)
    assert {(entry.state, entry.job) for entry in study_states(copy)} == {("never_started", None)}
    assert None not in {entry.job for entry in study_states(study)}
    assert command("cancel", "backup", "--yes") == 0
    assert len(cluster.pending) == 2
    assert command("resubmit", "backup") == 0
    assert len(cluster.pending) == 4
    assert command("cancel", "backup", "--yes") == 0
    assert len(cluster.pending) == 2
    assert command("cancel", "default", "--yes") == 0
    assert cluster.pending == []


def test_cancel_of_a_copied_run_ends_nothing(study: Path, cluster: FakeSlurm) -> None:
    run = min(study.glob("*/config.yaml")).parent
    copied = f"{run.name}x"
    shutil.copytree(run, run.with_name(copied))
    assert [entry.job for entry in study_states(study) if entry.name == copied] == [None]
    assert command("cancel", "default", copied, "--yes") == 0
    assert len(cluster.pending) == 2


def test_a_moved_study_keeps_its_jobs(study: Path, cluster: FakeSlurm, type_: Type) -> None:
    """Also after another study was begun under the old name, and through a link."""
    moved, linked = study.with_name("moved"), study.with_name("linked")
    study.rename(moved)
    linked.symlink_to(moved)
    assert type_("-m", "seed=2,3") == 0
    assert None not in {entry.job for entry in study_states(moved)}
    assert command("cancel", "linked", "--yes") == 0
    assert len(cluster.pending) == 2


def test_submissions_without_a_home_are_read_as_before(tmp_path: Path) -> None:
    """They were written before copies were recognized."""
    made = MadeStudy(tmp_path / "s", ["a"])
    path = made.submission.folder / "submission.json"
    path.write_text(path.read_text().replace('"home"', '"else"'))
    shutil.copytree(tmp_path / "s", tmp_path / "backup")
    assert [array.job_id for one in submissions(tmp_path / "backup") for array in one.arrays] == ["4242"]


def test_a_copied_lock_holds_nothing(tmp_path: Path) -> None:
    run, copy = tmp_path / "run", tmp_path / "copy"
    run.mkdir()
    with lock_file.lock(run / "run.lock", "a run"):
        shutil.copytree(run, copy)
        host, pid, _ = here()
        (run / "status.json").write_text(f'{{"pid": {pid}, "host": "{host}"}}')
        assert find_live(copy) is None
        found = find_live(run)
        assert found is not None
        assert found.pid == os.getpid()
        holder = lock_file.read_holder(copy / "run.lock", "a run")
        assert holder is not None
        assert holder.is_gone()
        with lock_file.lock(copy / "run.lock", "a run"):
            pass
        run.rename(tmp_path / "moved")
        holder = lock_file.read_holder(tmp_path / "moved" / "run.lock", "a run")
        assert holder is not None
        assert not holder.is_gone()


def test_a_copied_ring_names_no_process(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with RingWriter(tmp_path / "run" / "memory.ring", {"pid": 7, "folder": str(tmp_path / "run")}):
        shutil.copytree(tmp_path / "run", tmp_path / "copy")
    of_run, of_copy = (read_head(tmp_path / name / "memory.ring") for name in ("run", "copy"))
    assert of_run is not None
    assert of_copy is not None
    assert (of_run[0].get("pid"), of_copy[0].get("pid")) == (7, None)
