"""A run resumes with the code of its last attempt, or begins again; what it had is kept."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from conf import Config
from conf.schema import Study
from experiment_utils import atomic_files
from training.attempt import begin, code_record
from training.attempt.begin import CodeChanged, begin_again, check_code, code_allowed, create_run
from training.attempt.code_version import CodeVersion, code_version
from training.attempt.run_files import (
    next_attempt,
    read_config,
    read_run,
    read_status,
    record_attempt,
    run_lock,
)

IDENTITY = "a" * 64
OF_ITS_JOB = "a line of its job\n"


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return Config(runs_dir=str(tmp_path / "runs"), study=Study(name="s"))


@pytest.fixture
def run(config: Config) -> Path:
    """Stopped in its second attempt, with a checkpoint."""
    folder = create_run(config, IDENTITY)
    attempt = {"code": code_record.record_code(folder)}
    atomic_files.write_json(
        folder / "run.json",
        {
            "version": 1, "identity": IDENTITY, "auto": {"micro_batch": 2}, "results": None,
            "data": {"sets": []},
            "attempts": [{"attempt": 1, **attempt}, {"attempt": 2, **attempt}],
        },
    )  # fmt: skip
    (folder / "checkpoints" / "step-00000010").mkdir(parents=True)
    for name in (
        "metrics.csv",
        "evals.jsonl",
        "log.txt",
        "memory.jsonl",
        "checkpoints/step-00000010/state.json",
    ):
        (folder / name).write_text(f"{name} of attempt 2\n")
    atomic_files.write_json(folder / "status.json", {"state": "cancelled", "attempt": 2})
    atomic_files.write_json(folder / "starts.json", {"starts": []})
    (folder / "rank1").mkdir()
    return folder


def edited(monkeypatch: pytest.MonkeyPatch, path: str = "models/layers/blocks.py") -> None:
    """As if this file had been edited since."""
    version = code_version()
    now = CodeVersion("edited", {**version.files, path: "edited"})
    for module in (begin, code_record):
        monkeypatch.setattr(module, "code_version", lambda root=None: now)


def files(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): path.read_text()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_same_code_resumes(config: Config, run: Path) -> None:
    before = files(run)
    assert create_run(config, IDENTITY) == run
    assert files(run) == before


def test_changed_code_is_refused_and_nothing_is_touched(
    config: Config, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    edited(monkeypatch)
    before = files(run)
    with pytest.raises(CodeChanged) as refused:
        create_run(config, IDENTITY)
    assert [(one.path, one.status) for one in refused.value.changes] == [
        ("models/layers/blocks.py", "changed")
    ]
    for word in ("models/layers/blocks.py", "code=any", "again=true", "attempt 2"):
        assert word in str(refused.value)
    assert files(run) == before


def test_code_any_resumes_across_a_change(config: Config, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    edited(monkeypatch)
    create_run(dataclasses.replace(config, code="any"), IDENTITY)
    assert code_allowed(run) == "any"
    check_code(run, code_allowed(run))
    create_run_again = dataclasses.replace(config, code="same")
    with pytest.raises(CodeChanged):  # the next command decides for itself
        create_run(create_run_again, IDENTITY)


@pytest.mark.parametrize("code", [None, {"commit": "abc", "dirty": False}])
def test_runs_made_before_code_was_recorded_resume(
    code: Any, config: Config, run: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    edited(monkeypatch)
    told = read_run(run)
    told["attempts"][-1]["code"] = code
    atomic_files.write_json(run / "run.json", told)
    create_run(config, IDENTITY)
    with caplog.at_level("INFO"):
        check_code(run, "same")
    assert len(caplog.records) == 1


def test_run_without_a_checkpoint_resumes_nothing(
    config: Config, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    edited(monkeypatch)
    (run / "checkpoints").rename(run.parent / "gone")
    create_run(config, IDENTITY)


def test_begin_again_keeps_everything_and_begins_clean(config: Config, run: Path) -> None:
    before = files(run)
    create_run(dataclasses.replace(config, again=True), IDENTITY)
    now = files(run)
    stays = ("config.yaml", "run.json", "starts.json", "code", "rank1")
    moved = {f"attempts/2/{name}": text for name, text in before.items() if name.split("/")[0] not in stays}
    assert moved.items() <= now.items()
    assert sorted(path.name for path in run.iterdir()) == [
        "attempts", "code", "config.yaml", "rank1", "run.json", "starts.json",
    ]  # fmt: skip
    assert now["attempts/2/run.json"] == before["run.json"]
    told = read_run(run)
    assert "auto" not in told
    assert [one["attempt"] for one in told["attempts"]] == [1, 2]
    assert next_attempt(run) == 3
    assert read_config(run)["again"] is False  # else each start of a job would


def test_begin_again_after_a_change_is_not_refused(
    config: Config, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    edited(monkeypatch)
    create_run(dataclasses.replace(config, again=True), IDENTITY)
    create_run(config, IDENTITY)


def test_begin_again_twice_without_an_attempt_between_moves_once(config: Config, run: Path) -> None:
    create_run(dataclasses.replace(config, again=True), IDENTITY)
    (run / "log.txt").write_text("of a start that failed before it was recorded\n")
    before = files(run)
    create_run(dataclasses.replace(config, again=True), IDENTITY)
    assert files(run) == before


def test_begin_again_of_a_new_run_moves_nothing(config: Config) -> None:
    folder = create_run(dataclasses.replace(config, again=True), IDENTITY)
    assert [path.name for path in folder.iterdir()] == ["config.yaml"]


def test_finished_run_begins_again_only_when_asked(config: Config, run: Path) -> None:
    atomic_files.write_json(run / "status.json", {"state": "done"})
    before = files(run)
    create_run(config, IDENTITY)
    assert files(run) == before
    create_run(dataclasses.replace(config, again=True), IDENTITY)
    assert read_status(run) == {}
    assert json.loads((run / "attempts/2/status.json").read_text())["state"] == "done"


class Killed(BaseException):
    """As SIGKILL: nothing is done after it."""


POINTS = [
    "again.json:before_rename", "again.json:after_rename", "again:status.json", "again:checkpoints",
    "again:metrics.csv", "run.json:before_rename", "again:moved", "again:run.json",
]  # fmt: skip


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("point", POINTS)
def test_kill_while_it_moves_loses_nothing_and_the_next_start_ends_it(
    point: str, again: bool, config: Config, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    atomic_files.write_json(run / "status.json", {"state": "done"})
    texts = {text for name, text in files(run).items() if name not in ("config.yaml", "run.json")}
    asked = dataclasses.replace(config, again=True)

    def kill(here: str) -> None:
        if here == point:
            raise Killed

    monkeypatch.setattr(atomic_files, "on_point", kill)
    with pytest.raises(Killed):
        create_run(asked, IDENTITY)
    monkeypatch.setattr(atomic_files, "on_point", None)
    assert texts <= set(files(run).values())
    create_run(dataclasses.replace(config, again=again), IDENTITY)
    assert texts <= set(files(run).values())
    if again or point != "again.json:before_rename":  # then nothing had begun
        assert not (run / "again.json").exists()
        assert (run / "attempts/2/checkpoints/step-00000010/state.json").exists()
        assert not (run / "metrics.csv").exists()
        assert [path.name for path in (run / "attempts").iterdir()] == ["2"]


def test_what_came_while_a_move_was_interrupted_is_kept(
    config: Config, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_attempt_2 = (run / "log.txt").read_text()
    monkeypatch.setattr(
        atomic_files,
        "on_point",
        lambda here: (_ for _ in ()).throw(Killed) if here == "again:moved" else None,
    )
    with pytest.raises(Killed):
        create_run(dataclasses.replace(config, again=True), IDENTITY)
    monkeypatch.setattr(atomic_files, "on_point", None)
    (run / "log.txt").write_text(OF_ITS_JOB)
    create_run(config, IDENTITY)
    assert (run / "log.txt").read_text() == OF_ITS_JOB
    assert (run / "attempts/2/log.txt").read_text() == of_attempt_2


def test_new_attempt_says_that_it_began_again(config: Config, run: Path) -> None:
    with run_lock(run):
        begin_again(run)
    plan = {
        "config": {"training": {"activation_checkpointing": False, "checkpoint_every": 1, "parallel": None}}
    }
    record_attempt(run, plan, {}, {}, {})
    told = read_run(run)
    assert [one.get("again") for one in told["attempts"]] == [None, None, True]
    assert "again" not in told


@pytest.mark.parametrize("name", ["checkpoints", "again.json"])
def test_what_the_system_cannot_read_is_told_and_kept(
    run: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    stat = os.stat

    def stale(path: Any, *arguments: Any, **options: Any) -> os.stat_result:
        if os.fspath(path) == str(run / name):
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), str(path))
        return stat(path, *arguments, **options)

    monkeypatch.setattr(os, "stat", stale)
    with pytest.raises(atomic_files.Unreadable) as error:
        check_code(run, "same")
    assert error.value.path == run / name
    assert {path: path.read_bytes() for path in kept} == kept
