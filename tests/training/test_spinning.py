"""How threads wait: awake where cores are free, asleep beside others, and as the user says if he does."""

from __future__ import annotations

import dataclasses
import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_run import ROOT, make_run, tiny_config

from conf.ensembles import members_of
from conf.schema import Ensemble
from training import device, spinning
from training.device import cores_of_process
from training.spinning import ASLEEP, OF_THE_USER, SPIN_COUNT, CoresInUse, busy_seconds, settle_waiting

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
    looked = CoresInUse({0}, proc=str(tmp_path))
    own = time.process_time()
    while time.process_time() - own < 0.3:
        pass
    own_ticks = round((time.process_time() - own) * TICKS)
    stat.write_text(stat_text({0: (own_ticks, 0, 0, 500, 0, 0, 0, 0)}))
    began = time.monotonic()
    assert looked.by_others(0) == pytest.approx(0, abs=0.1)
    assert time.monotonic() - began < 0.2, "it has looked for long enough"
    for damaged in ("", "nothing of the kind", "cpu0 1 2", "cpu0 a b c d e f g h"):
        stat.write_text(damaged)
        assert looked.by_others(0) is None
    stat.unlink()
    assert looked.by_others(0) is None


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
    core = min(cores_of_process())
    with busy_cores():
        used = CoresInUse({core}).by_others(1.0)
    assert used is not None
    assert 0.4 < used < 1.1


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """As in a process that has not loaded torch, of a user who has said nothing, on four free cores."""
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    for name in OF_THE_USER:
        monkeypatch.setenv(name, "")  # so that what the test leaves is taken away again
        monkeypatch.delenv(name)
    monkeypatch.setattr(spinning, "cores_of_process", lambda: {0, 1, 2, 3})
    return monkeypatch


def used_by_others(monkeypatch: pytest.MonkeyPatch, used: float | None) -> None:
    monkeypatch.setattr(CoresInUse, "by_others", lambda self: used)


@pytest.mark.parametrize(
    ("used", "threads", "workers", "spins"),
    [
        (0.0, 4, 0, True),
        (0.2, 4, 0, True),
        (0.9, 4, 0, False),
        (1.1, 2, 0, True),  # on the two that are left
        (2.9, 2, 0, False),
        (0.0, 2, 2, True),
        (0.0, 4, 1, False),  # a loader worker wants a core as well
        (0.0, 8, 0, False),  # more threads than cores
        (None, 4, 0, False),  # the system does not tell
    ],
)
def test_threads_wait_awake_on_free_cores_alone(
    environment: pytest.MonkeyPatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    used: float | None,
    threads: int,
    workers: int,
    spins: bool,
) -> None:
    used_by_others(environment, used)
    config = tiny_config(tmp_path, threads=threads)
    config = dataclasses.replace(config, dataset=dataclasses.replace(config.dataset, num_workers=workers))
    with caplog.at_level(logging.INFO, "training"):
        settle_waiting(config, {}, is_alone=True)
    assert os.environ.get(SPIN_COUNT) == (None if spins else ASLEEP)
    is_told = used is not None and used > 4 - threads + 0.3
    assert ("of the 4 cores that this run may use" in caplog.text) == is_told


def test_what_an_earlier_attempt_had_counts(environment: pytest.MonkeyPatch, tmp_path: Path) -> None:
    used_by_others(environment, 1.0)
    environment.setattr(device, "available_threads", lambda ranks_here: 2)
    settle_waiting(tiny_config(tmp_path, threads="auto"), {"threads": 4}, is_alone=True)
    assert os.environ[SPIN_COUNT] == ASLEEP


def test_several_ranks_wait_asleep_without_a_look(environment: pytest.MonkeyPatch, tmp_path: Path) -> None:
    environment.setattr(CoresInUse, "by_others", None)
    settle_waiting(tiny_config(tmp_path, threads=2), {}, is_alone=False)
    assert os.environ[SPIN_COUNT] == ASLEEP


def test_one_thread_waits_for_none(environment: pytest.MonkeyPatch, tmp_path: Path) -> None:
    environment.setattr(CoresInUse, "by_others", None)
    settle_waiting(tiny_config(tmp_path, threads=1), {}, is_alone=True)
    assert SPIN_COUNT not in os.environ


def test_torch_that_is_loaded_has_read_it(environment: pytest.MonkeyPatch, tmp_path: Path) -> None:
    environment.setattr(CoresInUse, "by_others", None)
    environment.setitem(sys.modules, "torch", logging)
    settle_waiting(tiny_config(tmp_path, threads=4), {}, is_alone=True)
    assert SPIN_COUNT not in os.environ


@pytest.mark.parametrize("name", OF_THE_USER)
def test_what_the_user_says_stays(environment: pytest.MonkeyPatch, tmp_path: Path, name: str) -> None:
    environment.setattr(CoresInUse, "by_others", None)
    environment.setenv(name, "5")
    settle_waiting(tiny_config(tmp_path, threads=4), {}, is_alone=True)
    assert [os.environ.get(each) for each in OF_THE_USER].count("5") == 1
    assert ASLEEP not in [os.environ.get(each) for each in OF_THE_USER]


def what_openmp_was_told(folders: list[Path], **environment: str) -> str:
    """What it says of itself as it is loaded, in a run's own process."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "core.py"), *map(str, folders)],
        env={key: value for key, value in os.environ.items() if key not in OF_THE_USER}
        | {"OMP_DISPLAY_ENV": "verbose"} | environment,
        capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = [line for line in done.stderr.splitlines() if SPIN_COUNT in line]
    if not found:
        pytest.skip("torch's OpenMP is not GNU's here")
    return found[0].split("'")[1]


@pytest.mark.slow
@needs_cores
def test_a_run_beside_others_has_openmp_told_before_it_is_loaded(tmp_path: Path) -> None:
    folder = make_run(tiny_config(tmp_path, threads=2, max_steps=2))
    assert what_openmp_was_told([folder], GOMP_SPINCOUNT="4711") == "4711"
    other = make_run(tiny_config(tmp_path, threads=2, max_steps=3))
    with busy_cores():
        assert what_openmp_was_told([other]) == ASLEEP
    assert "cores that this run may use for its 2 threads" in (other / "log.txt").read_text()


@pytest.mark.slow
@needs_cores
def test_the_runs_of_an_ensemble_that_is_probed_as_well(tmp_path: Path) -> None:
    config = tiny_config(tmp_path, threads=2, max_steps=2)
    members = members_of(dataclasses.replace(config, ensemble=Ensemble(seed=["0", "1"])))
    with busy_cores():
        assert what_openmp_was_told([make_run(member) for member in members]) == ASLEEP
