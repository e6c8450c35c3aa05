"""The peak inside a stage: true to the kernel's mark, whatever begins and ends around it."""

from __future__ import annotations

import json
import mmap
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake_gpus import FakeCuda
from hypothesis import given, settings
from hypothesis import strategies as st

from memory import record_to, snapshot, stage
from memory.measure.peaks import PEAKS, Peaks
from memory.record.ring import LATEST, RingWriter, highest_between
from memory.record.samples import Sample
from tests.searched import examples

MB, GB = 1 << 20, 1 << 30


def _can_reset() -> bool:
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


needs_reset = pytest.mark.skipif(not _can_reset(), reason="no /proc/self/clear_refs to reset VmHWM with")


@contextmanager
def held(megabytes: int) -> Iterator[None]:
    """So many MB of pages of their own, which are gone afterwards whatever the allocator does."""
    pages = mmap.mmap(-1, megabytes * MB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    try:
        for at in range(0, len(pages), mmap.PAGESIZE):
            pages[at] = 1
        yield
    finally:
        pages.close()


def above(s: Any) -> float:
    """MB that the stage went above where it began."""
    return (s.peak.rss_bytes - s.before.main.rss_bytes) / MB


@needs_reset
def test_a_peak_that_is_gone_at_the_end_is_known() -> None:
    with stage("load") as s, held(64):
        pass
    assert above(s) == pytest.approx(64, abs=4)
    assert abs(s.after.main.rss_bytes - s.before.main.rss_bytes) < 8 * MB


@needs_reset
def test_an_inner_stage_loses_no_outer_peak() -> None:
    with stage("outer") as outer:
        with held(96):
            pass
        with stage("inner") as inner, held(32), stage("innermost") as innermost:
            pass
        with stage("second") as second, held(16):
            pass
    assert above(outer) == pytest.approx(96, abs=4)
    assert above(inner) == pytest.approx(32, abs=4)
    assert above(innermost) < 4
    assert above(second) == pytest.approx(16, abs=4)


@needs_reset
def test_the_peak_of_the_process_stays_that_of_its_whole_life() -> None:
    before = snapshot().main.rss_bytes
    with held(96):
        pass
    assert snapshot().main.peak_rss_bytes >= before + 90 * MB
    for _ in range(3):
        with stage("after") as s:
            pass
    assert s.after.main.peak_rss_bytes >= before + 90 * MB
    kernels = int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) * 1024
    assert kernels < before + 60 * MB, "the kernel's own mark was reset"


@needs_reset
def test_stages_of_other_threads_take_no_peak_away() -> None:
    stop = threading.Event()

    def busy() -> None:
        while not stop.is_set():
            with stage("other"):
                pass

    threads = [threading.Thread(target=busy) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(10):
            with stage("load") as s:
                with held(48):
                    pass
                with stage("inner"):
                    pass
            assert above(s) > 40
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_a_forked_child_has_a_peak_of_its_own() -> None:
    with held(96), stage("before"):
        pass
    ready, tell = os.pipe()
    with stage("around"):
        pid = os.fork()
        if pid == 0:
            with stage("child"):
                pass
            os.write(tell, json.dumps([PEAKS.rss_bytes, len(PEAKS._open)]).encode())
            os._exit(0)
        kept, open_stages = json.loads(os.read(ready, 100))
        assert os.waitpid(pid, 0)[1] == 0
    os.close(ready)
    os.close(tell)
    assert open_stages == 0, "those of its parent are none of its own"
    assert kept < snapshot().main.peak_rss_bytes


STEPS = st.lists(st.one_of(st.just("begin"), st.just("end"), st.integers(0, 100)), max_size=40)


@settings(max_examples=examples(200))
@given(steps=STEPS)
def test_any_order_of_stages_finds_the_highest_of_each(steps: list[Any]) -> None:
    """Against a model of the kernel's mark: a stage's peak is the highest amount while it was open."""
    peaks, now, mark = Peaks(), 0, 0
    open_: list[tuple[Any, int]] = []

    def reset() -> bool:
        nonlocal mark
        mark = now
        return True

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(peaks, "_reset", reset)
        patch.setattr("memory.measure.peaks._marks", lambda: (mark, now))
        patch.setattr("memory.measure.peaks._SLACK_BYTES", 0)
        highest_of_all = 0
        for step in steps:
            if step == "begin":
                open_.append((peaks.begin(None), now))
            elif step == "end" and open_:
                mine, highest = open_.pop(len(open_) // 2)  # not only the last: threads end when they end
                assert peaks.end(mine, mark, None).rss_bytes == highest
            elif isinstance(step, int):
                now = step
                mark, highest_of_all = max(mark, now), max(highest_of_all, now)
                open_ = [(mine, max(highest, now)) for mine, highest in open_]
        assert max(peaks.rss_bytes, mark) == highest_of_all


def test_where_the_mark_cannot_be_reset_only_a_peak_that_raised_it_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    peaks = Peaks()
    marks = iter([(300 * MB, 100 * MB), (350 * MB, 100 * MB)])
    peaks._may_reset = False
    monkeypatch.setattr("memory.measure.peaks._marks", lambda: next(marks))
    assert peaks.end(peaks.begin(None), 350 * MB, None).rss_bytes == 350 * MB
    assert peaks.end(peaks.begin(None), 350 * MB, None).rss_bytes is None, "below an earlier peak: not known"


def test_without_proc_there_is_no_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memory.measure.peaks._marks", lambda: (None, None))
    with stage("a") as s:
        pass
    assert s.peak.rss_bytes is None


def test_the_peak_of_the_gpu_nests_too(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = FakeCuda(allocated=GB)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    monkeypatch.setattr(PEAKS, "gpu_bytes", {})
    with stage("outer") as outer:
        cuda.hold(40 * GB)
        cuda.hold(2 * GB)
        with stage("inner") as inner:
            cuda.hold(9 * GB)
            cuda.hold(3 * GB)
        with stage("idle") as idle:
            pass
    assert [s.peak.gpu_bytes // GB for s in (outer, inner, idle)] == [40, 9, 3]
    assert idle.after.gpu.peak_bytes == 40 * GB, "of the whole life of the process"


def test_a_gpu_that_is_first_used_within_the_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = FakeCuda(allocated=GB)
    monkeypatch.setattr(PEAKS, "gpu_bytes", {})
    with stage("build") as s:
        monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
        cuda.hold(7 * GB)
        cuda.hold(2 * GB)
    assert s.peak.gpu_bytes == 7 * GB


def samples(*amounts: tuple[float, int | None]) -> list[Sample]:
    return [Sample(time_s, unreclaimable_bytes=amount) for time_s, amount in amounts]


def test_the_highest_sample_between_two_moments(tmp_path: Path) -> None:
    path = tmp_path / "memory.ring"
    assert highest_between(path, 0, 1e12) == (None, 0)
    with RingWriter(path, {}) as ring:
        assert highest_between(path, 0, 1e12) == (None, 0)
        for sample in samples((10, 5), (11, 9), (12, None), (13, 7), (14, 50)):
            ring.add(sample)
        assert highest_between(path, 11, 13)[0].unreclaimable_bytes == 9
        assert highest_between(path, 11, 13)[1] == 3
        assert highest_between(path, 12, 12.5)[0].unreclaimable_bytes is None
        assert highest_between(path, 15, 20) == (None, 0)
    path.write_bytes(b"HWRING1\n" + b"\xff" * 5000)
    assert highest_between(path, 0, 1e12)[1] == 0


def test_a_stage_longer_than_the_latest_samples_asks_the_history(tmp_path: Path) -> None:
    path = tmp_path / "memory.ring"
    with RingWriter(path, {}) as ring:
        for number in range(LATEST + 300):
            ring.add(Sample(1000.0 + number, unreclaimable_bytes=99 if number == 50 else 10))
    highest, count = highest_between(path, 1000, 1e12)
    assert highest.unreclaimable_bytes == 99
    assert count > LATEST


def test_a_stage_tells_the_highest_sample_of_its_time(tmp_path: Path) -> None:
    told: list[str] = []
    with (
        RingWriter(tmp_path / "memory.ring", {}) as ring,
        record_to(tmp_path, attempt=1, rank=2, echo=told.append),
    ):
        ring.add(Sample(time.time() - 60, unreclaimable_bytes=9 * GB))  # of an earlier stage
        with stage("train") as s:
            for amount in (600 * GB, 900 * GB, 300 * GB):  # more than the host holds
                ring.add(Sample(time.time(), unreclaimable_bytes=amount))
        with stage("short") as short:
            pass
    assert (s.peak.sampled_unreclaimable_bytes, s.peak.samples) == (900 * GB, 3)
    assert ["900 GB" in line for line in told] == [True, False]
    assert (short.peak.sampled_unreclaimable_bytes, short.peak.samples) == (None, 0)
    records = [json.loads(line) for line in (tmp_path / "memory.rank2.jsonl").read_text().splitlines()]
    assert records[1]["peak"] == s.peak.to_json()
    assert "peak" not in records[0]
