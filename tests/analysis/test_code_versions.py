"""Commands mark runs of one study that different code made."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from made_sweeps import made_by, make_one

from analysis.__main__ import main

OLD = {"hash": "aaaaaaaa00000000", "commit": "1" * 40, "dirty": False}
NEW = {"hash": "bbbbbbbb00000000", "commit": "1" * 40, "dirty": True}
NAMES = ["aaaaaaa@1111111", "bbbbbbb"]


@pytest.fixture(scope="module")
def one_version(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study of four sizes at three rates and one version of the code."""
    study = tmp_path_factory.mktemp("one") / "s"
    for width in (32, 64, 96, 128):
        for lr in (0.005, 0.01, 0.02):
            made_by(make_one(study, width, lr, 0), OLD)
    return study


@pytest.fixture(scope="module")
def resumed_with_another(one_version: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, and runs of its last size went on with another version."""
    study = Path(shutil.copytree(one_version, tmp_path_factory.mktemp("two") / "s"))
    for folder in study.glob("128d-*"):
        made_by(folder, OLD, NEW)
    return study


@pytest.fixture(scope="module")
def newer(one_version: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of another version in a study of these."""
    study = Path(shutil.copytree(one_version, tmp_path_factory.mktemp("last") / "s"))
    (run,) = study.glob("128d-lr0.02-*")
    made_by(run, NEW)
    return run


def commands(study: Path) -> dict[str, list[str]]:
    return {
        "table": ["table", str(study)],
        "compare": ["compare", str(study), "--by", "lr"],
        "best-lr": ["best-lr", str(study)],
        "fit": ["fit", str(study), "--x", "non_embedding", "--draws", "20"],
        "report": ["report", str(study), "-o", str(study / "report.html")],
        "page": ["page", str(study)],
    }


@pytest.mark.parametrize("name", ["table", "compare", "best-lr", "fit", "report", "page"])
def test_two_versions_are_marked_and_one_is_not(
    one_version: Path,
    resumed_with_another: Path,
    name: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("analysis.sweep.draw_or_tell", lambda folder: [])  # pictures of all runs take seconds

    def answer(study: Path) -> str:
        assert main(commands(study)[name]) == 0
        page = study / "report.html"
        return " ".join((capsys.readouterr().out + (page.read_text() if page.exists() else "")).split())

    quiet, told = answer(one_version), answer(resumed_with_another)
    assert not any(name in quiet for name in NAMES)
    assert "+".join(NAMES) in told, "in a column"


@pytest.mark.parametrize("name", ["table", "compare", "best-lr", "fit", "report"])
def test_json_has_the_versions(newer: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*commands(newer.parent)[name], "--json"]) == 0
    plain: Any = json.loads(capsys.readouterr().out)
    code = [one for size in plain for one in size["code"]] if isinstance(plain, list) else plain["code"]
    assert list(dict.fromkeys(one["name"] for one in code)) == NAMES
    assert sum(newer.name in one["runs"] for one in code) == 1


def test_runs_of_one_version_can_be_chosen(newer: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["table", str(newer.parent), "--where", "code=bbbbbbb", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["runs"]
    assert (row["run"], row["code"]) == (newer.name, "bbbbbbb")


def test_two_studies_of_one_version_each_are_compared_with_a_mark(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    studies = [tmp_path / "a", tmp_path / "b"]
    for study, code in zip(studies, (OLD, NEW), strict=True):
        for seed in range(2):
            made_by(make_one(study, 32, 0.01, seed), code)
    assert main(["compare", *map(str, studies), "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert plain["differ_in"]["code"] == NAMES
    assert any("2 versions" in note for note in plain["notes"])
