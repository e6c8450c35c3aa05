"""`python -m memory`: the screen, its JSON, /dev/shm, GPUs of others, and what Slurm says."""

from __future__ import annotations

import dataclasses
import json
import mmap
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from fake_gpus import fake_nvml, gpu, no_nvml

from memory import Gpu
from memory.accounting.slurm_environment import SlurmWords, environment_of, read_slurm
from memory.measure import dev_shm
from memory.measure.dev_shm import DevShm, ShmFile, read_dev_shm
from memory.measure.gpus import GpuProcess, read_gpus
from memory.measure.limits import processes_of, read_limits, read_rlimits
from memory.show.here_lines import lines
from memory.show.machine_details import read_details
from memory.show.screen import wrapped
from tests.golden_text import Golden

ROOT = Path(__file__).parents[3]
MB, GB = 1 << 20, 1 << 30
PID = 4_000_000
needs_shm = pytest.mark.skipif(
    not (Path("/dev/shm").is_dir() and Path("/proc/self/maps").exists()), reason="no /dev/shm, or no /proc"
)


def here(*arguments: str, code: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "memory", *arguments]
    if code:
        command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=240, env=os.environ | environment
    )


def test_one_screen_without_a_command() -> None:
    done = here()
    assert (done.returncode, done.stderr) == (0, "")
    assert "python -m memory " in done.stdout.splitlines()[-1]
    assert "\x1b" not in done.stdout


def test_of_a_process_and_its_children() -> None:
    code = "import os, time; held = bytearray(b'x') * (32 << 20)\nprint(1, flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        child.stdout.readline()
        try:
            done = here("--pid", str(child.pid), "--json")
            screen = here("--pid", str(child.pid))
        finally:
            child.communicate("\n")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["version"] == 1
    assert found["processes_of"] == "process"
    assert found["processes"][0]["pid"] == child.pid
    if found["processes"][0]["anon_bytes"] is not None:
        assert found["processes"][0]["anon_bytes"] > 32 * MB
        assert found["processes"][0]["pss_bytes"] > 32 * MB
    assert found["snapshot"]["limit_bytes"] > 0
    assert f"{child.pid}  python" in screen.stdout
    assert screen.stdout.splitlines()[-1].endswith(f" watch --pid {child.pid}")


def test_every_key_of_the_json_stands_on_its_page() -> None:
    page = (ROOT / "docs" / "memory-here.md").read_text()
    found = json.loads(here("--json").stdout)
    assert [key for key in found if f"`{key}`" not in page] == []


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="no /proc to know processes by")
def test_a_process_that_is_not_there_is_the_users_to_mend(golden: Golden) -> None:
    done = here("--pid", "2000000000")
    assert (done.returncode, done.stdout) == (2, "")
    golden.text(done.stderr)


def test_without_proc_a_process_is_known_by_a_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    from memory.commands import here as command

    monkeypatch.setattr(command, "exists", lambda path: False)
    assert command._lives(os.getpid())
    assert not command._lives(2_000_000_000)
    assert not command._lives(1 << 80)
    assert not command._lives(-os.getpgrp())


def test_help_has_examples_and_options_go_to_here() -> None:
    done = here("here", "--help")
    assert done.returncode == 0
    assert "python -m memory --pid" in done.stdout
    assert "here" in here("--help").stdout
    assert here("--nonsense").returncode == 2


def test_neither_torch_nor_numpy_is_needed() -> None:
    code = (
        "import sys\nfor name in ('torch', 'numpy', 'psutil', 'pynvml'): sys.modules[name] = None\n"
        "from memory.__main__ import main\nsys.exit(main([]))\n"
    )
    done = here(code=code)
    assert done.returncode == 0, done.stderr


@pytest.mark.privileged
def test_a_user_who_may_not_look_is_told_so() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to become somebody else")
    code = (  # imported first: the interpreter's folder may be closed to others
        "import locale, os, psutil\n"
        "from memory.show.machine_details import read_details\nfrom memory.show.here_lines import lines\n"
        "read_details(); os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "found = read_details(); lines(found); print(found.dev_shm.unreadable_processes)\n"
    )
    done = here(code=code)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 0


@contextmanager
def shm_file(name: str, megabytes: int) -> Iterator[Path]:
    path = Path("/dev/shm") / f"highwater_test_{os.getpid()}_{name}"
    path.write_bytes(b"x" * (megabytes * MB))
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def shm_states(path: str) -> tuple[bool | None, bool | None]:
    """Whether the file in /dev/shm is unused, and whether it is stale."""
    (file,) = (file for file in read_dev_shm().files if file.path == path)
    return file.is_unused, file.is_stale


@needs_shm
def test_what_no_living_process_uses_in_dev_shm_is_unused() -> None:
    """Not stale: this process is older, and may have put it there to read it later."""
    with shm_file("stale", 3) as stale, shm_file("mapped", 2) as mapped, shm_file("open", 1) as opened:
        with open(mapped, "r+b") as file:
            held = mmap.mmap(file.fileno(), 0)
        with open(opened, "rb"):
            found = {file.path: file for file in read_dev_shm().files}
        held.close()
        later = {file.path: file for file in read_dev_shm().files}
    assert (found[str(stale)].is_unused, found[str(stale)].is_stale) == (True, None)
    assert found[str(stale)].bytes == 3 * MB
    assert (found[str(mapped)].used_by, found[str(opened)].used_by) == ((os.getpid(),), (os.getpid(),))
    assert (found[str(mapped)].is_unused, found[str(mapped)].is_stale) == (False, False)
    assert later[str(mapped)].is_unused


@needs_shm
def test_a_killed_owner_leaves_a_stale_file_and_the_screen_says_how_to_remove_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the pid in its name, as torch's; what was written a moment ago may yet be on its way."""
    code = (
        "import mmap, os; path = f'/dev/shm/torch_{os.getpid()}_0'\n"
        "open(path, 'wb').write(bytes(2 << 20)); f = open(path, 'r+b'); m = mmap.mmap(f.fileno(), 0)\n"
        "print(path, flush=True); os.kill(os.getpid(), 9)"
    )
    killed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    path = Path(killed.stdout.strip())
    try:
        assert killed.returncode == -9
        assert shm_states(str(path)) == (True, None)
        assert f"rm {path}" not in here("--all").stdout
        monkeypatch.setattr(dev_shm, "_YOUNG_S", -1.0)
        assert shm_states(str(path)) == (True, True)
        assert "    rm /dev/shm/" in "\n".join(lines(read_details(os.getpid()), every=True))
    finally:
        path.unlink(missing_ok=True)


@needs_shm
def test_what_a_live_job_has_put_there_to_read_later_is_not_advised_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Copied by a process that has ended, for one that lives; also with the time of the file it was of."""
    monkeypatch.setattr(dev_shm, "_YOUNG_S", -1.0)
    with shm_file("staged", 2) as path:
        subprocess.run(["cp", "-p", sys.executable, str(path)], check=True)
        os.utime(path, (1, 1))
        screen = "\n".join(lines(read_details(os.getpid()), every=True))
        assert shm_states(str(path)) == (True, None)
    assert str(path) in screen
    assert str(path) not in screen.partition("    rm ")[2]


@pytest.mark.parametrize(
    ("name", "began_later", "young", "is_stale"),
    [
        ("data.npy", True, False, True), ("data.npy", False, False, None), ("data.npy", True, True, None),
        ("torch_77_1_0", False, False, True), ("torch_12_1_0", False, False, None),
        ("torch_12_1_0", True, False, None), ("imagenet_2012", False, False, None),
        ("joblib_memmapping_folder_77_ab/x.pkl", False, False, True),
    ],
)  # fmt: skip
def test_a_file_is_stale_where_nobody_who_lives_can_have_put_it_there(
    tree, monkeypatch: pytest.MonkeyPatch, name: str, began_later: bool, young: bool, is_stale: bool | None
) -> None:
    monkeypatch.setattr(dev_shm, "_YOUNG_S", 60.0 if young else -1.0)
    tree.write(f"dev/shm/{name}", b"x" * 8192)
    ticks = os.sysconf("SC_CLK_TCK")
    now = int(ticks * time.clock_gettime(time.CLOCK_BOOTTIME))
    at = now + (1 if began_later else -1) * 100 * ticks
    for pid, began in ((1, 1), (12, at), (PID, now + 100 * ticks)):
        tree.write(f"proc/{pid}/stat", f"{pid} (a) b) S 0" + " 0" * 17 + f" {began} 0\n")
        tree.write(f"proc/{pid}/maps", "")
    (file,) = read_dev_shm(str(tree.root)).files
    assert (file.is_unused, file.is_stale) == (True, is_stale)


@needs_shm
def test_files_without_a_name_are_held_by_somebody() -> None:
    with shm_file("gone", 1) as path, open(path, "rb"):
        path.unlink()
        assert os.getpid() in read_dev_shm().deleted_but_held


def test_dev_shm_of_a_tree(tree) -> None:
    assert read_dev_shm(str(tree.root)) is None
    tree.write("dev/shm/torch_1", b"x" * 8192)
    tree.write("dev/shm/sem.mp-x", b"x")
    tree.write(f"proc/{PID}/maps", "7f00-7f01 rw-s 00000000 00:19 5  /dev/shm/torch_1\n")
    tree.write("proc/12/status", "Name:\tother\n")  # neither its maps nor its descriptors can be read
    found = read_dev_shm(str(tree.root))
    assert found.unreadable_processes == 1
    files = {file.path: file for file in found.files}
    assert files["/dev/shm/torch_1"].used_by == (PID,)
    assert (files["/dev/shm/sem.mp-x"].is_unused, files["/dev/shm/sem.mp-x"].is_stale) == (None, None), (
        "that other process may use it"
    )
    assert found.total_bytes >= found.used_bytes > 0


@pytest.mark.parametrize(("total_mb", "told"), [(64, True), (2048, False)])
def test_a_small_dev_shm_is_told(total_mb: int, told: bool) -> None:
    """What a container gets where nobody asks for more."""
    details = dataclasses.replace(read_details(os.getpid()), dev_shm=DevShm(total_mb * MB, MB, (), ()))
    assert ("  ! " in "\n".join(lines(details))) is told


def test_the_processes_of_a_cgroup_and_of_those_below(tree) -> None:
    tree.membership("0::/job/step/task\n", "/ /sys/fs/cgroup cgroup2 rw")
    for path, pids in (
        ("job", ""),
        ("job/step", "11\n"),
        ("job/step/task", "12\n13\n"),
        ("job/other", "14\n"),
    ):
        tree.v2(f"sys/fs/cgroup/{path}", limit=GB if path == "job" else "max")
        tree.write(f"sys/fs/cgroup/{path}/cgroup.procs", pids)
    assert processes_of(PID, "/job", str(tree.root)) == (11, 12, 13, 14)
    assert processes_of(PID, "/job/step/task", str(tree.root)) == (12, 13)
    assert processes_of(PID, "/elsewhere", str(tree.root)) == ()
    assert processes_of(PID + 1, "/job", str(tree.root)) == ()
    assert [level.limit_bytes for level in read_limits(PID, str(tree.root))] == [None, None, GB]


def test_limits_of_the_process_itself(tree) -> None:
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_DATA, (1 << 40, resource.RLIM_INFINITY))\n"
        "from memory.measure.limits import read_rlimits; import os; print(read_rlimits(os.getpid()))"
    )
    if Path("/proc/self/limits").exists():
        printed = here(code=code).stdout
        assert f"'data_bytes': {1 << 40}" in printed
        assert "'as_bytes': None" in printed
    tree.write(f"proc/{PID}/limits", "Limit   Soft\nMax data size     garbage\nMax address space\n")
    assert read_rlimits(PID, str(tree.root)) == {}


def test_what_slurm_says() -> None:
    assert read_slurm({}) is None
    assert read_slurm({}, "/user.slice") is None
    assert read_slurm({}, "/slurm/uid_0/job_7/step_batch/task_0") == SlurmWords(
        "7", "batch", from_environment=False
    )
    found = read_slurm(
        {
            "SLURM_JOB_ID": "8", "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "3", "SLURM_STEP_ID": "0",
            "SLURM_MEM_PER_NODE": "2048", "SLURM_JOB_END_TIME": "1700000000", "SLURMD_NODENAME": "n1",
        }
    )  # fmt: skip
    assert (found.job_id, found.step_id, found.requested_bytes) == ("7_3", "0", 2 * GB)
    assert (found.end_time_s, found.requested_as, found.node) == (1.7e9, "--mem", "n1")
    by_cpu = read_slurm({"SLURM_JOB_ID": "8", "SLURM_MEM_PER_CPU": "512", "SLURM_CPUS_ON_NODE": "4"})
    assert (by_cpu.requested_bytes, by_cpu.requested_as) == (2 * GB, "--mem-per-cpu x 4")
    whole_node = read_slurm({"SLURM_JOB_ID": "8", "SLURM_MEM_PER_NODE": "0"})
    assert whole_node.requested_bytes is None
    garbage = read_slurm({"SLURM_JOB_ID": "8", "SLURM_MEM_PER_CPU": "x", "SLURM_JOB_END_TIME": "soon"})
    assert (garbage.requested_bytes, garbage.end_time_s) == (None, None)


def test_in_a_job_the_screen_tells_what_was_asked_for_and_goes_on_to_watch_it(golden: Golden) -> None:
    end = str(int(time.time()) + 7300)
    job = {"SLURM_JOB_ID": "42", "SLURM_MEM_PER_NODE": "2048", "SLURM_JOB_END_TIME": end}
    text = here(**job).stdout
    golden.text("\n".join(line for line in text.splitlines() if "--mem" in line or "--job" in line))
    array = {"SLURM_JOB_ID": "9", "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "3"}
    assert here(**array).stdout.splitlines()[-1].endswith(" watch --job 9")


def test_the_environment_of_another_process(tree) -> None:
    tree.write(f"proc/{PID}/environ", b"A=1\0B=x=y\0garbage\0")
    assert environment_of(PID, str(tree.root)) == {"A": "1", "B": "x=y"}
    assert environment_of(PID + 1, str(tree.root)) == {}
    assert environment_of(os.getpid()) is os.environ


BUSY = gpu(0, "H200", uuid="GPU-1", used=50 * GB, processes=[(11, 10 * GB), (PID, 40 * GB), (13, None)])


def test_other_processes_on_the_gpu(tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = str(tree.root)
    fake_nvml(tmp_path, monkeypatch, BUSY)
    assert read_gpus(root) == ((), None), "no driver, nothing to say"
    tree.write("dev/nvidiactl", "")
    tree.write(f"proc/{PID}/comm", "python\n")
    (found,), note = read_gpus(root)
    assert (found.name, found.uuid, found.used_bytes, found.total_bytes) == (
        "H200",
        "GPU-1",
        50 * GB,
        80 * GB,
    )
    assert found.processes == (
        GpuProcess(PID, "python", 40 * GB), GpuProcess(11, "", 10 * GB), GpuProcess(13, "", None),
    )  # fmt: skip
    assert note is None


@pytest.mark.parametrize("fails", ["init", "memory", "missing"])
def test_a_driver_that_does_not_answer(
    tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    tree.write("dev/nvidiactl", "")
    if fails == "missing":
        no_nvml(tmp_path, monkeypatch)
    else:
        fake_nvml(tmp_path, monkeypatch, BUSY, fails=(fails,))
    devices, note = read_gpus(str(tree.root))
    assert devices == ()
    assert note is not None


def test_one_question_that_fails_costs_that_answer_alone(
    tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.write("dev/nvidiactl", "")
    fake_nvml(tmp_path, monkeypatch, BUSY, fails=("processes", "name"))
    (found,), _ = read_gpus(str(tree.root))
    assert (found.used_bytes, found.name, found.processes) == (50 * GB, "GPU", ())


def test_a_narrow_terminal_gets_whole_words_below_each_other(golden: Golden) -> None:
    row = "page cache  400 MB, given back when memory is short: usage (893 MB, peak 893 MB) includes it"
    note, table = (
        "  limits above /a: this container does not see them",
        "    354 MB       0 B    2.2 MB  python",
    )
    assert list(wrapped(table, 20)) == [table]
    assert list(wrapped(row, 200)) == [row]
    golden.text("\n".join([*wrapped(row, 60), *wrapped(note, 30)]))


def test_the_whole_screen_of_a_job_with_a_neighbour_on_its_gpu(
    make_tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    make_tree(tmp_path).unpack(ROOT / "tests/golden/kernels/slurm-24.11-v2.txt")
    tree = make_tree(tmp_path)
    step = "sys/fs/cgroup/system.slice/slurmstepd.scope/job_42/step_0/user"
    tree.write(f"{step}/memory.high", f"{1200 * MB}\n")
    tree.write(f"{step}/memory.pressure", "full avg10=31.00 avg60=1.00 avg300=0.00 total=9\n")
    tree.write(f"{step}/memory.oom.group", "1\n")
    tree.write("dev/nvidiactl", "")
    tree.write(f"proc/{PID}/environ", "SLURM_JOB_ID=42\0SLURM_MEM_PER_NODE=2048\0")
    fake_nvml(tmp_path, monkeypatch, BUSY)
    monkeypatch.setattr("platform.node", lambda: "n01")
    details = read_details(PID, str(tmp_path), pss=False)
    stale = ShmFile("/dev/shm/a b", GB, 0, time.time() - 7200, (), True, True)
    own = Gpu(0, "H200", 41 * GB, 45 * GB, 52 * GB, 139 * GB)
    details = dataclasses.replace(
        details,
        at=dataclasses.replace(details.at, gpu=own),
        gpu_largest_free_bytes=GB,
        dev_shm=DevShm(4 * GB, 3900 * MB, (stale,), (7,)),
        rlimits={"as_bytes": 8 * GB, "data_bytes": None},
    )
    golden.text("\n".join(lines(details)))


@pytest.mark.parametrize(
    ("membership", "mounts", "unseen"),
    [
        ("4:memory:/job_9/task_0\n", "", "/job_9/task_0"),
        ("0::/job_9/task_0\n", "", "/job_9/task_0"),
        ("0::/\n", "", "/"),  # a namespace of its own may begin anywhere
        ("0::/../other\n", "/ /sys/fs/cgroup cgroup2 rw", "/../other"),
        ("0::/user.slice\n", "/ /sys/fs/cgroup cgroup2 rw", None),  # there, without the controller of memory
        ("4:memory:/\n", "/ /sys/fs/cgroup/memory cgroup rw,memory", None),
        ("3:cpu:/job_9\n", "", None),
    ],
)
def test_a_cgroup_that_cannot_be_seen_may_have_a_limit(
    tree, membership: str, mounts: str, unseen: str | None, golden: Golden
) -> None:
    tree.write("sys/fs/cgroup/user.slice/cgroup.procs", "")
    tree.write("sys/fs/cgroup/memory/release_agent", "")
    tree.membership(membership, mounts)
    found = read_details(PID, str(tree.root))
    assert (found.at.limit_at, found.unseen_cgroup) == ("host", unseen)
    limit = next(line for line in lines(found) if line.startswith("limit"))
    if membership in ("0::/job_9/task_0\n", "0::/user.slice\n"):
        golden.text("\n".join([limit, *found.not_known]))
