from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

import analysis.reading.index as index
from analysis.reading.index import LEAST_RUNS, NAME, read_facts


@pytest.fixture
def study(tmp_path: Path, done_run: Any) -> Path:
    """Just so many runs that an index is worth it, written a while ago."""
    folder = tmp_path / "runs" / "many"
    for number in range(LEAST_RUNS):
        made = Path(shutil.copytree(done_run.path, folder / f"r{number:02d}"))
        (made / "metrics.csv").write_text(f"step,train_loss\n{number},2.5\n")
    age(folder)
    return folder


def age(folder: Path, seconds: float = 60) -> None:
    then = time.time() - seconds
    for path in folder.rglob("*"):
        os.utime(path, (then, then))


def names(study: Path) -> list[str]:
    return sorted(path.name for path in study.iterdir() if path.is_dir())


@pytest.fixture
def read_folders(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of those whose files are read."""
    found: list[str] = []
    real = index.facts_of

    def noted(folder: Path) -> dict[str, Any]:
        found.append(folder.name)
        return real(folder)

    monkeypatch.setattr(index, "facts_of", noted)
    return found


def test_what_did_not_change_is_read_once_and_is_the_same(study: Path, read_folders: list[str]) -> None:
    first = read_facts(study, names(study))
    assert sorted(read_folders) == names(study)
    read_folders.clear()
    assert read_facts(study, names(study)) == first
    assert read_folders == []


def test_the_folder_that_changed_is_read_again(study: Path, read_folders: list[str]) -> None:
    read_facts(study, names(study))
    read_folders.clear()
    path = study / "r07" / "metrics.csv"
    stood = path.stat()
    (study / "r07" / "new").write_text("step,train_loss\n7,1.5\n")  # as long as before
    os.utime(study / "r07" / "new", ns=(stood.st_atime_ns, stood.st_mtime_ns))
    (study / "r07" / "new").rename(path)
    found = read_facts(study, names(study))
    assert read_folders == ["r07"]
    assert found[7]["values"]["train_loss"] == 1.5


def test_configs_come_back_whole_where_they_differ(study: Path) -> None:
    (study / "r03" / "config.yaml").write_text("seed: 5\nown: 1\n")
    age(study)
    first = read_facts(study, names(study))
    assert first[3]["config"] == {"seed": 5, "own": 1}
    assert read_facts(study, names(study)) == first


def test_what_was_written_just_now_is_not_remembered(study: Path, read_folders: list[str]) -> None:
    os.utime(study / "r05" / "status.json")
    read_facts(study, names(study))
    read_folders.clear()
    read_facts(study, names(study))
    assert read_folders == ["r05"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 1, "files": [], "runs": {}}', '{"version": 0}'])
def test_an_index_that_is_none_is_made_anew(study: Path, text: str) -> None:
    first = read_facts(study, names(study))
    (study / NAME).write_text(text)
    assert read_facts(study, names(study)) == first
    assert len(json.loads((study / NAME).read_text())["runs"]) == LEAST_RUNS


def test_runs_that_are_gone_leave_the_index(study: Path) -> None:
    read_facts(study, names(study))
    shutil.rmtree(study / "r00")
    for extra in ("x1", "x2"):
        shutil.copytree(study / "r01", study / extra)
    age(study)
    read_facts(study, names(study))
    assert sorted(json.loads((study / NAME).read_text())["runs"]) == names(study)


def test_index_of_a_read_only_study_is_in_the_users_cache(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read_folders: list[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (study / NAME).mkdir()  # no file can take its name
    first = read_facts(study, names(study))
    assert len(list((tmp_path / "cache" / "highwater" / "analysis").glob("*.json"))) == 1
    read_folders.clear()
    assert read_facts(study, names(study)) == first
    assert read_folders == []


def test_a_few_runs_leave_no_index(study: Path) -> None:
    read_facts(study, names(study)[: LEAST_RUNS - 1])
    assert not (study / NAME).exists()
