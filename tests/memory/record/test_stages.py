"""Stages: what is on disk when, and that nothing which goes wrong in measuring reaches the run."""

from __future__ import annotations

import asyncio
import dataclasses
import errno
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


def python(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "memory.jsonl"


def test_a_stage_leaves_two_records_and_one_line(path: Path) -> None:
    lines: list[str] = []
    with record_to(path, attempt=3, rank=1, echo=lines.append), stage("build_model", step=7, name="64d") as s:
        # pages of its own: an allocator may hand out what an earlier test has given back
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
    assert len(lines) == 1
    assert lines[0].startswith("[mem] build_model ")


def test_the_page_names_every_key_of_a_record(path: Path) -> None:
    with record_to(path, attempt=1), stage("a"):
        pass
    end = records(path)[1]
    of_parts = [field.name for part in (Process, Cgroup, Host, Gpu) for field in dataclasses.fields(part)]
    page = (ROOT / "docs" / "memory.md").read_text()
    names = {*end, *end["snapshot"], *end["change"], *end["peak"], *of_parts, "gpu_bytes", "thread", "error"}
    assert sorted(name for name in names if f"`{name}`" not in page) == []


def test_each_record_is_on_disk_before_the_next_line_runs(path: Path) -> None:
    with record_to(path, attempt=1):
        assert not path.exists()
        with stage("body"):
            assert [record["event"] for record in records(path)] == ["begin"]
        assert [record["event"] for record in records(path)] == ["begin", "end"]


def test_records_survive_sigkill(path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from memory import record_to, stage\n"
        "with record_to(Path(sys.argv[1]), attempt=1):\n"
        "    with stage('load'): pass\n"
        "    with stage('train', step=5): os.kill(os.getpid(), 9)\n"
    )
    assert python(code, path).returncode == -signal.SIGKILL
    assert [(r["event"], r["stage"]) for r in records(path)] == [
        ("begin", "load"),
        ("end", "load"),
        ("begin", "train"),
    ]
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


def test_an_exception_goes_through_and_is_recorded(path: Path) -> None:
    lines: list[str] = []
    with record_to(path, attempt=1, echo=lines.append):
        with pytest.raises(ValueError, match="gone"), stage("open"):
            raise ValueError("gone")
        with stage("next"):
            pass
    errors = [record.get("error") for record in records(path)]
    assert errors[1].split(": ") == ["ValueError", "gone"]
    assert [error is None for error in errors] == [True, False, True, True]
    assert lines[0].endswith(" ValueError")
    assert records(path)[-1]["depth"] == 0


def test_an_exception_that_cannot_be_printed(path: Path) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    with record_to(path, attempt=1), pytest.raises(Mute), stage("open"):
        raise Mute
    assert records(path)[-1]["error"] == "Mute"


def test_nested_stages_know_their_depth(path: Path) -> None:
    lines: list[str] = []
    with record_to(path, attempt=1, echo=lines.append), stage("outer"):
        with stage("inner"), stage("innermost"):
            pass
        with stage("second"):
            pass
    assert [(r["event"][0], r["stage"], r["depth"]) for r in records(path)] == [
        ("b", "outer", 0), ("b", "inner", 1), ("b", "innermost", 2), ("e", "innermost", 2), ("e", "inner", 1),
        ("b", "second", 1), ("e", "second", 1), ("e", "outer", 0),
    ]  # fmt: skip
    assert [line[6:].split(" | ")[0].rstrip() for line in lines] == [
        "    innermost",
        "  inner",
        "  second",
        "outer",
    ]


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
    assert [(r["event"][0], r["depth"]) for r in records(path)] == [
        ("b", 0),
        ("b", 1),
        ("b", 2),
        ("e", 2),
        ("e", 1),
        ("e", 0),
    ]
    assert all(record["facts"] == {"kind": "recursive"} for record in records(path))


def test_decorated_async_functions_and_generators_are_measured_to_their_end(path: Path) -> None:
    @stage("fetch")
    async def fetch(n: int) -> int:
        await asyncio.sleep(0.01 * n)
        return n

    @stage("read")
    def read() -> Iterator[int]:
        yield 1
        yield 2

    @stage("stream")
    async def stream() -> AsyncIterator[int]:
        for number in range(2):
            await asyncio.sleep(0)
            yield number

    async def streamed() -> list[int]:
        return [number async for number in stream()]

    async def both() -> list[int]:
        return await asyncio.gather(fetch(2), fetch(1))

    with record_to(path, attempt=1):
        assert asyncio.run(both()) == [2, 1]
        for _ in read():
            with stage("within"):
                pass
        begun = read()
        assert next(begun) == 1
        with stage("around"):
            assert list(begun) == [2]
        with stage("after"):
            pass
        assert asyncio.run(streamed()) == [0, 1]
    found = records(path)
    ended = [(r["stage"], r["depth"]) for r in found if r["event"] == "end"]
    assert ended == [
        ("fetch", 0), ("fetch", 0), ("within", 1), ("within", 1), ("read", 0), ("read", 0), ("around", 1),
        ("after", 0), ("stream", 0),
    ]  # fmt: skip
    assert found[2]["seconds"] >= 0.01, "an async function is measured to its end, not to its first await"
    assert fetch.__name__ == "fetch"


def test_an_exception_in_a_decorated_async_function_is_recorded(path: Path) -> None:
    @stage("fetch")
    async def fetch() -> None:
        await asyncio.sleep(0)
        raise ValueError("gone")

    with record_to(path, attempt=1), pytest.raises(ValueError, match="gone"):
        asyncio.run(fetch())
    assert records(path)[1]["error"].split(": ") == ["ValueError", "gone"]


def test_a_folder_gets_a_file_of_each_rank_and_readers_join_them(tmp_path: Path) -> None:
    for rank in (0, 1, 12):
        with record_to(tmp_path, attempt=1, rank=rank), stage("train"):
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


def test_without_path_nothing_is_written_and_without_echo_nothing_is_told(
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


def test_inner_record_to_takes_over_and_gives_back(tmp_path: Path) -> None:
    with record_to(tmp_path / "run", attempt=1):
        with record_to(tmp_path / "part", attempt=1), stage("inner"):
            pass
        with stage("outer"):
            pass
    assert {r["stage"] for r in records(tmp_path / "run")} == {"outer"}
    assert {r["stage"] for r in records(tmp_path / "part")} == {"inner"}


def test_a_later_attempt_appends(path: Path) -> None:
    for attempt in (1, 2):
        with record_to(path, attempt=attempt), stage("start"):
            pass
    assert [record["attempt"] for record in records(path)] == [1, 1, 2, 2]


def test_facts_that_json_has_no_word_for(path: Path) -> None:
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


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_full_disk_is_told_once_and_the_run_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    lines: list[str] = []
    with record_to(Path("/dev/full"), attempt=1, echo=lines.append):
        for _ in range(3):
            with stage("train"):
                pass
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert "/dev/full" in warnings[0]
    assert os.strerror(errno.ENOSPC) in warnings[0]
    assert len(lines) == 3


@pytest.mark.parametrize("place", ["missing/memory.jsonl", "file/memory.jsonl"])
def test_a_place_that_cannot_be_written_is_told_once(
    tmp_path: Path, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    with record_to(tmp_path / place, attempt=1), stage("a"), stage("b"):
        pass
    assert len(caplog.records) == 1


def test_a_line_cut_short_spoils_no_other(path: Path) -> None:
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
    lines = path.read_text().splitlines()
    assert [len(line) for line in lines].count(50) == 1
    whole = [json.loads(line) for line in lines if len(line) != 50]
    assert [(r["event"][0], r["stage"]) for r in whole] == [
        ("b", "first"), ("e", "first"), ("e", "cut"), ("b", "last"), ("e", "last"),
    ]  # fmt: skip


def test_a_file_that_ends_within_a_line_is_gone_on_with_on_a_new_one(path: Path) -> None:
    path.write_text('{"version": 1, "eve')
    with record_to(path, attempt=2), stage("start"):
        pass
    assert [json.loads(line)["event"] for line in path.read_text().splitlines()[1:]] == ["begin", "end"]


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="no /proc/self/fd to find the descriptor in")
def test_a_descriptor_closed_behind_our_back_never_touches_anothers_file(path: Path, tmp_path: Path) -> None:
    def descriptor() -> int:
        (found,) = [fd for fd in Path("/proc/self/fd").iterdir() if fd.is_symlink() and fd.resolve() == path]
        return int(found.name)

    def give_away() -> int:
        number = descriptor()
        os.close(number)
        other = os.open(tmp_path / "other", os.O_RDWR | os.O_CREAT)
        assert other == number
        return other

    with record_to(path, attempt=1):
        with stage("a"):
            pass
        os.close(descriptor())
        with stage("b"):
            first = give_away()
        with stage("c"):
            pass
        second = give_away()
    for other in (first, second):
        os.write(other, b"mine")  # neither written to nor closed by us
        os.close(other)
    assert (tmp_path / "other").read_bytes() == b"mine"
    assert [r["stage"] for r in records(path)] == ["a", "a", "b", "b", "c", "c"]


def test_measuring_that_fails_does_not_break_the_run(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> Host:
        raise RuntimeError("a bug of ours")

    lines: list[str] = []
    monkeypatch.setattr("memory.measure.snapshot.read_host", fail)
    with record_to(path, attempt=1, echo=lines.append), stage("a"):
        pass
    (note,) = records(path)[1]["snapshot"]["notes"]
    assert "RuntimeError" in note
    assert f"({note.partition(':')[0]})" in lines[0]


def test_an_echo_that_fails_does_not_break_the_run(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def echo(line: str) -> None:
        raise BrokenPipeError

    with record_to(path, attempt=1, echo=echo), stage("a"), stage("b"):
        pass
    assert len(caplog.records) == 1
    assert len(records(path)) == 4


def test_measuring_imports_neither_torch_nor_psutil() -> None:
    code = (
        "import sys; from memory import stage, snapshot\n"
        "with stage('a'): pass\n"
        "print(sorted({'torch', 'psutil', 'numpy'} & set(sys.modules)))\n"
    )
    done = python(code)
    assert done.stdout == "[]\n" if Path("/proc/self/task").exists() else done.returncode == 0


def test_records_go_to_a_path_that_is_a_string(tmp_path: Path) -> None:
    with record_to(str(tmp_path), attempt=1), stage("inner"):
        pass
    assert len((tmp_path / "memory.jsonl").read_text().splitlines()) == 2
