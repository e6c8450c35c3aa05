"""`highwater stale`: the runs that a change of the code has outdated."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from made_sweeps import made_by, make_one, write

import highwater
from tests.golden_text import Golden
from training.attempt.code_version import ROOT, code_version

OLD = "a" * 16


def told(capsys: pytest.CaptureFixture[str], study: Path) -> Any:
    assert highwater.main(["stale", str(study), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def page(capsys: pytest.CaptureFixture[str], study: Path) -> str:
    assert highwater.main(["stale", str(study)]) == 0
    return capsys.readouterr().out


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    """Three runs that the code of this checkout made."""
    made = [make_one(tmp_path / "s", 32, lr, 0) for lr in (0.005, 0.01, 0.02)]
    for folder in made:
        made_by(folder, {"hash": code_version(ROOT).hash})
    return made


def made_before(folder: Path, version: str = OLD) -> None:
    """As if models/ had another file and core.py other lines when the run was made."""
    files = dict(code_version(ROOT).files) | {"core.py": "0" * 16, "models/gone.py": "1" * 16}
    del files["training/run/loop.py"]
    made_by(folder, {"hash": version})
    (folder / "code").mkdir(exist_ok=True)
    write(folder / "code", f"{version}.json", {"version": 1, "commit": None, "dirty": None, "files": files})


def test_nothing_to_do_if_all_are_of_the_code_of_now(
    runs: list[Path], capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    assert told(capsys, runs[0].parent)["outdated"] == []
    golden.text(page(capsys, runs[0].parent))


def test_outdated_runs_are_listed_with_the_files_that_changed(
    runs: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    made_before(runs[1])
    made_by(runs[2], None)
    found = told(capsys, runs[0].parent)
    (one,) = found["outdated"]
    assert (one["run"], one["code"]) == (runs[1].name, OLD[:7])
    changes = {change["path"]: change["status"] for change in one["changes"]}
    assert changes == {"core.py": "changed", "models/gone.py": "removed", "training/run/loop.py": "added"}
    assert (found["current"], found["unknown"]) == ([runs[0].name], [runs[2].name])
    assert one["command"].endswith(" again=true")
    text = page(capsys, runs[0].parent)
    assert runs[1].name in text
    assert runs[0].name not in text
    assert one["command"] in text


def test_newest_attempt_decides(runs: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    made_by(runs[0], {"hash": OLD}, {"hash": code_version(ROOT).hash})
    assert told(capsys, runs[0].parent)["outdated"] == []
    made_by(runs[0], {"hash": code_version(ROOT).hash}, {"hash": OLD})
    assert [one["run"] for one in told(capsys, runs[0].parent)["outdated"]] == [runs[0].name]


def test_one_command_makes_all_outdated_runs_again(
    runs: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    made_before(runs[0])
    made_before(runs[2], "b" * 16)
    (command,) = told(capsys, runs[0].parent)["commands"]
    assert command.split()[-5:-3] == [runs[0].name, runs[2].name]
    assert command.split()[-3:] == ["--again", "--code", "now"]


def test_run_that_began_from_a_checkpoint_is_submitted(
    runs: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    made_before(runs[0])
    (runs[0] / "config.yaml").write_text("restore: {from: runs/other/run}\n")
    (one,) = told(capsys, runs[0].parent)["outdated"]
    assert "python -m slurm resubmit" in one["command"]
    assert {runs[0].name, "--again", "--code"} < {*one["command"].split()}


def test_runs_that_have_not_begun_are_counted_apart(
    runs: list[Path], capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    waiting = runs[0].parent / "32d-lr1-seed0-00000000"
    waiting.mkdir()
    (waiting / "config.yaml").write_text("seed: 0\n")
    golden.text(page(capsys, runs[0].parent))


def test_no_study_is_an_error_of_the_user(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    assert highwater.main(["stale", str(tmp_path)]) == 2
    golden.text(capsys.readouterr().err)


def test_command_of_a_copied_study_is_of_the_copy(
    runs: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(tmp_path / "s", tmp_path / "copy")
    made_before(tmp_path / "copy" / runs[1].name)
    (one,) = told(capsys, tmp_path / "copy")["outdated"]
    assert {"study.name=copy", f"runs_dir={tmp_path}"} <= set(one["command"].split())
