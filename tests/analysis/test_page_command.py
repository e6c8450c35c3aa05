"""`python -m analysis STUDY`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from analysis.__main__ import main
from tests.golden_text import Golden


@pytest.fixture
def study(small_run: Any, diverged_run: Any) -> Path:
    return Path(small_run.path.parent)


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out, parse_constant=lambda text: pytest.fail(text))


@pytest.mark.slow
def test_a_study_is_a_path_a_name_several_or_one_run(
    study: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    found = told(capsys, str(study))
    assert [one["state"] for one in found] == ["done", "failed"]
    monkeypatch.setenv("HIGHWATER_RUNS_DIR", str(study.parent))
    assert told(capsys, study.name) == told(capsys, "page", str(study.parent)) == found
    assert told(capsys, str(study / found[0]["run"])) == found[:1]
    assert main([study.name]) == 0
    golden.text(capsys.readouterr().out, numbers=False)


def test_a_loss_that_is_lost_is_null(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = next(study.glob("*0badf00d")) / "evals.jsonl"
    path.write_text('{"step": 40, "tokens": 163840, "source": "val", "loss": NaN}\n')
    assert told(capsys, str(study))[1]["final_val_loss"] is None


@pytest.mark.parametrize("given", ["empty", "no"])
def test_nothing_there_exits_2(
    tmp_path: Path, given: str, golden: Golden, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    assert main([str(tmp_path / given)]) == 2
    golden.text(capsys.readouterr().err)
