"""Leaks are found and told rightly, and clean runs are left alone: simulated traces and real processes."""

from __future__ import annotations

import itertools
import json
import math
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory import Host, LeakMonitor, LeakReport, LeakWatch, Process, Snapshot, find_leak, record_to, stage
from memory.leaks.detector import LEVELLING_OFF, TOO_EARLY, Leak, critical, upper_tail
from memory.leaks.format import in_words, leak_words
from tests.golden_text import Golden
from tests.memory.leaks.leak_traces import ALSO_SEEN, CLEAN, clean, leaking
from tests.searched import examples

ROOT = Path(__file__).parents[3]
MB = 1 << 20


@pytest.mark.parametrize(
    ("freedom", "tail", "t"),
    [
        (1, 0.025, 12.7062),
        (2, 0.05, 2.91999),
        (5, 0.005, 4.03214),
        (10, 0.0005, 4.58689),
        (30, 0.025, 2.04227),
    ],
)  # the table of any textbook
def test_students_t(freedom: int, tail: float, t: float) -> None:
    assert critical(tail, freedom) == pytest.approx(t, rel=1e-5)
    assert upper_tail(t, freedom) == pytest.approx(tail, rel=1e-4)
    assert upper_tail(-t, freedom) == pytest.approx(1 - tail, rel=1e-4)
    assert upper_tail(math.inf, freedom) == 0


@given(
    seed=st.integers(0, 10**6),
    slope=st.floats(0.2, 20),
    steps=st.integers(150, 600),
    base=st.floats(100, 50_000),
)
def test_a_steady_leak_with_bounded_noise_is_found(seed: int, slope: float, steps: int, base: float) -> None:
    scatter = slope * steps / 40
    r = random.Random(seed)
    amounts = [(base + slope * step + r.uniform(-scatter, scatter)) * MB for step in range(steps)]
    limit = 2 * amounts[-1]
    leak = find_leak(range(steps), amounts, limit_bytes=limit, step_s=0.5)
    assert leak.is_significant
    assert leak.verdict == "leak"
    assert leak.slope_bytes_per_step == pytest.approx(slope * MB, rel=0.25)
    assert leak.low_bytes_per_step < leak.slope_bytes_per_step < leak.high_bytes_per_step
    assert leak.eta_steps == pytest.approx((limit - amounts[-1]) / leak.slope_bytes_per_step, rel=0.1)
    assert leak.eta_s == leak.eta_steps * 0.5


@pytest.mark.parametrize("kind", CLEAN)
def test_clean_traces_are_no_leaks(kind: str) -> None:
    """125 of each of 8 kinds. Of 1,000 at most 5% may alarm; of one kind no more than that either."""
    alarms = [
        seed
        for seed in range(125)
        if find_leak(range(length := 100 + 4 * seed), clean(kind, seed, length)).is_significant
    ]
    assert len(alarms) <= 6


@pytest.mark.parametrize("kind", ALSO_SEEN)
def test_clean_traces_of_other_kinds(kind: str) -> None:
    alarms = [seed for seed in range(60) if find_leak(range(400), clean(kind, seed, 400)).is_significant]
    assert len(alarms) <= 3


def watched(amounts: list[float]) -> bool:
    """Does a run that looks every 20 steps ever call it a leak?"""
    watch, alarms = LeakWatch(), False
    for step, amount in enumerate(amounts):
        watch.add(step, amount)
        alarms |= step % 20 == 19 and watch.look().is_significant
    return alarms


@pytest.mark.parametrize("kind", ["distinct", "hyperbolic"])
def test_a_cache_of_ever_rarer_things_is_no_leak(kind: str) -> None:
    """As a logarithm or slower: halves of equal growth do not make a line of it."""
    assert sum(watched(clean(kind, seed, 300)) for seed in range(5000, 5060)) <= 3


def test_a_leak_beside_such_a_cache_is_found() -> None:
    assert sum(watched(leaking("distinct", seed, 240, MB)) for seed in range(5000, 5020)) >= 16


@pytest.mark.parametrize(("kind", "least"), [("sawtooth", 17), ("waves", 11), ("uneven_teeth", 17)])
def test_a_leak_lifts_the_floor_of_what_is_collected(kind: str, least: int) -> None:
    """Of 20, at 1 MB a step, by step 200; medians of blocks alone find fewer."""
    found = [seed for seed in range(20) if find_leak(range(200), leaking(kind, seed, 200, MB)).is_significant]
    assert len(found) >= least


@settings(max_examples=examples(50))
@given(seed=st.integers(0, 10**6), kind=st.sampled_from(["correlated", "sawtooth", "wandering", "jumps"]))
def test_a_leaking_trace_whose_order_is_lost_is_no_leak(seed: int, kind: str) -> None:
    amounts = leaking(kind, seed, 300, MB)
    random.Random(seed).shuffle(amounts)
    # one in some thousand may be, by chance: none of these 50
    assert not find_leak(range(300), amounts, alpha=1e-4).is_significant


@given(
    seed=st.integers(0, 200),
    kind=st.sampled_from(list(CLEAN)),
    scale=st.sampled_from([1e-3, 0.5, 1024.0]),
    stretch=st.sampled_from([0.01, 3.0, 100.0]),
    shift=st.sampled_from([0.0, 1e9]),
)
def test_units_and_origin_do_not_matter(
    seed: int, kind: str, scale: float, stretch: float, shift: float
) -> None:
    amounts = leaking(kind, seed, 200, MB / 2)
    one = find_leak(range(200), amounts, least_growth_bytes=0)
    steps = [shift + stretch * step for step in range(200)]
    other = find_leak(steps, [scale * amount for amount in amounts], least_growth_bytes=0)
    assert other.is_significant == one.is_significant
    assert other.slope_bytes_per_step == pytest.approx(
        one.slope_bytes_per_step * scale / stretch, rel=1e-4, abs=1e-6 * MB * scale / stretch
    )


@pytest.mark.parametrize("length", [0, 1, 2, 10, 15, 20])
def test_of_a_short_trace_nothing_is_told(length: int) -> None:
    leak = find_leak(range(length), [step * MB for step in range(length)])
    assert leak.is_known == (length >= 20)
    assert leak.verdict == ("leak" if length >= 20 else TOO_EARLY)


@pytest.mark.parametrize(
    "amounts",
    [
        [5 * MB] * 300,
        [0] * 300,
        [5 * MB + 100 * step for step in range(300)],  # 30 KB in all
        [(900 - step) * MB for step in range(300)],
        [MB * (100 + 400 * (step > 150)) for step in range(300)],
        [MB * (100 + 40 * (step > 110) + 80 * (step > 170) + 60 * (step > 230)) for step in range(300)],
        [MB * (100 + 300 * (1 - math.exp(-step / 40))) for step in range(300)],
        [MB * (100 + 50 * math.log(1 + step)) for step in range(300)],
        [MB * (100 + step % 60) for step in range(300)],
        [MB * (100 + 900 * (step % 100 < 3)) for step in range(300)],
    ],
    ids=["flat", "nothing", "a few KB", "falling", "jump", "jumps", "levels off", "log", "saw", "spikes"],
)
def test_shapes_that_are_no_leak(amounts: list[float]) -> None:
    assert not find_leak(range(300), amounts).is_significant
    watch = LeakWatch()
    for step, amount in enumerate(amounts):
        watch.add(step, amount)
        assert not watch.look().is_significant, step


def test_growth_that_levels_off_is_told_as_such() -> None:
    amounts = [MB * (100 + 300 * (1 - math.exp(-step / 100))) for step in range(400)]
    leak = find_leak(range(400), amounts)
    assert leak.verdict == LEVELLING_OFF


def test_a_leak_behind_warm_up_spikes_and_a_jump() -> None:
    amounts = [
        (300 + 500 * (1 - math.exp(-step / 10)) + 700 * (step % 50 == 0) + 200 * (step > 190) + 0.5 * step)
        * MB
        for step in range(300)
    ]
    leak = find_leak(range(300), amounts)
    assert leak.is_significant
    assert leak.slope_bytes_per_step == pytest.approx(MB / 2, rel=0.1)


def test_jumps_do_not_hide_a_leak() -> None:
    amounts = [(300 + 500 * (step > 120) + 500 * (step > 220) + 0.5 * step) * MB for step in range(300)]
    leak = find_leak(range(300), amounts)
    assert leak.is_significant
    assert leak.slope_bytes_per_step == pytest.approx(MB / 2, rel=0.1)


def test_a_slow_warm_up_is_no_leak() -> None:
    """Its steep beginning is no jump, without which the rest would look steady. 2.5% may be taken for one."""
    alarms = 0
    for seed in range(120):
        r = random.Random(f"slow {seed}")
        height, half, noise = r.uniform(50, 500) * MB, r.uniform(10, 64), r.uniform(0.5, 5) * MB
        watch = LeakWatch()
        is_alarmed = False
        for step in range(200):
            watch.add(step, 500 * MB + height * (1 - 2 ** (-step / half)) + r.gauss(0, noise))
            is_alarmed |= step % 20 == 19 and watch.look().is_significant
        alarms += is_alarmed
    assert alarms <= 3


def test_the_last_tooth_of_a_saw_is_no_leak() -> None:
    r = random.Random(0)
    amounts = [(100 + step % 200) * MB + r.gauss(0, MB) for step in range(800)]
    assert not any(find_leak(range(end), amounts[:end]).is_significant for end in range(580, 800, 20))


@pytest.mark.parametrize("kind", ["white", "spikes", "wandering", "high_water"])
def test_one_megabyte_a_step_is_found_within_200(kind: str) -> None:
    found = 0
    for seed in range(20):
        watch = LeakWatch()
        for step, amount in enumerate(leaking(kind, seed, 200, MB)):
            watch.add(step, amount)
        found += watch.look().is_significant
    assert found >= 17


def test_a_leak_that_begins_late_is_found_as_soon() -> None:
    watch = LeakWatch()
    for step, amount in enumerate(leaking("white", 3, 20_300, MB, begin=20_000)):
        watch.add(step, amount)
        if step == 19_999:
            assert not watch.look().is_significant
    leak = watch.look()
    assert leak.is_significant
    assert leak.since_step > 19_900
    assert len(watch._points) + len(watch._recent) < 1000


@settings(max_examples=examples(20))
@given(seed=st.integers(0, 10**6), kind=st.sampled_from(list(CLEAN)))
def test_a_watch_sees_what_one_look_sees(seed: int, kind: str) -> None:
    amounts = leaking(kind, seed, 1500, MB)
    watch = LeakWatch()
    for step, amount in enumerate(amounts):
        watch.add(step, amount)
    assert watch.look().is_significant
    slope = find_leak(range(1500), amounts).slope_bytes_per_step
    assert watch.look().slope_bytes_per_step == pytest.approx(slope, rel=0.2)


@pytest.mark.slow
def test_runs_that_are_looked_at_often_are_left_alone() -> None:
    """1,000 steps, a look every 50: at most 5% of 60 runs of each kind. Of warm-ups some more may:
    those that fill slowly look like leaks at first.
    """
    alarms = dict.fromkeys(CLEAN, 0)
    for kind in CLEAN:
        for seed in range(60):
            watch, looks = LeakWatch(), []
            for step, amount in enumerate(clean(kind, 10_000 + seed, 1000)):
                watch.add(step, amount)
                looks += [watch.look().is_significant] if step % 50 == 49 else []
            alarms[kind] += any(looks)
    assert sum(alarms.values()) <= 0.05 * 60 * len(CLEAN)
    assert {kind for kind, count in alarms.items() if count > 3} <= {"warm_up"}
    assert max(alarms.values()) <= 6


def test_words(golden: Golden) -> None:
    def words(slope: float, low: float, high: float, is_leak: bool, **more: object) -> str | None:
        leak = Leak(slope * MB, low * MB, high * MB, is_leak, is_known=True, **more)
        return leak_words(leak, "worker 7" if "eta_steps" in more else None)

    assert leak_words(Leak()) is None
    found = [
        words(0.3, -0.1, 0.7, False),
        words(-0.01, -0.2, 0.2, False),
        words(1.1, 0.9, 1.3, True, eta_s=11520.0),
        words(1.1, 0.9, 1.3, True),
        words(1.1, 0.9, 1.3, True, eta_s=61.0, eta_steps=9.0),
        words(0.02, 0.01, 0.03, True),
        words(2048.0, 1024.0, 3072.0, True),
        leak_words(
            find_leak(range(400), [MB * (100 + 300 * (1 - math.exp(-at / 100))) for at in range(400)])
        ),
    ]
    golden.text("\n".join(map(str, found)))
    assert [in_words(s) for s in (0, 119, 600, 36000, 400_000)] == [
        "0 s",
        "119 s",
        "10 min",
        "10.0 h",
        "4.6 days",
    ]


def test_a_warning_is_told_once_and_again_when_half_the_time_is_left(golden: Golden) -> None:
    def report(eta_s: float | None, is_leak: bool = True) -> LeakReport:
        return LeakReport(Leak(MB, MB / 2, 2 * MB, is_leak, is_known=True, eta_s=eta_s))

    monitor = LeakMonitor()
    given = [(100, 50), (100, 200), (90, 200), (51, 200), (49, 200), (30, 200), (20, None)]
    told = [monitor.warning(report(eta_s), left_s) for eta_s, left_s in given]
    assert [warning is not None for warning in told] == [False, True, False, False, True, False, True]
    golden.text(told[1])
    assert monitor.warning(report(None), 1e9) is None
    assert monitor.warning(report(1, is_leak=False), 1e9) is None


LOOP = """
import json, sys, time
from memory import LeakMonitor
from memory.leaks import monitor as leak_monitor
leak_monitor._SHARE = 1.0  # of a core: on a busy machine too, every step is measured
monitor, held = LeakMonitor(), []
found = None
for step in range(1, 401):
    garbage = [bytearray(b"x" * 200_000) for _ in range(step % 17)]
    if sys.argv[1] == "leak":
        held.append(bytearray(b"x" * (1 << 20)))
    time.sleep(0.02)
    monitor.sample(step)
    report = monitor.look(step) if step % 20 == 0 else None
    if report and report.total.is_significant:
        found = {"step": step, "words": report.words(), **report.to_json()}
        break
print(json.dumps(found))
"""


def loop(kind: str) -> dict | None:
    done = subprocess.run(
        [sys.executable, "-c", LOOP, kind], cwd=ROOT, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_a_real_process_that_leaks_is_found_within_200_steps() -> None:
    found = loop("leak")
    assert found["step"] <= 200
    assert found["slope_bytes_per_step"] == pytest.approx(MB, rel=0.2)
    assert found["holder"] == "main"


@pytest.mark.slow
def test_a_real_process_that_does_not_is_left_alone() -> None:
    assert loop("clean") is None


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
    if report.scope != "job":  # of a job, others' growth and shrinking count as well
        assert report.holder == f"worker {worker.pid}"


def test_a_monitor_never_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("garbled")

    monkeypatch.setattr("memory.leaks.monitor.read_process", fail)
    monitor = LeakMonitor()
    monitor.sample(1)
    monitor.sample(2)
    assert monitor.look(2).words() is None
    assert LeakMonitor(pid=2**22 - 1).look(1).total.verdict == TOO_EARLY
    gone = LeakMonitor(pid=2**22 - 1)
    gone.sample(1)
    assert gone.look(1).words() is None


def test_a_leak_ends_where_the_machine_has_no_more_to_give(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others hold the rest of a machine without cgroup limits: its total is never reached."""
    held = iter(range(100 * MB, 10_000 * MB, MB))
    now = Snapshot(0.0, Process(os.getpid(), anon_bytes=300 * MB), host=Host(64_000 * MB, 500 * MB))
    monkeypatch.setattr("memory.leaks.monitor._LEAST_BETWEEN_S", 0.0)
    monkeypatch.setattr("memory.leaks.monitor._SHARE", float("inf"))
    monkeypatch.setattr("memory.leaks.monitor.read_descendants", lambda *_: ())
    monkeypatch.setattr("memory.leaks.monitor.snapshot", lambda *_: now)
    monkeypatch.setattr(
        "memory.leaks.monitor.read_process", lambda pid: Process(pid, anon_bytes=next(held), threads=1)
    )
    monitor = LeakMonitor()
    for step in range(200):
        monitor.sample(step)
    assert monitor.look(200).total.eta_steps == pytest.approx(500, rel=0.01)


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


def test_the_leak_stands_in_the_record_and_at_the_end_of_the_line(tmp_path: Path) -> None:
    lines: list[str] = []
    with record_to(tmp_path / "memory.jsonl", attempt=1, echo=lines.append), stage("train") as measured:
        measured.tell("leak", {"verdict": "leak"}, "+0.3 MB/step")
        measured.tell("other", 1)
    begin, end = map(json.loads, (tmp_path / "memory.jsonl").read_text().splitlines())
    assert "leak" not in begin
    assert (end["leak"], end["other"]) == ({"verdict": "leak"}, 1)
    assert lines[0].endswith(" | +0.3 MB/step")


def test_a_stage_of_another_thread_tells_its_own(tmp_path: Path) -> None:
    lines: list[str] = []
    with record_to(tmp_path / "memory.jsonl", attempt=1, echo=lines.append), stage("outer"):

        def work() -> None:
            with stage("inner") as measured:
                measured.tell("leak", {}, "words")

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert [line.endswith("words") for line in lines] == [True, False]
