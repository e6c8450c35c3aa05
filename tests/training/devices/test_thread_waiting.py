"""Threads wait asleep on shared cores, awake on cores of their own, and as the user's variables say."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny_run import ROOT, make_run, tiny_config

from tests.golden_text import Golden
from training.devices import thread_waiting
from training.devices.device import Device, cores_of_process
from training.devices.thread_waiting import ASLEEP, VARIABLES, choose_waiting, cpu_times, log_shared_cores

Choose = Callable[[float | None], dict[str, str]]


@pytest.mark.parametrize(
    ("text", "busy_ticks"),
    [
        # guest time is part of user time (proc_stat(5)): the last two columns count nothing
        ("cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 1 2 3 400 500 6 7 8 90 90\ncpu7 5 5 5 5 5 5 5 5 0 0\n", 27),
        ("cpu0 a b c d e f g h\n", None),
        (None, None),
    ],
)
def test_busy_time_is_all_but_idle_and_waiting_for_disks(
    text: str | None, busy_ticks: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thread_waiting, "cores_of_process", lambda: {0})
    if text is not None:
        (tmp_path / "stat").write_text(text)
    at_s, own_s, busy_s = cpu_times(tmp_path / "stat")
    assert busy_s == (None if busy_ticks is None else busy_ticks / os.sysconf("SC_CLK_TCK"))
    assert (at_s, own_s) == (
        pytest.approx(time.monotonic(), abs=60),
        pytest.approx(time.process_time(), abs=60),
    )


@pytest.fixture
def choose(monkeypatch: pytest.MonkeyPatch) -> Choose:
    """Choose in a process without torch, of a user without variables, while others used some of the cores."""

    def chosen(used: float | None) -> dict[str, str]:
        now = (2.0, 1.5, None if used is None else 11.0 + used)
        monkeypatch.setattr(thread_waiting, "cpu_times", lambda: now)
        choose_waiting()
        return {name: os.environ[name] for name in VARIABLES if name in os.environ}

    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(thread_waiting, "_at_import", (1.0, 0.5, 10.0))
    monkeypatch.setattr(thread_waiting, "_used_by_others", 0.0)
    for name in VARIABLES:
        monkeypatch.setenv(name, "")  # restored after the test
        monkeypatch.delenv(name)
    return chosen


@pytest.mark.parametrize(
    ("used", "expected"), [(None, {}), (0.0, {}), (0.2, {}), (0.9, ASLEEP), (5.0, ASLEEP)]
)
def test_threads_sleep_where_others_want_their_cores(
    used: float | None, expected: dict[str, str], choose: Choose
) -> None:
    assert choose(used) == expected


def test_variables_of_the_user_and_a_loaded_torch_decide(
    choose: Choose, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", logging)
    assert choose(2.0) == {}
    monkeypatch.delitem(sys.modules, "torch")
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")
    assert choose(2.0) == {"OMP_WAIT_POLICY": "passive"}


def test_shared_cores_are_logged(choose: Choose, caplog: pytest.LogCaptureFixture, golden: Golden) -> None:
    caplog.set_level(logging.INFO, "training")
    choose(0.2)
    log_shared_cores(Device("cpu", "fp32", 4))
    assert not caplog.messages
    choose(1.5)
    log_shared_cores(Device("cuda", "fp32", 4))
    log_shared_cores(Device("cpu", "fp32", 4))
    (message,) = caplog.messages
    golden.text(message, numbers=False)


@pytest.mark.slow
def test_a_run_on_shared_cores_sleeps(tmp_path: Path) -> None:
    folder = make_run(tiny_config(tmp_path, threads=2, max_steps=2))
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in cores_of_process()]
    try:
        done = subprocess.run(
            [sys.executable, str(ROOT / "core.py"), str(folder)],
            env={name: value for name, value in os.environ.items() if name not in VARIABLES}
            | {"OMP_DISPLAY_ENV": "verbose"},
            capture_output=True, text=True, timeout=300,
        )  # fmt: skip
    finally:
        for one in busy:
            one.kill()
            one.wait()
    assert done.returncode == 0, done.stderr
    assert json.loads((folder / "status.json").read_text())["state"] == "done"
    assert "GOMP_SPINCOUNT = '1000'" in done.stderr, "OpenMP has read it"
    assert "its 2 threads" in (folder / "log.txt").read_text()
