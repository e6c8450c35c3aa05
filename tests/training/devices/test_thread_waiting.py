"""How threads wait: awake where cores are free, asleep beside others, and as the user says if he does."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_run import ROOT, make_run, tiny_config

from conf.between_keys.ensembles import members_of
from conf.schema import Ensemble
from tests.golden_text import Golden
from training.devices import thread_waiting as spinning
from training.devices.device import Device, cores_of_process
from training.devices.thread_waiting import (
    SETTINGS,
    CoresInUse,
    SpareTeam,
    Waiting,
    busy_seconds,
    prepare_waiting,
    watch_cores,
)

TICKS = os.sysconf("SC_CLK_TCK")
COUNTS = st.tuples(*[st.integers(0, 10**9)] * 10)


def stat_text(cores: dict[int, tuple[int, ...]]) -> str:
    lines = [f"cpu{core} {' '.join(map(str, counts))}" for core, counts in cores.items()]
    return "\n".join(["cpu  1 2 3 4 5 6 7 8 0 0", *lines, "intr 5 0 0", "ctxt 7", ""])


@given(st.dictionaries(st.integers(0, 200), COUNTS, min_size=1, max_size=5))
def test_busy_time_is_all_but_idle_and_waiting_for_disks(
    cores: dict[int, tuple[int, ...]],
) -> None:
    text = stat_text(cores)
    # guest time is in user time already (proc_stat(5)): the last two count nothing
    expected = {core: sum(counts[:3]) + sum(counts[5:8]) for core, counts in cores.items()}
    for core, ticks in expected.items():
        assert busy_seconds(text, {core}) == ticks / TICKS
    assert busy_seconds(text, set(cores)) == pytest.approx(sum(expected.values()) / TICKS)
    assert busy_seconds(text, {*cores, 201}) is None, "one that is not there"


def test_own_work_is_no_one_elses(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    stat.write_text(stat_text({0: (0,) * 8}))
    in_use = CoresInUse({0}, proc=str(tmp_path))
    own, began = time.process_time(), time.monotonic()
    while time.process_time() - own < 0.3:
        pass
    own_ticks = round((time.process_time() - own) * TICKS)
    stat.write_text(stat_text({0: (own_ticks, 0, 0, 500, 0, 0, 0, 0)}))
    assert in_use.by_others() == pytest.approx(0, abs=0.15)
    time.sleep(0.2)
    stat.write_text(stat_text({0: (own_ticks, 0, 10, 500, 0, 0, 0, 10)}))
    others = in_use.by_others()
    assert others is not None
    assert 0.2 / (time.monotonic() - began) < others < 1, "of the time since the last answer alone"
    for damaged in ("", "nothing of the kind", "cpu0 1 2", "cpu0 a b c d e f g h"):
        stat.write_text(damaged)
        assert in_use.by_others() is None
    stat.unlink()
    assert in_use.by_others() is None


@contextmanager
def busy_cores() -> Iterator[None]:
    """A process that computes on each core of this one."""
    code = "import os; os.sched_setaffinity(0, {%d})\nwhile True: pass"
    busy = [subprocess.Popen([sys.executable, "-c", code % core]) for core in cores_of_process()]
    try:
        yield
    finally:
        for one in busy:
            one.kill()
            one.wait()


needs_cores = pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity") or len(cores_of_process()) < 2, reason="of Linux, with two cores"
)


@needs_cores
def test_a_process_beside_is_seen() -> None:
    with busy_cores():
        in_use = CoresInUse({min(cores_of_process())})
        time.sleep(1)
        used = in_use.by_others()
    assert used is not None
    assert 0.4 < used < 1.1


class Team:
    """In place of the threads: how many there are now."""

    alive: ClassVar[list[int]] = []

    def __init__(self, size: int) -> None:
        self.alive.append(size)

    def end(self) -> None:
        self.alive.pop()


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> Waiting:
    """On four cores, with threads that are counted."""
    monkeypatch.setattr(Team, "alive", [])
    monkeypatch.setattr(spinning, "SpareTeam", Team)
    return Waiting({0, 1, 2, 3})


@pytest.mark.parametrize(
    ("used", "threads", "spare"),
    [
        (0.0, 4, []),
        (0.2, 4, []),
        (0.9, 4, [2]),
        (1.1, 2, []),  # on the two that are left
        (2.9, 2, [4]),
        (0.2, 8, []),  # more threads than cores: OpenMP knows that by itself
        (None, 4, []),  # the system does not tell
    ],
)
def test_threads_sleep_where_others_want_their_cores(
    waiting: Waiting, monkeypatch: pytest.MonkeyPatch, used: float | None, threads: int, spare: list[int]
) -> None:
    monkeypatch.setattr(CoresInUse, "by_others", lambda self: used)
    waiting.look(threads)
    assert Team.alive == spare
    waiting.look(threads)
    assert Team.alive == spare, "once"


def test_they_wait_awake_again_when_the_others_are_gone_and_it_is_told_once(
    waiting: Waiting, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, golden: Golden
) -> None:
    with caplog.at_level(logging.INFO, "training"):
        for used in (0.0, 1.5, None, 1.0, 0.1, 2.0, 0.1):
            monkeypatch.setattr(CoresInUse, "by_others", lambda self, used=used: used)
            waiting.look(4)
            if used is not None:
                assert bool(Team.alive) == (used > 0.3)
    (message,) = caplog.messages
    golden.text(message)


def test_a_large_machine_gets_no_crowd_of_threads(waiting: Waiting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CoresInUse, "by_others", lambda self: 64.0)
    Waiting(set(range(64))).look(2)
    assert Team.alive == []


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """As in a process that has not loaded torch, of a user who has said nothing."""
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(spinning, "_waiting", None)
    for name in SETTINGS:
        monkeypatch.setenv(name, "")  # so that what the test leaves is taken away again
        monkeypatch.delenv(name)
    return monkeypatch


def settings() -> dict[str, str]:
    return {name: os.environ[name] for name in SETTINGS if name in os.environ}


def test_a_process_is_prepared_before_torch_is_loaded(environment: pytest.MonkeyPatch) -> None:
    watched: list[int] = []
    environment.setattr(Waiting, "watch", lambda self, threads: watched.append(threads))
    watch_cores(Device("cpu", "fp32", 2))
    prepare_waiting()
    assert settings() == SETTINGS
    watch_cores(Device("cpu", "fp32", 2))
    watch_cores(Device("cuda", "bf16", 3))
    assert watched == [2], "on a CPU, of a process that was prepared"


def test_one_thread_looks_again_and_again_for_several(
    waiting: Waiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: queue.Queue[int] = queue.Queue()
    more = threading.Semaphore(0)

    def look(self: Waiting, threads: int) -> None:
        looks.put(threads)
        more.acquire()

    monkeypatch.setattr(Waiting, "look", look)
    monkeypatch.setattr(spinning, "LOOK_EVERY_S", 0.001)
    before = threading.active_count()
    waiting.watch(1)
    assert threading.active_count() == before, "one thread waits for no other"
    waiting.watch(2)
    assert looks.get(timeout=60) == 2
    waiting.watch(3)
    assert threading.active_count() == before + 1
    more.release()
    assert looks.get(timeout=60) == 3


@pytest.mark.parametrize("name", SETTINGS)
def test_what_the_user_says_stays(environment: pytest.MonkeyPatch, name: str) -> None:
    environment.setenv(name, "passive")
    prepare_waiting()
    assert settings() == {name: "passive"}
    assert spinning._waiting is None


def test_torch_that_is_loaded_has_read_it(environment: pytest.MonkeyPatch) -> None:
    environment.setitem(sys.modules, "torch", logging)
    prepare_waiting()
    assert settings() == {}
    assert spinning._waiting is None


AWAKE = """
import json, os, sys, time
from training.devices.thread_waiting import SpareTeam, prepare_waiting
prepare_waiting()
import torch
torch.set_num_threads(2)
os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:2]))
numbers = torch.randn(200_000)

def cores_busy():
    "Of short work with pauses, in which one of two threads waits."
    began, own = time.perf_counter(), time.process_time()
    while time.perf_counter() - began < 0.5:
        numbers.mul_(1.0)
        time.sleep(0.002)
    return (time.process_time() - own) / (time.perf_counter() - began)

found = [cores_busy()]
for _ in range(2):
    spare = SpareTeam(len(os.sched_getaffinity(0)) + 1)
    found.append(cores_busy())
    spare.end()
    found.append(cores_busy())
print(json.dumps(found))
"""


@pytest.mark.slow
@needs_cores
def test_a_spare_team_has_real_threads_wait_asleep_while_it_is_there() -> None:
    two = set(sorted(cores_of_process())[:2])  # before OpenMP counts them
    done = subprocess.run(
        ["taskset", "-c", ",".join(map(str, two)), sys.executable, "-c", AWAKE],
        env={key: value for key, value in os.environ.items() if key not in SETTINGS},
        cwd=ROOT, capture_output=True, text=True, check=True, timeout=240,
    )  # fmt: skip
    awake, asleep, again, asleep_again, at_last = json.loads(done.stdout)
    assert max(asleep, asleep_again) < 0.6 * min(awake, again, at_last)


def test_without_gnu_openmp_it_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spinning, "_gnu_openmp", lambda: None)
    SpareTeam(2).end()


@pytest.mark.slow
@needs_cores
@pytest.mark.parametrize("is_ensemble", [False, True])
def test_a_run_beside_others_says_so(tmp_path: Path, is_ensemble: bool, golden: Golden) -> None:
    config = tiny_config(tmp_path, threads=2, max_steps=400, checkpoint_every=400)
    if is_ensemble:
        members = members_of(dataclasses.replace(config, ensemble=Ensemble(seed=["0", "1"])))
        folders = [make_run(member) for member in members]
    else:
        folders = [make_run(config)]
    with busy_cores():
        done = subprocess.run(
            [sys.executable, str(ROOT / "core.py"), *map(str, folders)],
            env={key: value for key, value in os.environ.items() if key not in SETTINGS}
            | {"OMP_DISPLAY_ENV": "verbose"},
            capture_output=True, text=True, timeout=300,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for name, value in SETTINGS.items():
        assert f"{name} = '{value}'".lower() in done.stderr.lower(), "OpenMP has read it"
    golden.lines((folders[0] / "log.txt").read_text(), "cores", "threads", "longer", numbers=False)
