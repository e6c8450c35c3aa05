"""Run folders are found again, and what is damaged in one is told."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from conf import Config
from conf.composing.check import to_config
from experiment_utils.errors import UserError
from training.attempt.begin import create_run
from training.attempt.run_files import Status, read_config, read_run, read_status, run_lock, state_of


def test_create_run_writes_a_config_that_reads_back(tmp_path: Path) -> None:
    config = dataclasses.replace(
        Config(), runs_dir=str(tmp_path / "runs"), tags=["été", "1e-3"], notes="on: off"
    )
    folder = create_run(config, "ab" * 32)
    assert folder == tmp_path / "runs" / "default" / "32d-lr0.003-seed0-abababab"
    assert to_config(read_config(folder)) == config
    assert create_run(config, "ab" * 32) == folder


def test_create_run_says_where_it_cannot_write(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file")
    config = dataclasses.replace(Config(), runs_dir=str(tmp_path / "runs"))
    with pytest.raises(UserError, match="runs_dir") as raised:
        create_run(config, "ab" * 32)
    assert str(tmp_path / "runs") in str(raised.value)


def test_the_state_of_a_run_whose_process_is_gone(tmp_path: Path) -> None:
    assert state_of(tmp_path) is None
    Status(tmp_path, attempt=1).update(state="running")
    with run_lock(tmp_path):
        assert state_of(tmp_path) == "running"
        lock = (tmp_path / "run.lock").read_text()
    assert state_of(tmp_path) == "failed"
    holder = json.loads(lock)
    (tmp_path / "run.lock").write_text(json.dumps(holder | {"pid": 1, "started_at": 1}))
    assert state_of(tmp_path) == "failed"
    (tmp_path / "run.lock").write_text(json.dumps(holder | {"host": "elsewhere"}))
    assert state_of(tmp_path) == "running"
    (tmp_path / "run.lock").write_text("{")
    assert state_of(tmp_path) == "running"
    Status(tmp_path, attempt=1).update(state="done")
    assert state_of(tmp_path) == "done"


def test_the_last_word_of_a_run_tells_how_far_it_came(tmp_path: Path) -> None:
    status = Status(tmp_path, attempt=1, total_steps=40)
    status.update(stage="first_step", step=0)
    status.beat(step=18, stage="train")
    assert read_status(tmp_path)["step"] == 0  # too soon after the last one
    status.update(state="failed", reason="the loss is no longer finite")
    told = read_status(tmp_path)
    assert (told["state"], told["stage"], told["step"]) == ("failed", "train", 18)


@pytest.mark.parametrize("content", ['{"attempts": 5}', '{"auto": [1]}', '{"results": 5}', "[]", "{"])
def test_a_run_json_of_another_shape_is_told(content: str, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(UserError) as error:
        read_run(tmp_path)
    assert error.value.codes == ["run-json-damaged"]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"a: [1", "while parsing"),
        (b"", "no keys in it"),
        (b"a: \xff", "invalid start byte"),
        (None, "No such file"),
    ],
)
def test_a_damaged_config_is_told(content: bytes | None, why: str, tmp_path: Path) -> None:
    """`slurm resubmit` of its study died of it with a traceback."""
    if content is not None:
        (tmp_path / "config.yaml").write_bytes(content)
    with pytest.raises(UserError) as told:
        read_config(tmp_path)
    assert why in str(told.value)
    assert told.value.codes == ["config-unreadable"]
    assert "\n" not in str(told.value)
