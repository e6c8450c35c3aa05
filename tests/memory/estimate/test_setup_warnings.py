"""Each harmful set-up has its warning with what to type; a machine with memory to spare has none."""

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


def warnings(setup: Setup, room: Room, root: Path) -> dict[str, str]:
    return {advice.rule: str(advice) for advice in advise(setup, room, root=str(root), pid=1)}


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


def test_plain_machine_has_no_warning(machine: Path) -> None:
    assert warnings(Setup(GB, gpu=True), PLENTY, machine) == {}
    assert advise(Setup(GB), PLENTY) == [], "this one neither"
    assert warnings(Setup(GB), Room(), machine / "nothing here") == {}


def test_memory_high_below_the_needs(machine: Path, golden: Golden) -> None:
    high = machine / "sys/fs/cgroup/job/memory.high"
    high.write_text(f"{512 * MB}\n")
    golden.text(warnings(Setup(GB), SMALL, machine)["memory_high"])
    high.write_text(f"{3 * GB}\n")
    assert warnings(Setup(GB), SMALL, machine) == {}


def test_swap(machine: Path, golden: Golden) -> None:
    meminfo = machine / "proc/meminfo"
    meminfo.write_text("MemTotal: 33554432 kB\nSwapTotal: 8388608 kB\nSwapFree: 8000000 kB\n")
    assert warnings(Setup(GB), SMALL, machine) == {}
    golden.text(warnings(Setup(4 * GB), SMALL, machine)["swap"], "needed")
    (machine / "proc/pressure").mkdir()
    (machine / "proc/pressure/memory").write_text(
        "some avg10=80.00 avg60=60.00 avg300=1.00 total=1\nfull avg10=50.00 avg60=31.00 avg300=1.00 total=1\n"
    )
    assert "50%" in warnings(Setup(GB), PLENTY, machine)["thrash"]
    meminfo.write_text("MemTotal: 33554432 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n")
    thrash = warnings(Setup(GB), PLENTY, machine)["thrash"]
    assert "50%" in thrash, "without swap too, by files"
    swapped = replace(SMALL, swapped_bytes=GB)
    golden.text(warnings(Setup(GB), swapped, machine)["swap_in_use"] + f"\n{thrash}", "used")


def test_rlimits_below_the_needs(machine: Path, golden: Golden) -> None:
    (machine / "proc/1/limits").write_text(
        f"Max data size             {512 * MB}            unlimited            bytes\n"
        f"Max address space         {100 * GB}            unlimited            bytes\n"
    )
    golden.text(warnings(Setup(GB), PLENTY, machine)["rlimit"])


def test_mapped_files_count_as_address_space(machine: Path, golden: Golden) -> None:
    (machine / "proc/1/limits").write_text(
        f"Max data size             {2 * GB}            unlimited            bytes\n"
        f"Max address space         {4 * GB}            unlimited            bytes\n"
    )
    assert warnings(Setup(GB), PLENTY, machine) == {}
    golden.text(warnings(Setup(GB, mapped_bytes=6 * GB), PLENTY, machine)["rlimit"])


def test_gpu_used_by_others(machine: Path, golden: Golden) -> None:
    room = Room(32 * GB, "host", 0, 80 * GB, 30 * GB)
    golden.text(warnings(Setup(GB, gpu=True), room, machine)["gpu_neighbours"])
    assert warnings(Setup(GB), room, machine) == {}
