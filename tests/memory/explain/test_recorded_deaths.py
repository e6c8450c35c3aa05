"""Recorded deaths get the same answer again, and the right one (tests/memory/deaths/recorded.py)."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from memory.explain.decide import FAILED
from memory.explain.verdict.text import as_text
from tests.golden_text import Golden
from tests.memory.deaths.cases import BLIND, read_cases
from tests.memory.deaths.harness import differences
from tests.memory.deaths.recorded import answer_of, case_of, keep, read_answers, replay, unpack

ANSWERS = read_answers()
SHOWN = (
    "oom_main",
    "oom_worker",
    "oom_copy_on_write",
    "parent_limit_neighbour",
    "leak_by_step",
    "whole_file_x4",
    "page_tables",
    "shm_stale",
    "memory_error_by_ulimit",
    "cuda_oom_by_fragmentation",
    "kill_from_outside",
    "terminated",
    "exception",
    "ok_map_ten_times_the_limit",
    "slurm_oom_swallowed",
    "slurm_rss_polling",
    "v2_oom_host",
)
"""One for each kind of answer: the text is pinned, too."""


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("deaths")
    unpack(folder)
    return folder


@pytest.mark.parametrize("name", ANSWERS)
def test_recorded_death_gets_same_answer(name: str, recordings: Path) -> None:
    found = replay(recordings / name)
    assert answer_of(json.loads(json.dumps(found.to_json()))) == ANSWERS[name], found.sentence
    assert differences(case_of(recordings / name), found.to_json()) == []
    assert not [line for line in found.missing if FAILED in line]


@pytest.mark.parametrize("name", SHOWN)
def test_text_of_explanation(name: str, recordings: Path, golden: Golden) -> None:
    golden.text(as_text(replay(recordings / name), columns=100))


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
