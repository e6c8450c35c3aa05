"""`python -m memory`: its screen and JSON, /dev/shm, GPUs of others, and Slurm's environment."""

from __future__ import annotations

import argparse
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

from memory.accounting.slurm_environment import SlurmWords, environment_of, read_slurm
from memory.commands import here as command
from memory.measure import dev_shm
from memory.measure.dev_shm import DevShm, ShmFile, read_dev_shm
from memory.measure.gpus import GpuProcess, read_gpus
from memory.measure.limits import processes_of, read_limits, read_rlimits
from memory.show.here_screen import here_screen
from memory.show.machine_details import Details, read_details
from memory.show.screen import Line, Screen, draw
from tests.golden_text import Golden

ROOT = Path(__file__).parents[3]
MB, GB = 1 << 20, 1 << 30
PID = 4_000_000
needs_shm = pytest.mark.skipif(
    not (Path("/dev/shm").is_dir() and Path("/proc/self/maps").exists()), reason="no /dev/shm, or no /proc"
)


def here(*arguments: str, code: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    typed = [sys.executable, "-m", "memory", *arguments]
    if code:
        typed = [sys.executable, "-c", code, *arguments]
    return subprocess.run(
        typed, cwd=ROOT, capture_output=True, text=True, timeout=240, env=os.environ | environment
    )


def text_of(details: Details) -> str:
    return "\n".join(text for text, _ in draw(here_screen(details), everything=True))


def test_a_process_and_its_children() -> None:
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
    assert "\x1b" not in screen.stdout
    assert screen.stdout.splitlines()[-1].endswith(f" watch --pid {child.pid}")


def test_docs_explain_every_key_of_the_json() -> None:
    page = (ROOT / "docs" / "memory.md").read_text()
    found = json.loads(here("--json").stdout)
    assert [key for key in found if f"`{key}`" not in page] == []


def test_a_process_that_does_not_exist_is_refused(golden: Golden) -> None:
    with golden.refused("no-such-process"):
        command.run(argparse.Namespace(pid=2_000_000_000, json=False, pss=None, all=False))


def test_only_the_standard_library_and_rich_are_needed() -> None:
    code = (
        "import sys\nfor name in ('torch', 'numpy', 'psutil', 'pynvml'): sys.modules[name] = None\n"
        "from memory.__main__ import main\nsys.exit(main([]))\n"
    )
    done = here(code=code)
    assert done.returncode == 0, done.stderr


@pytest.mark.privileged
def test_processes_of_other_users_are_counted_as_unreadable() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to become another user")
    code = (  # imported first: the interpreter's folder may be closed to others
        "import locale, os, psutil\n"
        "from memory.show.machine_details import read_details\n"
        "read_details(); os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "found = read_details(); print(found.dev_shm.unreadable_processes)\n"
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
def test_files_in_dev_shm_without_a_user_are_unused() -> None:
    """Not stale: this process is older, and can have put it there to read it later."""
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
def test_the_screen_shows_how_to_remove_a_file_of_a_killed_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the pid in its name, as torch writes it. A file written a moment ago is not stale yet."""
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
        assert f"rm {path}" not in text_of(read_details(os.getpid()))
        monkeypatch.setattr(dev_shm, "_YOUNG_S", -1.0)
        assert shm_states(str(path)) == (True, True)
        assert "rm /dev/shm/" in text_of(read_details(os.getpid()))
    finally:
        path.unlink(missing_ok=True)


@needs_shm
def test_a_file_that_can_be_read_later_is_not_to_be_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Copied by a process that has ended, for one that lives, with the time of the original file."""
    monkeypatch.setattr(dev_shm, "_YOUNG_S", -1.0)
    with shm_file("staged", 2) as path:
        subprocess.run(["cp", "-p", sys.executable, str(path)], check=True)
        os.utime(path, (1, 1))
        screen = text_of(read_details(os.getpid()))
        assert shm_states(str(path)) == (True, None)
    assert str(path) in screen
    assert not [line for line in screen.splitlines() if " rm " in line and str(path) in line]


@pytest.mark.parametrize(
    ("name", "began_later", "young", "is_stale"),
    [
        ("data.npy", True, False, True), ("data.npy", False, False, None), ("data.npy", True, True, None),
        ("torch_77_1_0", False, False, True), ("torch_12_1_0", False, False, None),
        ("torch_12_1_0", True, False, None), ("imagenet_2012", False, False, None),
        ("joblib_memmapping_folder_77_ab/x.pkl", False, False, True),
    ],
)  # fmt: skip
def test_a_file_is_stale_if_no_live_process_can_have_written_it(
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
def test_processes_that_hold_removed_files() -> None:
    with shm_file("gone", 1) as path, open(path, "rb"):
        path.unlink()
        assert os.getpid() in read_dev_shm().deleted_but_held


def test_a_file_that_an_unreadable_process_can_use(tree) -> None:
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


@pytest.mark.parametrize(("total_mb", "warns"), [(64, True), (2048, False)])
def test_a_small_dev_shm_is_a_warning(total_mb: int, warns: bool) -> None:
    details = dataclasses.replace(read_details(os.getpid()), dev_shm=DevShm(total_mb * MB, MB, (), ()))
    assert ("\n! " in text_of(details)) is warns


def test_processes_of_a_cgroup_and_of_those_below_it(tree) -> None:
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


@pytest.mark.parametrize(
    ("line", "limits"),
    [
        ("Max data size             1048576    unlimited    bytes", {"data_bytes": MB}),
        ("Max address space         unlimited  unlimited    bytes", {"as_bytes": None}),
        ("Max data size     garbage", {}),
        ("Max address space", {}),
    ],
)
def test_limits_of_the_process_itself(tree, line: str, limits: dict[str, int | None]) -> None:
    tree.write(f"proc/{PID}/limits", f"Limit   Soft\n{line}\n")
    assert read_rlimits(PID, str(tree.root)) == limits


@pytest.mark.parametrize(
    ("memory", "requested"),
    [
        ({"SLURM_MEM_PER_NODE": "2048"}, (2 * GB, "--mem")),
        ({"SLURM_MEM_PER_CPU": "512", "SLURM_CPUS_ON_NODE": "4"}, (2 * GB, "--mem-per-cpu x 4")),
        ({"SLURM_MEM_PER_NODE": "0"}, (None, None)),
        ({"SLURM_MEM_PER_CPU": "x"}, (None, None)),
    ],
)
def test_memory_requested_from_slurm(
    memory: dict[str, str], requested: tuple[int | None, str | None]
) -> None:
    found = read_slurm({"SLURM_JOB_ID": "8", "SLURM_JOB_END_TIME": "soon", **memory})
    assert (found.requested_bytes, found.requested_as, found.end_time_s) == (*requested, None)


def test_job_of_an_environment_or_a_cgroup() -> None:
    assert read_slurm({}, "/user.slice") is None
    assert read_slurm({}, "/slurm/uid_0/job_7/step_batch/task_0") == SlurmWords(
        "7", "batch", from_environment=False
    )
    array = {"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "3", "SLURM_STEP_ID": "0"}
    found = read_slurm(
        {**array, "SLURM_JOB_ID": "8", "SLURM_JOB_END_TIME": "1700000000", "SLURMD_NODENAME": "n1"}
    )
    assert (found.job_id, found.step_id, found.end_time_s, found.node) == ("7_3", "0", 1.7e9, "n1")


def test_the_screen_of_a_slurm_job_shows_its_request_and_how_to_watch_it(golden: Golden) -> None:
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
    assert (found.name, found.used_bytes, found.total_bytes) == ("H200", 50 * GB, 80 * GB)
    assert found.processes == (
        GpuProcess(PID, "python", 40 * GB), GpuProcess(11, "", 10 * GB), GpuProcess(13, "", None),
    )  # fmt: skip
    assert note is None


@pytest.mark.parametrize("fails", ["init", "memory", "missing", "processes"])
def test_a_driver_that_does_not_answer(
    tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    tree.write("dev/nvidiactl", "")
    if fails == "missing":
        no_nvml(tmp_path, monkeypatch)
    else:
        fake_nvml(tmp_path, monkeypatch, BUSY, fails=(fails,))
    devices, note = read_gpus(str(tree.root))
    assert [gpu.processes for gpu in devices] == ([()] if fails == "processes" else [])
    assert (note is None) == (fails == "processes")


@needs_shm
def test_all_files_of_dev_shm_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dev_shm, "_MAX_FILES", 1)
    with shm_file("one", 1), shm_file("other", 1):
        found = read_dev_shm()
        assert found is not None
        assert found.file_count >= 2 > len(found.files) == 1
        details = dataclasses.replace(read_details(os.getpid()), dev_shm=found)
    assert f" {found.file_count:,} " in text_of(details)


def test_narrow_screen_wraps_commands_and_reasons() -> None:
    rows = [
        Line("machine", "word " * 40),
        Line("!", f"rm {'/dev/shm/file ' * 12}"),
        Line("not known", "why " * 40),
    ]
    lines = [text for text, _ in draw(Screen("title", rows), columns=80, height=5)]
    assert max(map(len, lines)) <= 80
    lines = [text for text, _ in draw(Screen("title", rows), columns=80, height=10)]
    assert [line.endswith("...") for line in lines].count(True) == 1
    assert sum(line.count("/dev/shm/file") for line in lines) == 12
    assert sum(line.count("why") for line in lines) == 40


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
    details = dataclasses.replace(
        details,
        dev_shm=DevShm(4 * GB, 3900 * MB, (stale,), (7,)),
        rlimits={"as_bytes": 8 * GB, "data_bytes": None},
    )
    details = dataclasses.replace(details, processes=10 * details.processes)
    golden.text(text_of(details), "everything")
    lines = [text for text, _ in draw(here_screen(details, "next: ..."), columns=80, height=24)]
    golden.text("\n".join(lines), "80 x 24")
    assert max(map(len, lines)) <= 80
    for height in range(10, 60):
        assert len(draw(here_screen(details, "next: ..."), columns=80, height=height)) <= height


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
def test_a_cgroup_that_cannot_be_seen_can_have_a_limit(
    tree, membership: str, mounts: str, unseen: str | None, golden: Golden
) -> None:
    tree.write("sys/fs/cgroup/user.slice/cgroup.procs", "")
    tree.write("sys/fs/cgroup/memory/release_agent", "")
    tree.membership(membership, mounts)
    found = read_details(PID, str(tree.root))
    assert (found.at.limit_at, found.unseen_cgroup) == ("host", unseen)
    limit = text_of(found).splitlines()[2]
    if membership in ("0::/job_9/task_0\n", "0::/user.slice\n"):
        golden.text("\n".join([limit, *found.not_known]))
