"""Every file of a run folder is whole, absent, damaged or unreadable, and reading none of them raises."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiment_utils.atomic_files import Unreadable
from experiment_utils.run_folder import (
    ABSENT,
    DAMAGED,
    UNREADABLE,
    WHOLE,
    RunFolder,
    read_file,
)
from tests.closed import ERRORS, failing_reads
from tests.searched import examples

GOLDEN = Path(__file__).parents[1] / "golden"
OBJECTS = ("config.yaml", "run.json", "status.json", "outcome.json", "run.lock", "starts.json")
LINES = ("metrics.csv", "evals.jsonl", "memory.jsonl")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(GOLDEN / "attempts_in_one_file", tmp_path / "run"))


def read_all(run: RunFolder) -> None:
    for name in OBJECTS:
        assert isinstance(run.file(name).value, dict)
    assert all(len(column) == len(run.column("step")) for column in run.metrics.values())
    assert all({"step", "tokens", "loss"} <= record.keys() for record in run.evals)
    assert all(isinstance(record["snapshot"], dict) for record in run.last_stage_records)
    assert isinstance(run.attempts, list)
    for read in (run.device, run.checkpoint_step, run.number("results.val_loss"), run.holder):
        assert read is None or read is not None


@pytest.mark.parametrize("golden", sorted(GOLDEN.glob("run_folders/*/*")), ids=lambda path: path.parent.name)
def test_folders_of_every_version_are_whole(golden: Path) -> None:
    run = RunFolder(golden)
    read_all(run)
    assert {name: run.file(name).state for name in OBJECTS[:3]} == dict.fromkeys(OBJECTS[:3], WHOLE)
    assert run.damage == []
    assert run.column("step") == [1, 2, 3, 4, 5, 6]


def test_several_attempts_in_one_file(folder: Path) -> None:
    run = RunFolder(folder)
    assert {record["attempt"] for record in run.stage_records} == {1, 2}
    assert {record["attempt"] for record in run.last_stage_records} == {2}
    assert run.attempt_folders() == []


def test_files_of_earlier_attempts_come_first(folder: Path) -> None:
    whole = RunFolder(folder).stage_records
    for number in (10, 9):
        (folder / "attempts" / str(number)).mkdir(parents=True)
    (folder / "attempts" / "notes").mkdir()
    (folder / "memory.jsonl").rename(folder / "attempts" / "9" / "memory.jsonl")
    run = RunFolder(folder)
    assert [path.name for path in run.attempt_folders()] == ["9", "10"]
    assert run.stage_records == whole


@pytest.mark.parametrize("name", OBJECTS + LINES)
@given(data=st.data())
@settings(max_examples=examples(30))
def test_any_bytes_of_any_file(
    name: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = tmp_path_factory.getbasetemp() / f"any-{name}"
    if not place.exists():
        shutil.copytree(GOLDEN / "attempts_in_one_file", place)
    whole = GOLDEN / "attempts_in_one_file" / name
    content = whole.read_bytes() if whole.exists() else b'{"host": "n1", "pid": 1}'
    at = data.draw(st.integers(0, len(content)))
    tokens = [b"null", b"[]", b'"', b"NaN", b"1e999", b"\n", b"&a [*a]", b"!!timestamp x", b"\0" * 9]
    junk = data.draw(st.binary(max_size=8) | st.sampled_from(tokens))
    end = len(content) if data.draw(st.booleans()) else at
    (place / name).write_bytes(content[:at] + junk + content[at + len(junk) : end])
    run = RunFolder(place)
    read_all(run)
    if name in OBJECTS:
        assert run.file(name).state in (WHOLE, DAMAGED)
        assert (run.file(name).state == DAMAGED) == bool(run.file(name).why)


@pytest.mark.parametrize("name", OBJECTS)
@pytest.mark.parametrize("content", [b"", b"{", b"[1, 2]", b"null", b"[" * 100_000, b"\xff\xfe\x00"])
def test_a_damaged_file_has_no_value_and_one_line(folder: Path, name: str, content: bytes) -> None:
    (folder / name).write_bytes(content)
    run = RunFolder(folder)
    assert (run.file(name).state, run.file(name).value) == (DAMAGED, {})
    assert run.file(name).readable().why
    assert [line.partition(" ")[0] for line in run.damage] == [name]


def test_bytes_that_are_not_utf8_are_damage_with_a_value(folder: Path) -> None:
    (folder / "run.json").write_bytes(b'{"identity": "a\xffb", "steps": 3}')
    run = RunFolder(folder)
    assert (run.file("run.json").state, run.fact("steps")) == (DAMAGED, 3)


@pytest.mark.parametrize("name", OBJECTS)
def test_an_absent_file_is_no_damage(folder: Path, name: str) -> None:
    (folder / name).unlink(missing_ok=True)
    run = RunFolder(folder)
    assert (run.file(name).state, run.file(name).value, run.damage) == (ABSENT, {}, [])


@pytest.mark.parametrize("number", ERRORS)
@pytest.mark.parametrize("name", OBJECTS)
def test_an_unreadable_file_is_neither_absent_nor_damaged(folder: Path, name: str, number: int) -> None:
    (folder / name).touch()
    with failing_reads(folder / name, number):
        found = read_file(folder / name)
    assert (found.state, found.why) == (UNREADABLE, os.strerror(number))
    with pytest.raises(Unreadable):
        found.readable()


def test_what_is_no_plain_file_is_unreadable(folder: Path) -> None:
    (folder / "run.json").unlink()
    os.mkfifo(folder / "run.json")
    (folder / "metrics.csv").unlink()
    (folder / "metrics.csv").mkdir()
    run = RunFolder(folder)
    assert run.file("run.json").state == UNREADABLE
    assert run.metrics == {}
    assert [line.partition(" ")[0] for line in run.damage] == ["run.json", "metrics.csv"]


@pytest.mark.parametrize("change", [{"event": "sample"}, {"snapshot": None}, {"attempt": "1"}, {"stage": 3}])
def test_records_of_another_kind_are_ignored(folder: Path, change: dict[str, object]) -> None:
    whole = RunFolder(folder).stage_records
    with open(folder / "memory.jsonl", "a") as file:
        file.write(json.dumps(whole[0] | change) + "\n")
    run = RunFolder(folder)
    assert (run.stage_records, run.damage) == (whole, [])


def test_yaml_keys_are_text(folder: Path) -> None:
    (folder / "config.yaml").write_text("a: 1\nnull: 2\n")
    assert RunFolder(folder).file("config.yaml").state == DAMAGED


def test_numbers_come_from_run_json_first(folder: Path) -> None:
    (folder / "run.json").write_text('{"seed": 7, "bad": {"lr": NaN}}')
    (folder / "config.yaml").write_text("seed: 3\nbad:\n  lr: 0.5\nflag: true\n")
    run = RunFolder(folder)
    assert (run.number("seed"), run.number("bad.lr"), run.number("flag"), run.number("no")) == (
        7,
        0.5,
        None,
        None,
    )


def test_importing_loads_the_standard_library_alone(root: Path) -> None:
    program = (
        "import sys; before = set(sys.modules); import experiment_utils.run_folder\n"
        "names = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print(sorted(names - set(sys.stdlib_module_names) - {'experiment_utils'}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
