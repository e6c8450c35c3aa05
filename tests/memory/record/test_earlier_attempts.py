"""Files of an attempt move to attempts/N/ as the next one begins; readers know both forms."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from supervised import outcome_in, python, supervise

from analysis.export.series import Series
from experiment_utils.run_folder import RunFolder
from memory.record.earlier_attempts import keep_earlier
from memory.report.data.history import read_history
from slurm.status.log_files import lines_of, log_files
from training.run.micro_batch import died_for_memory

NAMES = ("outcome.json", "memory.ring", "memory.jsonl", "memory.attribution.json")


@pytest.fixture
def in_one_file(root: Path, tmp_path: Path) -> Path:
    """A run folder as it was written before attempts had folders: two attempts, the first one killed."""
    return Path(shutil.copytree(root / "tests/golden/attempts_in_one_file", tmp_path / "old"))


@pytest.fixture
def in_folders(in_one_file: Path) -> Path:
    """The same run in the form of now."""
    folder = Path(shutil.copytree(in_one_file, in_one_file.parent / "new"))
    place = folder / "attempts" / "1"
    place.mkdir(parents=True)
    lines = (folder / "memory.jsonl").read_text().splitlines(keepends=True)
    for path, number in ((place, 1), (folder, 2)):
        of_attempt = [line for line in lines if json.loads(line)["attempt"] == number]
        (path / "memory.jsonl").write_text("".join(of_attempt))
    (folder / "outcome.previous.json").rename(place / "outcome.json")
    return folder


def numbers(folder: Path) -> list[tuple[int, int, int, float]]:
    return [
        (one.number, track.records, len(track.moments), round(track.lasted_s, 2))
        for one in read_history(folder).attempts
        for track in one.tracks
    ]


def test_old_run_folder_reads_as_before(in_one_file: Path) -> None:
    assert numbers(in_one_file) == [(1, 12, 12, 26.94), (2, 14, 14, 40.42)]
    run = RunFolder(in_one_file)
    assert (len(run.stage_records), len(run.last_stage_records), run.outcome["attempt"]) == (26, 14, 2)


def test_both_forms_have_the_same_records(in_one_file: Path, in_folders: Path) -> None:
    assert [one[:3] for one in numbers(in_folders)] == [one[:3] for one in numbers(in_one_file)]
    old, new = RunFolder(in_one_file), RunFolder(in_folders)
    assert new.stage_records == old.stage_records
    assert new.last_stage_records == old.last_stage_records
    points = [list(Series(folder, []).new(is_over=True)) for folder in (in_one_file, in_folders)]
    assert points[0] == points[1]


def test_end_of_an_earlier_attempt_is_in_the_history(in_folders: Path) -> None:
    ended_s = json.loads((in_folders / "attempts/1/outcome.json").read_text())["ended_s"]
    (track,) = read_history(in_folders).attempts[0].tracks
    assert track.ended_s == track.at(ended_s)


def test_new_attempt_moves_files_of_the_one_before(in_one_file: Path) -> None:
    (in_one_file / "memory.attribution.json").write_text("{}")  # it does not name its attempt
    before = {name: (in_one_file / name).read_bytes() for name in NAMES if (in_one_file / name).exists()}
    keep_earlier(in_one_file, 2, NAMES[:-1])
    assert not (in_one_file / "attempts").exists()
    keep_earlier(in_one_file, 3, NAMES)
    assert {path.name: path.read_bytes() for path in (in_one_file / "attempts/2").iterdir()} == before
    assert not [name for name in NAMES if (in_one_file / name).exists()]
    assert numbers(in_one_file)[0] == (1, 12, 12, 26.94)
    assert [one[:2] for one in numbers(in_one_file)] == [(1, 12), (2, 14)]


def test_kill_between_two_moves_loses_nothing(in_one_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {(in_one_file / name).read_bytes() for name in ("outcome.json", "memory.jsonl")}
    rename, done = os.rename, []

    class Killed(BaseException):
        pass

    def once(old: str, new: str) -> None:
        if done:
            raise Killed
        done.append(old)
        rename(old, new)

    monkeypatch.setattr(os, "rename", once)
    with pytest.raises(Killed):
        keep_earlier(in_one_file, 3, NAMES)
    monkeypatch.setattr(os, "rename", rename)
    keep_earlier(in_one_file, 3, NAMES)
    assert {path.read_bytes() for path in (in_one_file / "attempts/2").iterdir()} == before


def test_file_in_the_folder_of_its_attempt_is_never_overwritten(in_one_file: Path) -> None:
    place = in_one_file / "attempts/2"
    place.mkdir(parents=True)
    (place / "outcome.json").write_text("before")
    keep_earlier(in_one_file, 3, NAMES)
    assert (place / "outcome.json").read_text() == "before"
    assert (in_one_file / "outcome.json").exists()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b'{"attempt": "x"}'])
def test_damaged_files_count_as_of_the_attempt_before(content: bytes, tmp_path: Path) -> None:
    for name in NAMES:
        (tmp_path / name).write_bytes(content)
    keep_earlier(tmp_path, 1, NAMES)
    assert {path.name for path in tmp_path.iterdir()} == set(NAMES)
    keep_earlier(tmp_path, 4, NAMES)
    assert {path.name for path in (tmp_path / "attempts/3").iterdir()} == set(NAMES)


def test_supervisor_keeps_outcome_and_samples_of_the_attempt_before(tmp_path: Path) -> None:
    supervise(tmp_path, python("raise SystemExit(3)"), attempt=1)
    supervise(tmp_path, python("raise SystemExit(4)"), attempt=1)  # a start that was never recorded
    assert outcome_in(tmp_path)["exit_code"] == 4
    assert RunFolder(tmp_path).attempt_folders() == []
    supervise(tmp_path, python("pass"), attempt=2)
    place = tmp_path / "attempts" / "1"
    assert (outcome_in(tmp_path)["exit_code"], outcome_in(place)["exit_code"]) == (0, 4)
    assert sorted(path.name for path in place.iterdir()) == ["memory.ring", "outcome.json"]
    assert not (tmp_path / "outcome.previous.json").exists()
    assert [one.number for one in read_history(tmp_path).attempts] == [1, 2]


def test_death_for_memory_is_known_from_the_folder_of_its_attempt(tmp_path: Path) -> None:
    run = {"attempts": [{"attempt": 1}, {"attempt": 2}]}
    place = tmp_path / "attempts" / "2"
    place.mkdir(parents=True)
    counted = {"counters_before": {"oom_kill": 3}, "counters_after": {"oom_kill": 4}}
    (place / "outcome.json").write_text(json.dumps({"attempt": 2, "signal": "SIGKILL", **counted}))
    assert died_for_memory(tmp_path, run)
    assert not died_for_memory(tmp_path, run | {"again": True}), "a run that begins again has no such past"
    place.rename(place.with_name("1"))
    assert not died_for_memory(tmp_path, run)


def test_logs_of_a_run_that_began_again_are_told_by_attempt(tmp_path: Path) -> None:
    place = tmp_path / "attempts" / "2"
    place.mkdir(parents=True)
    (place / "log.txt").write_text("a\nrun x, attempt 1, on CPU\nb\nrun x, attempt 2, on CPU\nc\n")
    (tmp_path / "log.txt").write_text("d\nrun x, attempt 3, on CPU\ne\n")
    found = {
        number: [line for file in log_files(tmp_path, number) for line in lines_of(file, set(), number)]
        for number in (1, 2, 3)
    }
    assert [[line for line in lines if len(line) == 1] for lines in found.values()] == [
        ["a", "b"], ["c"], ["d", "e"],
    ]  # fmt: skip
    assert [file.title for file in log_files(tmp_path)] == ["attempts/2/log.txt", "log.txt"]
