"""The supervisor's parts: its pace, its clock, who was lost, counters; and nothing in it breaks a run."""

from __future__ import annotations

import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from evidence_builder import sample
from hypothesis import given
from hypothesis import strategies as st
from supervised import outcome_in, pid_in, python, start_supervised, supervise, wait_for

import memory.measure.process
import memory.supervision.sampler as sampler
import memory.supervision.watch as watch_module
from memory.measure.cgroup import Cgroup
from memory.measure.process import Process
from memory.record.ring import RingWriter, read_ring
from memory.record.samples import Sample
from memory.record.stack_requests import has_handler
from memory.supervision.counters import Counters
from memory.supervision.options import Options
from memory.supervision.outcome import ending, rlimits
from memory.supervision.process_table import ProcessTable
from memory.supervision.sampler import Look
from memory.supervision.sampling_interval import FASTEST_S, SLOWEST_S, Allowance, next_interval_s
from memory.supervision.watch import Watch, growth_bytes_per_s
from tests.golden_text import Golden

MB = 1 << 20
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")


@given(
    st.integers(0, 10**6),
    st.none() | st.floats(0, 2),
    st.floats(-1e12, 1e12),
    st.none() | st.floats(-1e12, 1e12),
    st.floats(0, 10),
)
def test_the_pace_stays_between_its_bounds(
    taken: int, nearness: float | None, growth: float, room: float | None, owed_s: float
) -> None:
    wait_s = next_interval_s(taken, nearness, growth, room, owed_s)
    assert max(FASTEST_S, min(SLOWEST_S, owed_s)) <= wait_s <= SLOWEST_S
    nearer_s = next_interval_s(taken, 1.0 if nearness is None else max(1.0, nearness), growth, room, owed_s)
    assert nearer_s <= wait_s


@given(st.lists(st.floats(0, 0.049), max_size=200))
def test_sampling_at_the_fastest_pace_takes_five_hundredths_of_a_core(costs_s: list[float]) -> None:
    allowance, passed_s, wait_s = Allowance(), 0.0, 0.0
    for cost_s in costs_s:
        passed_s += wait_s
        allowance.spend(cost_s, wait_s)
        wait_s = next_interval_s(1000, 0.95, 0.0, 1e6, allowance.wait_s)
    assert sum(costs_s) <= 0.5 + 0.05 * (passed_s + wait_s) + 1e-6


def test_one_sample_that_took_long_does_not_hold_back_the_next() -> None:
    allowance = Allowance()
    allowance.spend(0.1, 0.05)
    assert next_interval_s(5, 0.78, 1e9, 45e6, allowance.wait_s) == FASTEST_S
    for _ in range(10):
        allowance.spend(0.1, 0.05)
    assert next_interval_s(5, 0.78, 1e9, 45e6, allowance.wait_s) == SLOWEST_S
    allowance.spend(0.0, 2.0)
    assert next_interval_s(5, 0.78, 1e9, 45e6, allowance.wait_s) == FASTEST_S


def test_the_pace() -> None:
    calm = {"growth_bytes_per_s": 0.0, "room_bytes": 1e9, "owed_s": 0.0}
    assert next_interval_s(1000, 0.5, **calm) == SLOWEST_S
    assert next_interval_s(1000, 0.80, **calm) == SLOWEST_S
    assert next_interval_s(1000, 0.86, **calm) == pytest.approx(0.525)
    assert next_interval_s(1000, 0.93, **calm) == pytest.approx(FASTEST_S)
    assert [round(next_interval_s(n, 0.1, **calm), 2) for n in range(6)] == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0]
    fast = calm | {"growth_bytes_per_s": 200e6}
    assert next_interval_s(1000, 0.1, **fast) == pytest.approx(0.5), "1 GB of room is 5 s: ten samples"


def test_the_clock_goes_with_the_machines_but_never_back(monkeypatch: pytest.MonkeyPatch) -> None:
    wall, steady = [1000.0], [50.0]
    monkeypatch.setattr(sampler.time, "time", lambda: wall[0])
    monkeypatch.setattr(sampler.time, "monotonic", lambda: steady[0])
    clock = sampler.Clock()

    def later(wall_s: float, steady_s: float) -> float:
        wall[0] += wall_s
        steady[0] += steady_s
        return clock.now_s()

    assert later(1, 1) == 1001
    assert later(1.5, 1) == 1002, "a small correction is none of ours"
    assert later(3600, 1) == pytest.approx(4602.5), "set forward, or it slept"
    assert later(-7200, 1) == pytest.approx(4603.5)
    assert later(1, 1) == pytest.approx(4604.5)
    assert [round(jump_s) for jump_s in clock.jumps_s] == [3600, -7201]


def process(pid: int, anon_mb: int = 10, name: str = "python") -> Process:
    return Process(pid, name, 1, anon_mb * MB, anon_mb * MB)


def test_who_was_lost_and_who_of_them_was_killed() -> None:
    table = ProcessTable(1)
    table.take((process(1), process(2), process(3, 50)), 0, 10.0)
    table.take((process(1), process(3, 70)), 0, 11.0)
    table.take((process(1),), 1, 12.0)
    assert [(lost.known.pid, lost.known.anon_bytes, lost.time_s, lost.killed) for lost in table.lost] == [
        (2, 10 * MB, 11.0, False),
        (3, 70 * MB, 12.0, True),
    ]
    victim = table.victim(main_was_killed=False, rose=True, kernel_log=b"")
    assert victim == {"pid": 3, "name": "python", "is_main": False}
    assert table.victim(main_was_killed=False, rose=False, kernel_log=b"") is None
    for number in range(100, 200):
        table.take((process(1), process(number)), 1, float(number))
    assert len(table.lost) == 32
    assert table.lost[-1].known.pid == 198


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        (b"6,1,2,-;Memory cgroup out of memory: Killed process 2 (python) total-vm:1kB\n", 2),
        (b"Killed process 2 (python)\nKilled process 3 (python)\n", 3),
        (b"Killed process 2 (another program with this number outside of the container)\n", None),
        (b"", None),
    ],
)
def test_the_kernels_own_word_decides_between_two(log: bytes, expected: int | None) -> None:
    table = ProcessTable(1)
    table.take((process(1), process(2), process(3)), 0, 10.0)
    table.take((process(1),), 2, 11.0)
    victim = table.victim(main_was_killed=False, rose=True, kernel_log=log)
    assert (victim and victim["pid"]) == expected


def test_the_main_process_is_the_victim_where_nobody_else_went() -> None:
    table = ProcessTable(1)
    table.take((process(1, 900),), 0, 10.0)
    assert table.victim(main_was_killed=True, rose=True, kernel_log=b"") == {
        "pid": 1, "name": "python", "is_main": True,
    }  # fmt: skip
    table.take((process(1, 900), process(2)), 0, 11.0)
    table.take((process(1, 900),), 1, 12.0)
    assert table.victim(main_was_killed=True, rose=True, kernel_log=b"") is None, "it may have been either"


def test_counters_of_a_job_whose_victim_stood_in_another_cgroup(tree: Any) -> None:
    """v1 counts a kill in the victim's own cgroup alone: those of the job's other steps are counted too."""
    tree.membership("4:memory:/slurm/job_7/step_0/task_0\n", "/ /sys/fs/cgroup/memory cgroup rw,memory")
    folder = "sys/fs/cgroup/memory/slurm"
    tree.v1(folder)
    tree.v1(f"{folder}/job_7", limit=100 * MB)
    for step in ("step_0", "step_0/task_0", "step_1", "step_1/task_0"):
        tree.v1(f"{folder}/job_7/{step}")
    counters = Counters(str(tree.root))
    counters.note(4_000_000)
    tree.v1(f"{folder}/job_7/step_1/task_0", kills=2)
    told = counters.told("/slurm/job_7")
    assert (told["counters_before"]["oom_kill"], told["counters_after"]["oom_kill"]) == (0, 2)
    assert [(level["path"], level["limit_bytes"], level["oom_kill_after"]) for level in told["parents"]] == [
        ("/slurm/job_7/step_0/task_0", None, 0),
        ("/slurm/job_7/step_0", None, 0),
        ("/slurm/job_7", 100 * MB, 2),
        ("/slurm", None, 2),
    ]
    assert counters.told(None)["counters_after"]["oom_kill"] == 0, "without a limit: of the run's own"


def test_counters_of_v2_and_of_nothing(tree: Any) -> None:
    assert Counters(str(tree.root)).told(None)["parents"] == []
    tree.membership("0::/job_7/task\n", "/ /sys/fs/cgroup cgroup2 rw")
    tree.v2("sys/fs/cgroup/job_7", limit=100 * MB)
    tree.v2("sys/fs/cgroup/job_7/task")
    counters = Counters(str(tree.root))
    counters.note(4_000_000)
    tree.v2("sys/fs/cgroup/job_7", limit=100 * MB, kills=1)
    told = counters.told("/job_7")
    assert (told["cgroup_version"], told["cgroup_path"]) == (2, "/job_7/task")
    assert told["counters_after"]["oom_kill"] == 1
    shutil.rmtree(tree.root / "sys")
    assert counters.told("/job_7")["counters_after"] == {}


def test_a_cgroup_of_which_nothing_can_be_seen(tree: Any) -> None:
    tree.membership("4:memory:/docker/ab12\n", "")
    counters = Counters(str(tree.root))
    counters.note(4_000_000)
    told = counters.told("host")
    assert (told["unseen_cgroup"], told["cgroup_path"], told["counters_after"]) == ("/docker/ab12", None, {})


def test_a_look_at_a_machine_without_cgroups(tree: Any) -> None:
    tree.process(anon_mb=100, shmem_mb=7, children={4_000_000: [4_000_001, 4_000_002]})
    tree.process(4_000_001, anon_mb=30)
    tree.process(4_000_002, anon_mb=40)
    found = sampler.look(4_000_000, (4_000_000,), 5.0, root=str(tree.root))
    assert found.scope != "job"
    assert found.sample.unreclaimable_bytes == 177 * MB
    assert [one.pid for one in found.sample.tree] == [4_000_000, 4_000_002, 4_000_001]
    assert found.nearness == pytest.approx(1 - 60000 / 65536), "what others hold of the machine counts"
    assert found.main_lives


def test_what_a_run_holds_itself_is_told_apart_from_its_neighbours(tree: Any) -> None:
    """A segment of shared memory counts in each process that has it mapped, in the cgroup once."""
    tree.membership("4:memory:/session\n", "/ /sys/fs/cgroup/memory cgroup rw,memory")
    tree.process(anon_mb=100, shmem_mb=20, children={4_000_000: [4_000_001]})
    tree.process(4_000_001, anon_mb=30, shmem_mb=20)
    tree.v1("sys/fs/cgroup/memory/session", rss_mb=900, shmem_mb=25)
    found = sampler.look(4_000_000, (4_000_000,), 5.0, root=str(tree.root))
    assert (found.sample.own_bytes, found.sample.unreclaimable_bytes) == (155 * MB, 925 * MB)


def test_a_process_is_seen_to_grow_before_its_cgroup_is(tree: Any) -> None:
    """The kernel adds up memory.stat every two seconds: a process that fills memory may be killed by then."""
    tree.membership("4:memory:/job_7\n", "/ /sys/fs/cgroup/memory cgroup rw,memory")
    folder = "sys/fs/cgroup/memory/job_7"
    tree.process(anon_mb=180, children={4_000_000: [4_000_001]})
    tree.process(4_000_001, anon_mb=175)
    for usage_mb, rss_mb, anon_mb in ((190, 20, 180), (100, 20, 95), (198, 190, 190)):
        tree.v1(folder, limit=200 * MB, rss_mb=rss_mb, shmem_mb=5)
        tree.write(f"{folder}/memory.usage_in_bytes", f"{usage_mb * MB}\n")
        found = sampler.look(4_000_000, (4_000_000,), 5.0, root=str(tree.root))
        assert found.sample.anon_bytes == anon_mb * MB
        assert found.sample.unreclaimable_bytes == (anon_mb + 5) * MB, "never more than all that is used"


def test_a_process_that_is_ending_is_not_counted(tree: Any) -> None:
    tree.process(children={4_000_000: [4_000_001]})
    tree.write("proc/4000001/status", "Name:\tgone\nState:\tR (running)\nThreads:\t1\n")
    found = sampler.look(4_000_000, (4_000_000,), 5.0, root=str(tree.root))
    assert [one.pid for one in found.processes] == [4_000_000]


def test_a_process_that_ends_while_it_is_looked_at_has_no_limit_of_its_own(
    tree: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel has put it into the root's cgroup: that of the supervisor is the job's still."""
    asked = []

    def read_cgroup(pid: int, *more: object) -> None:
        asked.append(pid)
        tree.write("proc/4000000/status", "Name:\tgone\nState:\tZ (zombie)\nThreads:\t1\n")

    monkeypatch.setattr(memory.measure.process, "read_cgroup", read_cgroup)
    tree.process()
    assert not sampler.look(4_000_000, (4_000_000,), 5.0, root=str(tree.root)).main_lives
    assert asked == [4_000_000, os.getpid()]


@linux
def test_garbage_in_proc_costs_the_facts_and_not_the_run(tree: Any) -> None:
    for name in ("meminfo", "4000000/status", "4000000/cgroup", "4000000/stat", "self/mountinfo"):
        tree.write(f"proc/{name}", b"\xff\x00:garbage:\n" * 100)
    found = sampler.look(4_000_000, (4_000_000,), 5.0, root=str(tree.root))
    assert found.sample.unreclaimable_bytes is None
    assert found.sample.processes == 0


@linux
@pytest.mark.parametrize("broken", ["look", "RingWriter", "started_at", "Reserved", "KernelLog"])
def test_whatever_fails_is_noted_and_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    def fails(*arguments: object, **options: object) -> None:
        raise MemoryError(f"{broken} is broken")

    if broken == "KernelLog":
        monkeypatch.setattr(watch_module.KernelLog, "read", fails)
    else:
        monkeypatch.setattr(watch_module, broken, fails)
    watch = Watch(Options(("true",), str(tmp_path)))
    watch.started(os.getpid())
    for _ in range(3):
        watch.tick()
        watch.wait_s()
    watch.gone(os.getpid())
    watch.ended(0, None)
    assert watch.facts["exit_code"] == 0
    if broken not in ("Reserved", "KernelLog"):
        assert any(broken in note for note in outcome_in(tmp_path)["notes"])


def test_a_sample_of_a_process_that_has_just_ended_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = Watch(Options(("true",), str(tmp_path)))
    watch.started(os.getpid())
    watch.tick()
    before = watch.last
    assert before is not None
    for gone in (
        dataclasses.replace(before, main_lives=False),
        dataclasses.replace(before, job=None, host_total_bytes=None),
    ):
        monkeypatch.setattr(watch_module, "look", lambda *a, gone=gone, **k: gone)
        monkeypatch.setattr(watch_module, "read_process", lambda pid: None)
        watch._sample()
        assert watch.last is before
        assert watch.taken == 1


def test_the_folder_is_deleted_while_it_runs(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    away = f"while [ -e {folder} ]; do rm -rf {folder} 2>&-; done"  # the ring may come into it meanwhile
    done = supervise(folder, ["sh", "-c", f"{away}; sleep 0.3; echo ran; exit 4"])
    assert (done.returncode, done.stdout, done.stderr) == (4, "ran\n", "")
    assert not folder.exists()


def test_names_that_are_taken(tmp_path: Path) -> None:
    """A folder stands where the ring would go: the run goes on without one."""
    (tmp_path / "memory.ring" / "x").mkdir(parents=True)
    done = supervise(tmp_path, ["sh", "-c", "exit 4"])
    assert (done.returncode, done.stderr) == (4, "")
    assert any("memory.ring" in note for note in outcome_in(tmp_path)["notes"])


def test_measuring_that_cannot_be_loaded(tmp_path: Path) -> None:
    """As from a broken installation."""
    root = Path(__file__).parents[3]
    shutil.copytree(root / "memory", tmp_path / "memory", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "memory" / "supervision" / "watch.py").write_text("import no_such_module\n")
    line = [sys.executable, "-I", "-S", str(tmp_path / "memory" / "supervisor.py"), "--output", str(tmp_path)]
    done = subprocess.run([*line, "--", "sh", "-c", "echo ran; exit 4"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (4, "ran\n")
    assert done.stderr.startswith("[mem] ")
    assert "ModuleNotFoundError" in done.stderr


@linux
def test_the_limits_that_a_process_set_itself_are_told(tmp_path: Path) -> None:
    code = "import resource; resource.setrlimit(resource.RLIMIT_DATA, (300 << 20, -1)); bytearray(400 << 20)"
    done = supervise(tmp_path, python(code))
    assert "MemoryError" in done.stderr
    assert outcome_in(tmp_path)["rlimits"] == {"as_bytes": None, "data_bytes": 300 * MB, "cpu_hard_s": None}
    assert rlimits(2**22 + 1) is None


def test_what_wait_tells() -> None:
    assert ending(3 << 8) == {"exit_code": 3, "signal": None, "by": "exit"}
    assert ending(9) == {"exit_code": None, "signal": "SIGKILL", "by": "signal"}
    assert ending(9 | 0x80) == {"exit_code": None, "signal": "SIGKILL", "by": "signal"}
    assert ending(45)["signal"] == "signal 45"
    assert ending(None) == {"exit_code": None, "signal": None, "by": "lost"}


@linux
def test_who_handles_a_signal() -> None:
    code = (
        "import signal, sys; signal.signal(signal.SIGRTMIN + 11, print); print(flush=True); sys.stdin.read()"
    )
    process = subprocess.Popen(python(code), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    assert has_handler(process.pid, signal.SIGRTMIN + 11)
    assert not has_handler(process.pid, signal.SIGRTMIN + 12)
    assert not has_handler(process.pid, 0)
    process.communicate()
    assert not has_handler(process.pid, signal.SIGRTMIN + 11)


def test_signals_where_there_is_no_sigtimedwait() -> None:
    """As on macOS, in a process of its own."""
    code = (
        "import os, signal, sys\nsys.path.append(sys.argv[1])\n"
        "from memory.supervision.signals import HandledInbox\n"
        "inbox = HandledInbox()\nos.kill(os.getpid(), signal.SIGTERM)\n"
        "os.kill(os.getpid(), signal.SIGUSR1)\n"
        "found = {inbox.wait(5).number, inbox.wait(5).number}\n"
        "assert found == {signal.SIGTERM, signal.SIGUSR1}, found\n"
        "assert inbox.wait(0.01) is None\n"
        "if os.fork() == 0: os._exit(0)\n"
        "assert inbox.wait(5).number == signal.SIGCHLD\n"
    )
    done = subprocess.run([*python(code), str(Path(__file__).parents[3])], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@linux
@pytest.mark.slow
def test_a_worker_that_dies_is_among_the_lost(tmp_path: Path) -> None:
    code = (
        "import os, sys, time\npid = os.fork()\n"
        "if pid == 0:\n    held = bytearray(b'x') * (30 << 20)\n"
        "    open(sys.argv[1] + '/up', 'w').write(str(os.getpid()))\n    time.sleep(60)\n"
        "os.waitpid(pid, 0)\n"
        "until = time.monotonic() + 60\n"
        "while not os.path.exists(sys.argv[1] + '/end') and time.monotonic() < until: time.sleep(0.02)\n"
    )
    process = start_supervised(tmp_path, [*python(code), str(tmp_path)])
    worker = pid_in(tmp_path / "up")
    wait_for(lambda: _anon(tmp_path, worker) > 30 * MB)
    os.kill(worker, signal.SIGKILL)
    wait_for(lambda: _anon(tmp_path, worker) == 0)
    (tmp_path / "end").touch()
    process.communicate()
    outcome = outcome_in(tmp_path)
    (lost,) = outcome["children_lost"]
    assert (lost["pid"], lost["parent_pid"]) == (worker, outcome["pid"])
    assert lost["last_anon_bytes"] > 30 * MB
    assert outcome["victim"] is None, "the kernel killed nobody for memory"
    assert outcome["exit_code"] == 0


def _anon(folder: Path, pid: int) -> int:
    ring = read_ring(folder / "memory.ring")
    tree = ring.samples[-1].tree if ring and ring.samples else ()
    return next((one.anon_bytes or 0 for one in tree if one.pid == pid), 0)


def test_the_summary_line(golden: Golden) -> None:
    from memory.supervision.outcome import summary

    outcome = {
        "exit_code": 0, "signal": None, "started_s": 10.0, "ended_s": 12.5, "limit_bytes": 80 * MB,
        "limit_at": "/job", "peak_unreclaimable_bytes": 50 * MB, "peak_limit_bytes": 100 * MB,
        "peak_nearness": 0.5,
    }  # fmt: skip
    quiet, always = (Options(("true",), "a b", tell=tell) for tell in ("failed", "always"))
    assert summary(outcome, quiet) is None
    told = [
        {"peak_nearness": 0.95},
        {"exit_code": None, "signal": "SIGKILL"},
        {"counters_before": {"oom_kill": 2}, "counters_after": {"oom_kill": 3}},
        {"peak_unreclaimable_bytes": None, "exit_code": 1},
    ]
    lines = [summary(outcome, always), *(summary(outcome | more, quiet) for more in told)]
    golden.text("\n".join(map(str, lines)))


def test_a_folder_in_which_another_host_works(tmp_path: Path) -> None:
    """A ring of another host is taken for alive while it is written to."""
    facts = {"host": "elsewhere", "supervisor_pid": 5, "supervisor_started_at": 6}
    for age_s, ours in ((1, False), (60, True)):
        with RingWriter(tmp_path / "memory.ring", facts) as ring:
            ring.add(Sample(time.time() - age_s))
        assert Watch(Options(("true",), str(tmp_path))).is_ours is ours


@pytest.mark.parametrize(
    ("u_mb", "usage_mb", "limit_at", "expected_mb"),
    [
        ((100, 140), (120, 160), "/job", 20),
        ((100, 100), (120, 200), "/job", 40),  # what U is made of is added up late
        ((100, 100), (120, 90), "/job", 0),
        ((100, None), (120, None), "/job", 0),
        ((100, 900), (120, 900), "/other", 0),
    ],
)
def test_growth_is_of_u_or_of_all_that_is_charged(
    u_mb: tuple[int, int | None], usage_mb: tuple[int, int | None], limit_at: str, expected_mb: int
) -> None:
    def at(time_s: float, u: int | None, usage: int | None, path: str) -> Look:
        amounts = {
            name: None if amount is None else amount << 20
            for name, amount in (("unreclaimable_bytes", u), ("usage_bytes", usage))
        }
        job = Cgroup(1, path, limit_bytes=1 << 30, limit_at=path)
        return Look(dataclasses.replace(sample(0, 1), time_s=time_s, **amounts), (), job, 64 << 30)

    before = at(10.0, u_mb[0], usage_mb[0], "/job")
    after = at(12.0, u_mb[1], usage_mb[1], limit_at)
    assert growth_bytes_per_s(before, after) == expected_mb << 20
    assert growth_bytes_per_s(None, after) == 0
    assert growth_bytes_per_s(before, before) == 0
