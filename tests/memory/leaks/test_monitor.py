"""Leaks of real processes are found, named and reported; sampling costs little and never raises."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from memory import Host, LeakMonitor, LeakReport, Process, Snapshot
from memory.leaks.detector import TOO_EARLY, Leak
from tests.golden_text import Golden

ROOT = Path(__file__).parents[3]
MB = 1 << 20
LEAK = Leak(MB, MB / 2, 2 * MB, is_significant=True, is_known=True, samples=99, eta_s=100.0)
CLEAN = Leak(MB, 0.0, 2 * MB, is_known=True, samples=99)


def test_parts_of_the_line(golden: Golden) -> None:
    reports = [
        LeakReport(),
        LeakReport(CLEAN, shmem=CLEAN, gpu=CLEAN),
        LeakReport(LEAK, holder="main"),
        LeakReport(CLEAN, shmem=LEAK),
        LeakReport(LEAK, gpu=LEAK, holder="worker 7"),
    ]
    golden.text("\n".join("  ".join(report.parts()) for report in reports))


def test_a_record_has_what_was_sampled() -> None:
    assert {"shmem", "gpu"} & set(LeakReport(LEAK).to_json()) == set()
    found = LeakReport(LEAK, shmem=CLEAN, gpu=LEAK, processes={"main": LEAK, "worker 7": CLEAN}).to_json()
    assert [found[name]["is_leak"] for name in ("shmem", "gpu")] == [False, True]
    assert (found["is_leak"], list(found["processes"])) == (True, ["main"])


@pytest.mark.parametrize("kind", ["total", "shmem", "gpu"])
def test_a_warning_is_printed_once_and_again_when_half_the_time_is_left(kind: str) -> None:
    def report(eta_s: float | None, is_leak: bool = True) -> LeakReport:
        return LeakReport(**{kind: Leak(MB, MB / 2, 2 * MB, is_leak, is_known=True, eta_s=eta_s)})

    monitor = LeakMonitor()
    given = [(100, 50), (100, 200), (90, 200), (51, 200), (49, 200), (30, 200), (20, None)]
    found = [monitor.warning(report(eta_s), left_s) is not None for eta_s, left_s in given]
    assert found == [False, True, False, False, True, False, True]
    assert monitor.warning(report(None), 1e9) is None
    assert monitor.warning(report(1, is_leak=False), 1e9) is None


LOOP = """
import json, mmap, sys, time
from memory import LeakMonitor
from memory.leaks import monitor as leak_monitor
leak_monitor._SHARE = 1.0  # of a core: on a busy machine too, every step is measured
monitor, held = LeakMonitor(), []
found = None
for step in range(1, 401):
    garbage = [bytearray(b"x" * 200_000) for _ in range(step % 17)]
    if sys.argv[1] == "anon":
        held.append(bytearray(b"x" * (1 << 20)))
    if sys.argv[1] == "shmem":
        held.append(mmap.mmap(-1, 1 << 20))
        held[-1].write(b"x" * (1 << 20))
    time.sleep(0.02)
    monitor.sample(step)
    report = monitor.look(step) if step % 20 == 0 else None
    if report and report.leaks:
        found = {"step": step, **report.to_json()}
        break
print(json.dumps(found))
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["anon", "shmem", "clean"])
def test_a_real_process_that_leaks_is_found_within_200_steps(kind: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOOP, kind], cwd=ROOT, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    if kind == "clean":
        assert found is None
        return
    assert found["step"] <= 200
    of_kind = found["shmem"] if kind == "shmem" else found
    assert of_kind["is_leak"]
    assert of_kind["slope_bytes_per_step"] == pytest.approx(MB, rel=0.2)
    assert found["holder"] == (None if kind == "shmem" else "main")


WORKER = """
import sys
held = []
for line in sys.stdin:
    held.append(bytearray(b"x" * (1 << 20)))
    print(flush=True)
"""


@pytest.mark.slow
def test_the_worker_that_leaks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memory.leaks.monitor._SHARE", 1.0)
    worker = subprocess.Popen(
        [sys.executable, "-S", "-c", WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        monitor = LeakMonitor()
        for step in range(200):
            worker.stdin.write("\n")
            worker.stdin.flush()
            worker.stdout.readline()
            time.sleep(0.01)
            monitor.sample(step)
        report = monitor.look(200)
    finally:
        worker.communicate()
    assert report.processes[f"worker {worker.pid}"].is_significant
    assert not report.processes["main"].is_significant
    if report.scope != "job":  # the growth of a job includes that of others
        assert report.holder == f"worker {worker.pid}"


def test_a_monitor_never_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("garbled")

    gone = LeakMonitor(pid=2**22 - 1)
    gone.sample(1)
    assert gone.look(1).total.verdict == TOO_EARLY
    monkeypatch.setattr("memory.leaks.monitor.read_process", fail)
    monitor = LeakMonitor()
    monitor.sample(1)
    monitor.sample(2)
    assert monitor.look(2).parts() == []


HELD = {"anon_bytes": 300 * MB, "shmem_bytes": 0}


@pytest.mark.parametrize(("kind", "eta_steps"), [("anon_bytes", 500), ("shmem_bytes", 64)])
def test_a_leak_ends_at_the_nearest_limit(monkeypatch: pytest.MonkeyPatch, kind: str, eta_steps: int) -> None:
    """The machine has 500 MB left, whatever its total is, and /dev/shm has 64."""
    held = iter(range(100 * MB, 10_000 * MB, MB))
    host = Host(64_000 * MB, 500 * MB, dev_shm_total_bytes=100 * MB, dev_shm_used_bytes=36 * MB)
    now = Snapshot(0.0, Process(os.getpid(), **HELD), host=host)
    monkeypatch.setattr("memory.leaks.monitor._LEAST_BETWEEN_S", 0.0)
    monkeypatch.setattr("memory.leaks.monitor._SHARE", float("inf"))
    monkeypatch.setattr("memory.leaks.monitor.read_descendants", lambda *_: ())
    monkeypatch.setattr("memory.leaks.monitor.snapshot", lambda *_: now)
    monkeypatch.setattr(
        "memory.leaks.monitor.read_process",
        lambda pid: Process(pid, threads=1, **HELD | {kind: next(held)}),
    )
    monitor = LeakMonitor()
    for step in range(200):
        monitor.sample(step)
    report = monitor.look(200)
    leaking, other = (report.total, report.shmem) if kind == "anon_bytes" else (report.shmem, report.total)
    assert leaking.eta_steps == pytest.approx(eta_steps, rel=0.01)
    assert not other.is_significant


def test_sampling_stays_within_its_share_of_a_core() -> None:
    monitor = LeakMonitor()
    monitor.sample(0)
    took = []
    for step in range(1, 501):
        before, began_s, began_cpu_s = monitor._total.samples, time.monotonic(), time.thread_time()
        monitor.sample(step)
        if monitor._total.samples > before:
            took.append((began_s, time.thread_time() - began_cpu_s))
        time.sleep(0.0005)
    assert 0 < len(took) < 125
    for (earlier_s, cost_s), (later_s, _) in itertools.pairwise(took):
        assert cost_s / 2 < 0.005 * (later_s - earlier_s)
