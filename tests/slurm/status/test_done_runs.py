"""The index of runs that are done gives the same states as their files, and is never needed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from made_studies import NOW_S, FakeSlurm, MadeStudy

from slurm.status import RunState, study_states
from slurm.status.done_runs import INDEX

RUNS = 120


@pytest.fixture
def study(tmp_path: Path) -> MadeStudy:
    names = [f"run{number:03d}" for number in range(RUNS)]
    study = MadeStudy(tmp_path / "sweep", names)
    for number, name in enumerate(names):
        study.status(name, "done" if number else "failed", step=1000, reason=None)
        attempts = [{"attempt": 1, "code": {"hash": "00" * 8}, "started_s": 5.0}, {"attempt": 2}]
        (study.folder / name / "run.json").write_text(json.dumps({"attempts": attempts}))
        (study.folder / name / "metrics.csv").write_text(
            "step,tokens,seconds,tokens_per_s\n1,2,3,4\n2,4,6,4\n"
        )
    return study


def states(study: MadeStudy) -> list[RunState]:
    return study_states(study.folder, ask=FakeSlurm().ask, now_s=NOW_S)


def index(study: MadeStudy) -> Path:
    return study.folder / ".submissions" / INDEX


def test_rows_of_the_index_are_those_of_the_files(study: MadeStudy) -> None:
    read = states(study)
    assert len(json.loads(index(study).read_text())["runs"]) == RUNS - 1
    for name in ("run.json", "metrics.csv"):  # only the index knows them now
        (study.folder / "run007" / name).unlink()
    again = states(study)
    assert again == read
    assert [one.to_json() for one in again] == [one.to_json() for one in read]


@pytest.mark.parametrize("name", ["status.json", "outcome.json", "jobs.json"])
def test_a_run_whose_files_changed_is_read_again(study: MadeStudy, name: str) -> None:
    states(study)
    study.status("run007", "failed", reason="ValueError: no")
    path = study.folder / "run007" / "status.json"
    os.utime(path, (NOW_S - 2, NOW_S - 2))
    known = json.loads(index(study).read_text())
    known["runs"]["run007"]["files"][0] = [path.stat().st_mtime_ns, path.stat().st_size]
    index(study).write_text(json.dumps(known))
    assert states(study)[7].state == "done", "the index counts as long as its files are the same"
    changed = study.folder / "run007" / name
    changed.write_text(changed.read_text() + "\n" if changed.exists() else "{}")
    assert states(study)[7].state == "failed"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 1, "runs": 3}', None, "rows", "later"])
def test_a_damaged_index_is_made_again(study: MadeStudy, text: str | None) -> None:
    read = states(study)
    whole = json.loads(index(study).read_text())
    if text is None:
        index(study).unlink()
    elif text == "rows":
        for place, row in enumerate(whole["runs"].values()):
            row["row"] = [{}, None, {**row["row"], "progress": 3}, {**row["row"], "unknown": 1}][place % 4]
        index(study).write_text(json.dumps(whole))
    elif text == "later":
        index(study).write_text(json.dumps(whole | {"version": 2}))
    else:
        index(study).write_text(text)
    assert states(study) == read
    assert json.loads(index(study).read_text())["runs"].keys() == whole["runs"].keys()


def test_a_study_that_cannot_be_written_has_the_same_states(
    study: MadeStudy, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("experiment_utils.atomic_files.write_text", refused)
    assert [one.state for one in states(study)] == ["failed"] + ["done"] * (RUNS - 1)
    assert not index(study).exists()


def test_a_small_study_gets_no_index(tmp_path: Path) -> None:
    study = MadeStudy(tmp_path / "sweep", ["a"])
    study.status("a", "done")
    assert [one.state for one in states(study)] == ["done"]
    assert not index(study).exists()
