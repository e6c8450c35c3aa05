"""The GPU as its driver counts it: read by the run, and in the samples of a supervisor without torch."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import zlib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from fake_gpus import FakeCuda
from tiny_run import ROOT

from memory import LeakMonitor, record_to, stage
from memory.leaks import monitor as leak_monitor
from memory.measure.cuda_allocator import read_gpu
from memory.record.ring import NOTE_HOLDS_S, GpuNotes, RingWriter, read_ring
from memory.record.samples import SLOT_BYTES, Sample, packed, unpacked
from memory.report.data.history import read_history
from memory.report.run_charts import gpu_over_time
from memory.report.run_report import attempt_figure
from memory.show.watch_lines import line
from memory.show.watch_view import View
from tests.golden_text import Golden

MB, GB = 1 << 20, 1 << 30


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    found = FakeCuda()
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=found))
    return found


def test_use_outside_torch_is_known(cuda: FakeCuda) -> None:
    gpu = read_gpu()
    assert gpu is not None
    assert (gpu.free_bytes, gpu.used_bytes, gpu.outside_bytes) == (39 * GB, 41 * GB, 8 * GB)


@pytest.mark.parametrize("error", [RuntimeError("CUDA error: unspecified launch failure"), AttributeError()])
def test_driver_that_does_not_answer_leaves_torchs_numbers(
    cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(device: int) -> tuple[int, int]:
        raise error

    monkeypatch.setattr(cuda, "mem_get_info", fail)
    gpu = read_gpu()
    assert gpu is not None
    assert (gpu.allocated_bytes, gpu.free_bytes, gpu.used_bytes, gpu.outside_bytes) == (
        30 * GB, None, None, None,
    )  # fmt: skip


def test_stage_records_and_samples_have_the_use_of_the_device(tmp_path: Path, cuda: FakeCuda) -> None:
    with RingWriter(tmp_path / "memory.ring", {"pid": 7}) as ring:
        with record_to(tmp_path, attempt=1), stage("train", step=3):
            pass
        records = [json.loads(line) for line in (tmp_path / "memory.jsonl").read_text().splitlines()]
        ring.add(Sample(records[-1]["time_s"] + 0.5))
        ring.add(Sample(records[-1]["time_s"] + NOTE_HOLDS_S + 1))
    assert [record["snapshot"]["gpu"]["free_bytes"] for record in records] == [39 * GB] * 2
    found = read_ring(tmp_path / "memory.ring")
    assert found is not None
    fresh, stale = found.latest
    assert (fresh.gpu_used_bytes, fresh.gpu_total_bytes, fresh.gpu_reserved_bytes) == (
        41 * GB, 80 * GB, 33 * GB,
    )  # fmt: skip
    assert stale.gpu_used_bytes is None, "the run has not said anything for a minute"


def test_only_the_first_rank_writes_into_the_ring(tmp_path: Path, cuda: FakeCuda) -> None:
    with RingWriter(tmp_path / "memory.ring", {"pid": 7}) as ring:
        with record_to(tmp_path, attempt=1, rank=1), stage("train") as measured:
            pass
        assert measured.after is not None
        ring.add(Sample(measured.after.time_s))
    found = read_ring(tmp_path / "memory.ring")
    assert found is not None
    assert found.latest[0].gpu_used_bytes is None


def test_note_needs_a_ring_and_a_whole_note(tmp_path: Path) -> None:
    notes = GpuNotes(tmp_path / "memory.ring")
    sizes = {"used_bytes": 1, "total_bytes": 2, "reserved_bytes": 3}
    notes.write(1000.0, **sizes)
    assert not (tmp_path / "memory.ring").exists(), "the supervisor makes it"
    (tmp_path / "memory.ring").write_bytes(b"something else")
    notes.write(1000.0, **sizes)
    assert (tmp_path / "memory.ring").read_bytes() == b"something else"
    with RingWriter(tmp_path / "memory.ring", {}) as ring:
        notes.write(1000.0, **sizes)
        with open(tmp_path / "memory.ring", "r+b") as file:
            file.seek(-20, os.SEEK_END)
            file.write(b"\0")
        ring.add(Sample(1000.5))
        notes.write(1000.0, **sizes)
        ring.add(Sample(1000.6))
    notes.close()
    found = read_ring(tmp_path / "memory.ring")
    assert found is not None
    assert [sample.gpu_used_bytes for sample in found.latest] == [None, 1]


def test_slots_of_older_rings_are_read_as_before() -> None:
    sample = Sample(5.0, unreclaimable_bytes=7, neighbours_anon_bytes=4)
    slot = bytearray(packed(replace(sample, gpu_reserved_bytes=9)))
    slot[SLOT_BYTES - 16 : SLOT_BYTES - 8] = bytes(8)  # where versions before wrote nothing
    slot[:4] = struct.pack("<I", zlib.crc32(bytes(slot[4:])))
    assert unpacked(bytes(slot)) == sample
    whole = replace(sample, gpu_used_bytes=1, gpu_total_bytes=2, gpu_reserved_bytes=0)
    assert unpacked(packed(whole)) == whole


def test_ring_without_room_for_a_note_is_read_as_before(tmp_path: Path) -> None:
    path = tmp_path / "memory.ring"
    with RingWriter(path, {"pid": 7}) as ring:
        ring.add(Sample(1.0, unreclaimable_bytes=5))
    os.truncate(path, 4096 + 2048 * SLOT_BYTES)
    found = read_ring(path)
    assert found is not None
    assert found.latest == (Sample(1.0, unreclaimable_bytes=5),)


def test_watch_shows_the_use_by_all_processes(golden: Golden) -> None:
    sample = Sample(
        1.0,
        unreclaimable_bytes=1,
        gpu_used_bytes=41 * GB,
        gpu_total_bytes=80 * GB,
        gpu_reserved_bytes=33 * GB,
    )
    golden.text(line(View("run", sample)).partition(" | ")[2])


@pytest.mark.parametrize("grows_bytes", [MB, 0])
def test_leak_on_the_device_is_found(
    cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch, grows_bytes: int
) -> None:
    monkeypatch.setattr(leak_monitor, "_LEAST_BETWEEN_S", 0.0)
    monkeypatch.setattr(leak_monitor, "_SHARE", 1e9)
    monitor = LeakMonitor()
    for step in range(400):
        cuda.allocated = 30 * GB + step * grows_bytes + step % 5 * 1000
        monitor.sample(step)
        report = monitor.look(step)
    leak = report.to_json()["gpu"]
    assert leak["is_leak"] == bool(grows_bytes)
    assert report.gpu.samples == 400
    assert any(part.startswith("GPU ") and "LEAK" in part for part in report.parts()) == bool(grows_bytes)
    assert (monitor.warning(report, 1e12) is not None) == bool(grows_bytes)
    assert cuda.asked < 400 + 20, "the driver is asked at each look and once a second, not at each step"


def test_process_without_a_gpu_has_no_such_leak(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monitor = LeakMonitor()
    monitor.sample(1)
    assert "gpu" not in monitor.look(1).to_json()


FOREIGN = """
import sys, time
from types import SimpleNamespace
GB = 1 << 30
sys.modules["torch"] = SimpleNamespace(cuda=SimpleNamespace(
    is_initialized=lambda: True, current_device=lambda: 0, memory_allocated=lambda: 30 * GB,
    memory_stats=lambda device: {"reserved_bytes.all.current": 33 * GB},
    get_device_properties=lambda device: SimpleNamespace(name="H100", total_memory=80 * GB),
    mem_get_info=lambda device: (39 * GB, 80 * GB),
))
from memory import LeakMonitor, record_to, stage
monitor = LeakMonitor()
with record_to(sys.argv[1], attempt=1):
    with stage("train"):
        for step in range(8):
            monitor.sample(step)
            time.sleep(0.2)
"""


def test_supervisor_without_torch_samples_the_device(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "memory", "run", "--output", str(tmp_path), "--"]
    subprocess.run(
        [*command, sys.executable, "-c", FOREIGN, str(tmp_path)], cwd=ROOT, check=True, timeout=120
    )
    found = read_ring(tmp_path / "memory.ring")
    assert found is not None
    assert found.latest[0].gpu_used_bytes is None, "before the run has said anything"
    assert found.latest[-1].gpu_used_bytes == 41 * GB
    assert found.latest[-1].gpu_reserved_bytes == 33 * GB


def test_report_draws_the_use_by_all_processes(tmp_path: Path, cuda: FakeCuda, golden: Golden) -> None:
    with RingWriter(tmp_path / "memory.ring", {"pid": os.getpid(), "attempt": 1}) as ring:
        with record_to(tmp_path, attempt=1), stage("train", step=3) as measured:
            cuda.free = 5 * GB
        assert measured.after is not None
        ring.add(Sample(measured.after.time_s, unreclaimable_bytes=GB))
    history = read_history(tmp_path)
    track = history.last.main
    assert [moment.gpu_used for moment in track.moments] == [41 * GB, 75 * GB, 75 * GB]
    assert [moment.gpu for moment in track.moments if not moment.is_sample] == [30 * GB, 30 * GB]
    chart = gpu_over_time(track)
    assert chart is not None
    golden.text("\n".join(series.name for series in chart.series))
    drawn = {line.get_gid() for axes in attempt_figure(history, history.last).axes for line in axes.lines}
    assert {series.name for series in chart.series} <= drawn
