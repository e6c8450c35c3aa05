"""Recorded deaths get the same answer again, and the right one (tests/memory/deaths/recorded.py)."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.memory.deaths.cases import BLIND, read_cases
from tests.memory.deaths.harness import differences
from tests.memory.deaths.recorded import answer_of, case_of, keep, read_answers, replay, unpack

ANSWERS = read_answers()


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("deaths")
    unpack(folder)
    return folder


@pytest.mark.parametrize("name", ANSWERS)
def test_recorded_death_gets_same_answer(name: str, recordings: Path) -> None:
    found = replay(recordings / name)
    assert answer_of(found) == ANSWERS[name], found["sentence"]
    assert differences(case_of(recordings / name), found) == []
    assert not [line for line in found["missing"] if "failed on this evidence" in line]


def test_every_case_is_recorded(recordings: Path) -> None:
    assert {path.name for path in recordings.iterdir()} == set(ANSWERS)
    cases = {case.name for case in (*read_cases(), *read_cases(BLIND))}
    assert cases == {name.partition("@")[0] for name in ANSWERS}


def test_recording_holds_no_names_of_the_machine(tmp_path: Path) -> None:
    case = read_cases()[0]
    run = tmp_path / "case" / "run"
    run.mkdir(parents=True)
    (run / "outcome.json").write_text(
        f'{{"host": "{os.uname().nodename}", "command": ["python", "{case.program}"],'
        f' "log_bytes_before": {{"stderr.txt": {len(str(run))}}}}}'
    )
    (run / "stderr.txt").write_text(f"{run}\n{case.program}: error\n")
    keep(case, run, tmp_path / "kept")
    outcome: dict[str, Any] = json.loads((tmp_path / "kept/run/outcome.json").read_text())
    assert outcome["host"] == "recorded-host"
    assert (tmp_path / "kept" / outcome["command"][1]).is_file(), "the program, relative to the recording"
    assert outcome["log_bytes_before"] == {"stderr.txt": len("./run")}
    assert str(tmp_path) not in (tmp_path / "kept/run/stderr.txt").read_text()
