"""What is known to hurt is told in a line with what to type; on a machine with memory to spare nothing is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from memory.estimate.available import Room
from memory.estimate.setup_warnings import Setup, advise
from tests.golden_text import Golden

GB = 1 << 30
MB = 1 << 20
PLENTY = Room(32 * GB, "host", 8 * GB)
SMALL = Room(2 * GB, "/job", 0)
NONE: dict[str, str] = {"PATH": "/bin"}


def told(setup: Setup, room: Room, root: Path, **environment: str) -> dict[str, str]:
    return {
        advice.rule: str(advice)
        for advice in advise(setup, room, root=str(root), pid=1, environment=NONE | environment)
    }


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """/proc and /sys of a machine with cgroup v2, where process 1 is in /job."""
    files = {
        "proc/1/cgroup": "0::/job\n",
        "proc/self/mountinfo": "30 20 0:1 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
        "proc/meminfo": "MemTotal: 33554432 kB\nMemFree: 1 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n",
        "proc/1/limits": "Max data size             unlimited            unlimited            bytes\n"
        "Max address space         unlimited            unlimited            bytes\n",
        "sys/fs/cgroup/job/memory.max": f"{2 * GB}\n",
        "sys/fs/cgroup/job/memory.high": "max\n",
    }
    for name, content in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return tmp_path


def test_a_plain_machine_hears_nothing(machine: Path) -> None:
    assert told(Setup(GB, gpu=True), PLENTY, machine) == {}
    assert advise(Setup(GB), PLENTY, environment=NONE) == [], "this one neither"
    assert told(Setup(GB), Room(), machine / "nothing here") == {}


def test_mapped_files_where_rss_is_what_kills(machine: Path, golden: Golden) -> None:
    setup = Setup(5 * GB, mapped_bytes=4 * GB)
    polled = Room(4 * GB, "--mem (Slurm polls RSS)", counts_rss=True)
    found = told(setup, polled, machine)["rss_polling"]
    golden.text(found)
    assert told(setup, replace(polled, limit_bytes=8 * GB), machine) == {}
    assert "rss_polling" not in told(setup, SMALL, machine), "page cache kills nobody elsewhere"


def test_memory_high_below_what_it_needs(machine: Path, golden: Golden) -> None:
    high = machine / "sys/fs/cgroup/job/memory.high"
    high.write_text(f"{512 * MB}\n")
    golden.text(told(Setup(GB), SMALL, machine)["memory_high"])
    high.write_text(f"{3 * GB}\n")
    assert told(Setup(GB), SMALL, machine) == {}


def test_swap(machine: Path, golden: Golden) -> None:
    meminfo = machine / "proc/meminfo"
    meminfo.write_text("MemTotal: 33554432 kB\nSwapTotal: 8388608 kB\nSwapFree: 8000000 kB\n")
    assert told(Setup(GB), SMALL, machine) == {}, "swap that nobody needs"
    golden.text(told(Setup(4 * GB), SMALL, machine)["swap"], "needed")
    (machine / "proc/pressure").mkdir()
    (machine / "proc/pressure/memory").write_text(
        "some avg10=80.00 avg60=60.00 avg300=1.00 total=1\nfull avg10=50.00 avg60=31.00 avg300=1.00 total=1\n"
    )
    assert "31%" in told(Setup(GB), PLENTY, machine)["thrash"]
    meminfo.write_text("MemTotal: 33554432 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n")
    thrash = told(Setup(GB), PLENTY, machine)["thrash"]
    assert "31%" in thrash, "without swap too, by files"
    (machine / "sys/fs/cgroup/job/memory.swap.current").write_text(f"{GB}\n")
    golden.text(told(Setup(GB), SMALL, machine)["swap_in_use"] + f"\n{thrash}", "used")


def test_swap_is_looked_for_where_the_limit_stands(machine: Path) -> None:
    """A task's own cgroup, which Slurm has just made below it, is empty."""
    job = machine / "sys/fs/cgroup/job"
    (job / "task_0").mkdir()
    (job / "task_0/memory.max").write_text("max\n")
    (job / "task_0/memory.swap.current").write_text("0\n")
    (job / "memory.swap.current").write_text(f"{GB}\n")
    for membership in (machine / "proc").glob("*/cgroup"):
        membership.write_text("0::/job/task_0\n")
    assert "1.0 GB" in told(Setup(GB), SMALL, machine)["swap_in_use"]


def test_a_limit_far_below_what_slurm_was_asked_for(machine: Path, golden: Golden) -> None:
    by_node = told(Setup(GB), SMALL, machine, SLURM_MEM_PER_NODE="32768")["limit_below_mem"]
    golden.text(by_node)
    assert told(Setup(GB), SMALL, machine, SLURM_MEM_PER_NODE="2048") == {}
    assert told(Setup(GB), SMALL, machine, SLURM_MEM_PER_NODE="garbage") == {}
    by_gpu = {"SLURM_MEM_PER_GPU": "16384", "SLURM_GPUS_ON_NODE": "2"}
    assert told(Setup(GB), SMALL, machine, **by_gpu)["limit_below_mem"] == by_node
    by_cpu = {"SLURM_MEM_PER_CPU": "8192", "SLURM_CPUS_ON_NODE": "4"}
    assert told(Setup(GB), SMALL, machine, **by_cpu)["limit_below_mem"] == by_node


def test_a_group_kill_is_told_where_it_is_close(machine: Path) -> None:
    (machine / "sys/fs/cgroup/job/memory.oom.group").write_text("1\n")
    assert "oom_group" in told(Setup(int(1.95 * GB)), SMALL, machine)
    assert told(Setup(GB), SMALL, machine) == {}


def test_rlimits_below_what_it_needs(machine: Path, golden: Golden) -> None:
    (machine / "proc/1/limits").write_text(
        f"Max data size             {512 * MB}            unlimited            bytes\n"
        f"Max address space         {100 * GB}            unlimited            bytes\n"
    )
    golden.text(told(Setup(GB), PLENTY, machine)["rlimit"])


def test_files_that_are_mapped_count_against_the_address_space(machine: Path, golden: Golden) -> None:
    (machine / "proc/1/limits").write_text(
        f"Max data size             {2 * GB}            unlimited            bytes\n"
        f"Max address space         {4 * GB}            unlimited            bytes\n"
    )
    assert told(Setup(GB), PLENTY, machine) == {}
    golden.text(told(Setup(GB, mapped_bytes=6 * GB), PLENTY, machine)["rlimit"])


def test_a_gpu_that_others_use(machine: Path, golden: Golden) -> None:
    room = Room(32 * GB, "host", 0, 80 * GB, 30 * GB)
    golden.text(told(Setup(GB, gpu=True), room, machine)["gpu_neighbours"])
    assert told(Setup(GB), room, machine) == {}
