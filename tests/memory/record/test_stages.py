"""Stages: content and order of the records, and no failure of measuring reaches the run."""

from __future__ import annotations

import dataclasses
import json
import logging
import mmap
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import numpy as np
import pytest

from memory import Cgroup, Gpu, Host, Process, record_to, stage
from memory.record.evidence import Evidence

ROOT = Path(__file__).parents[3]
KEYS = {"version", "event", "stage", "attempt", "rank", "time_s", "elapsed_s", "facts", "depth", "snapshot"}


def records(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def events(path: Path) -> list[tuple[str, str, int]]:
    return [(record["event"][0], record["stage"], record["depth"]) for record in records(path)]


def python(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "memory.jsonl"


def test_a_stage_leaves_two_records_and_one_line(path: Path) -> None:
    lines: list[str] = []
    with record_to(path, attempt=3, rank=1, echo=lines.append), stage("build_model", step=7, name="64d") as s:
        # pages of its own: an allocator can reuse those that an earlier test has freed
        held = mmap.mmap(-1, 32 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        held.write(b"\x01" * (32 << 20))
    held.close()
    begin, end = records(path)
    assert set(begin) == KEYS
    assert set(end) == KEYS | {"change", "peak", "seconds"}
    assert begin == begin | {
        "version": 1, "event": "begin", "stage": "build_model", "attempt": 3, "rank": 1, "depth": 0,
        "elapsed_s": 0.0, "facts": {"step": 7, "name": "64d"},
    }  # fmt: skip
    assert end["event"] == "end"
    assert end["time_s"] >= begin["time_s"]
    assert end["elapsed_s"] >= end["seconds"] >= 0
    for name, change in end["change"].items():
        assert change == end["snapshot"][name] - begin["snapshot"][name]
    assert end["change"]["anon_bytes"] == pytest.approx(32 << 20, abs=2 << 20)
    assert s.after.to_json() == end["snapshot"]
    assert (s.change, s.seconds) == (end["change"], pytest.approx(end["seconds"], abs=1e-5))
    assert [line.split("  ")[0] for line in lines] == ["[mem] build_model 7"]


def test_the_page_names_every_key_of_a_record(path: Path) -> None:
    with record_to(path, attempt=1), stage("a"):
        pass
    end = records(path)[1]
    of_parts = [field.name for part in (Process, Cgroup, Host, Gpu) for field in dataclasses.fields(part)]
    page = (ROOT / "docs" / "run-folder.md").read_text()
    names = {*end, *end["snapshot"], *end["change"], *end["peak"], *of_parts, "gpu_bytes", "thread", "error"}
    assert sorted(name for name in names if f"`{name}`" not in page) == []


def test_records_survive_sigkill(path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from memory import record_to, stage\n"
        "with record_to(Path(sys.argv[1]), attempt=1):\n"
        "    with stage('load'): pass\n"
        "    with stage('train', step=5): os.kill(os.getpid(), 9)\n"
    )
    assert python(code, path).returncode == -signal.SIGKILL
    assert events(path) == [("b", "load", 0), ("e", "load", 0), ("b", "train", 0)]
    assert records(path)[-1]["facts"] == {"step": 5}


def test_one_record_is_one_write_to_an_appending_descriptor(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fcntl

    written: list[bytes] = []
    real = os.write

    def write(descriptor: int, content: bytes) -> int:
        assert fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_APPEND
        written.append(content)
        return real(descriptor, content)

    monkeypatch.setattr(os, "write", write)
    with record_to(path, attempt=1), stage("a"):
        pass
    assert len(written) == 2
    assert path.read_bytes() == b"".join(written)


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(("error", "text"), [(ValueError("gone"), "ValueError: gone"), (Mute(), "Mute")])
def test_an_exception_goes_through_and_is_recorded(path: Path, error: Exception, text: str) -> None:
    lines: list[str] = []
    with record_to(path, attempt=1, echo=lines.append):
        with pytest.raises(type(error)), stage("open"):
            raise error
        with stage("next"):
            pass
    assert [record.get("error") for record in records(path)] == [None, text, None, None]
    assert records(path)[-1]["depth"] == 0
    assert f"failed: {type(error).__name__}" in lines[0]


def test_nested_stages_record_their_depth(path: Path) -> None:
    lines: list[str] = []
    with record_to(path, attempt=1, echo=lines.append), stage("outer"):
        with stage("inner"), stage("innermost"):
            pass
        with stage("second"):
            pass
    assert events(path) == [
        ("b", "outer", 0), ("b", "inner", 1), ("b", "innermost", 2), ("e", "innermost", 2), ("e", "inner", 1),
        ("b", "second", 1), ("e", "second", 1), ("e", "outer", 0),
    ]  # fmt: skip
    labels = [line.removeprefix("[mem] ").partition("  job")[0].partition("  run")[0] for line in lines]
    assert labels == ["    innermost", "  inner", "  second", "outer"]


def test_threads_have_depths_of_their_own_and_never_mix_their_lines(path: Path) -> None:
    def work() -> None:
        for _ in range(10):
            with stage("outer"), stage("inner", text="x" * 3000):
                pass

    with record_to(path, attempt=1), stage("main"):
        threads = [threading.Thread(target=work, name=f"loader-{i}") for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = records(path)
    assert len(found) == 2 + 4 * 10 * 4
    names = [f"loader-{i}" for i in range(4)]
    assert {(r["stage"], r["depth"], r.get("thread")) for r in found} == {
        ("main", 0, None), *(("outer", 0, name) for name in names), *(("inner", 1, name) for name in names),
    }  # fmt: skip


def test_decorator_makes_a_stage_of_each_call(path: Path) -> None:
    @stage("count", kind="recursive")
    def count(n: int) -> int:
        return 0 if n == 0 else 1 + count(n - 1)

    with record_to(path, attempt=1):
        assert count(2) == 2
    assert [(event, depth) for event, _, depth in events(path)] == [
        ("b", 0), ("b", 1), ("b", 2), ("e", 2), ("e", 1), ("e", 0),
    ]  # fmt: skip
    assert all(record["facts"] == {"kind": "recursive"} for record in records(path))


async def fetch() -> None:
    pass


def read() -> Iterator[int]:
    yield 1


async def stream() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize("function", [fetch, read, stream])
def test_functions_whose_call_ends_before_their_work_are_refused(function: object) -> None:
    with pytest.raises(TypeError) as refused:
        stage("x")(function)
    assert function.__name__ in str(refused.value)


def test_a_folder_gets_a_file_of_each_rank_and_readers_join_them(tmp_path: Path) -> None:
    for rank in (0, 1, 12):
        with record_to(str(tmp_path), attempt=1, rank=rank), stage("train"):
            pass
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["memory.jsonl", "memory.rank1.jsonl", "memory.rank12.jsonl"]
    joined = Evidence(tmp_path).records
    assert list(joined) == [0, 1, 12]
    assert [record["event"] for record in joined[12]] == ["begin", "end"]


def test_without_record_to_the_line_goes_to_the_logger(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="memory"), stage("alone") as s:
        pass
    assert [record.getMessage()[:11] for record in caplog.records] == ["[mem] alone"]
    assert s.after is not None


def test_without_path_nothing_is_written_and_without_echo_nothing_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    lines: list[str] = []
    with caplog.at_level(logging.DEBUG, logger="memory"):
        with record_to(None, attempt=1, echo=lines.append), stage("a"):
            pass
        with record_to(None, attempt=1, echo=None), stage("b"):
            pass
    assert (len(lines), caplog.records, list(tmp_path.iterdir())) == (1, [], [])


def test_details_follow_the_line_if_they_are_wanted(tmp_path: Path) -> None:
    lines: list[str] = []
    for details in (False, True):
        with record_to(None, attempt=1, echo=lines.append, details=details), stage("a"):
            pass
    assert [" | " in line for line in lines] == [False, True]


def test_values_that_the_body_adds_are_in_its_last_record_and_its_line(path: Path) -> None:
    lines: list[str] = []
    with record_to(path, attempt=1, echo=lines.append), stage("outer") as outer:

        def work() -> None:
            with stage("inner") as inner:
                inner.add("leak", {"verdict": "leak"}, "+0.3 MB/step, LEAK")

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        outer.add("other", 1)
    assert [line.endswith("  +0.3 MB/step, LEAK") for line in lines] == [True, False]
    assert [(r.get("leak"), r.get("other")) for r in records(path)] == [
        (None, None), (None, None), ({"verdict": "leak"}, None), (None, 1),
    ]  # fmt: skip


def test_attempts_append_and_an_inner_record_to_takes_over_for_its_block(tmp_path: Path) -> None:
    for attempt in (1, 2):
        with record_to(tmp_path / "run", attempt=attempt):
            with record_to(tmp_path / "part", attempt=attempt), stage("inner"):
                pass
            with stage("outer"):
                pass
    for name, of_stage in (("run", "outer"), ("part", "inner")):
        found = [(record["attempt"], record["stage"]) for record in records(tmp_path / name)]
        assert found == [(attempt, of_stage) for attempt in (1, 1, 2, 2)]


def test_facts_that_json_cannot_represent(path: Path) -> None:
    facts = {"step": np.int64(5), "lr": np.float32(0.5), "path": Path("a"), "loss": 1.5, "kinds": ("a", 1)}
    with record_to(path, attempt=1):
        with stage("train", **facts):
            pass
        with stage("train", step=5, loss=float("nan")):
            pass
    first, _, second, _ = records(path)
    assert first["facts"] == {"step": 5, "lr": 0.5, "path": "a", "loss": 1.5, "kinds": ["a", 1]}
    assert type(first["facts"]["step"]) is int
    assert second["facts"] == {"step": "5", "loss": "nan"}


@pytest.mark.parametrize("place", ["/dev/full", "missing/memory.jsonl", "file/memory.jsonl", "memory.jsonl"])
def test_a_failure_is_logged_once_and_the_run_continues(
    tmp_path: Path, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Of the disk; for the last place, of the terminal."""
    (tmp_path / "file").touch()
    lines: list[str] = []

    def broken(line: str) -> None:
        raise BrokenPipeError

    echo = broken if place == "memory.jsonl" else lines.append
    with record_to(tmp_path / place, attempt=1, echo=echo):
        for _ in range(3):
            with stage("train"):
                pass
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert place in caplog.records[0].getMessage()
    assert (len(records(tmp_path / place)) if echo is broken else len(lines)) == (6 if echo is broken else 3)


def test_a_line_cut_short_spoils_no_other(path: Path) -> None:
    path.write_text('{"version": 1, "eve')  # by an earlier attempt
    code = (
        "import resource, sys; from pathlib import Path; from memory import record_to, stage\n"
        "with record_to(Path(sys.argv[1]), attempt=1):\n"
        "    with stage('first'): pass\n"
        "    size = Path(sys.argv[1]).stat().st_size\n"
        "    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 50, hard))\n"
        "    with stage('cut'): resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))\n"
        "    with stage('last'): pass\n"
    )
    done = python(code, path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("only 50 of") == 1
    _, *lines = path.read_text().splitlines()
    assert [len(line) for line in lines].count(50) == 1
    whole = [json.loads(line) for line in lines if len(line) != 50]
    assert [(r["event"][0], r["stage"]) for r in whole] == [
        ("b", "first"), ("e", "first"), ("e", "cut"), ("b", "last"), ("e", "last"),
    ]  # fmt: skip


def test_measuring_that_fails_does_not_break_the_run(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> Host:
        raise RuntimeError("a bug of ours")

    lines: list[str] = []
    monkeypatch.setattr("memory.measure.snapshot.read_host", fail)
    with record_to(path, attempt=1, echo=lines.append, details=True), stage("a"):
        pass
    (note,) = records(path)[1]["snapshot"]["notes"]
    assert "RuntimeError" in note
    assert f" | {note} | " in lines[0]


def test_measuring_imports_neither_torch_nor_psutil() -> None:
    code = (
        "import sys; from memory import stage, snapshot\n"
        "with stage('a'): pass\n"
        "print(sorted({'torch', 'psutil', 'numpy'} & set(sys.modules)))\n"
    )
    done = python(code)
    assert done.stdout == "[]\n" if Path("/proc/self/task").exists() else done.returncode == 0
