"""Commands mark runs of one study that different code made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from made_sweeps import made_by, make_one

from analysis.__main__ import main

OLD = {"hash": "aaaaaaaa00000000", "commit": "1" * 40, "dirty": False}
NEW = {"hash": "bbbbbbbb00000000", "commit": "1" * 40, "dirty": True}
NAMES = ["aaaaaaa@1111111", "bbbbbbb"]


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    """Four sizes at three rates and one version of the code."""
    made = [
        make_one(tmp_path / "s", width, lr, 0) for width in (32, 64, 96, 128) for lr in (0.005, 0.01, 0.02)
    ]
    for folder in made:
        made_by(folder, OLD)
    return made


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
    runs: list[Path], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    study = runs[0].parent
    words = commands(study)[name]

    def answer() -> str:
        assert main(words) == 0
        page = study / "report.html"
        return " ".join((capsys.readouterr().out + (page.read_text() if page.exists() else "")).split())

    quiet = answer()
    assert "versions of the code" not in quiet
    assert not any(name in quiet for name in NAMES)
    for folder in runs[-3:]:
        made_by(folder, OLD, NEW)
    told = answer()
    assert "ade by 2 versions of the code" in told
    assert "+".join(NAMES) in told, "in a column"


@pytest.mark.parametrize("name", ["table", "compare", "best-lr", "fit", "report"])
def test_json_has_the_versions(runs: list[Path], name: str, capsys: pytest.CaptureFixture[str]) -> None:
    made_by(runs[-1], NEW)
    assert main([*commands(runs[0].parent)[name], "--json"]) == 0
    plain: Any = json.loads(capsys.readouterr().out)
    code = [one for size in plain for one in size["code"]] if isinstance(plain, list) else plain["code"]
    assert list(dict.fromkeys(one["name"] for one in code)) == NAMES
    assert sum(runs[-1].name in one["runs"] for one in code) == 1


def test_runs_of_one_version_can_be_chosen(runs: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    made_by(runs[-1], NEW)
    assert main(["table", str(runs[0].parent), "--where", "code=bbbbbbb", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["runs"]
    assert (row["run"], row["code"]) == (runs[-1].name, "bbbbbbb")


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
