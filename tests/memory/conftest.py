"""Small trees of /proc and /sys/fs/cgroup, as kernels and Slurm write them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

PID = 4_000_000
"""Of the process in a made-up tree: larger than any real one, so that nothing real answers for it."""

MB = 1 << 20
NO_LIMIT_V1 = 9223372036854771712


class Tree:
    """A folder that stands for `/`."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, path: str, content: str | bytes) -> Path:
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        return file

    def unpack(self, golden: Path) -> None:
        """A recorded or composed tree, all in one text file: `== /path`, then what the file there says."""
        for part in golden.read_text().split("\n== ")[1:]:
            path, _, content = part.partition("\n")
            self.write(path, content if not content or content.endswith("\n") else content + "\n")
        (self.root / "proc/self").mkdir(parents=True, exist_ok=True)

    def machine(self, total_mb: int = 65536, available_mb: int = 60000) -> None:
        self.write(
            "proc/meminfo",
            f"MemTotal:  {total_mb * 1024} kB\nMemFree: 1 kB\nMemAvailable: {available_mb * 1024} kB\n",
        )

    def process(
        self,
        pid: int = PID,
        *,
        anon_mb: int = 100,
        file_mb: int = 20,
        shmem_mb: int = 0,
        children: dict[int, list[int]] | None = None,
        state: str = "S (sleeping)",
    ) -> None:
        """children: thread id -> the processes that it forked."""
        children = {pid: []} if children is None else children
        rss = anon_mb + file_mb + shmem_mb
        self.write(
            f"proc/{pid}/status",
            f"Name:\tpython{pid}\nUmask:\t0022\nState:\t{state}\nTgid:\t{pid}\nVmPeak:\t  999999 kB\n"
            f"VmHWM:\t{2 * rss * 1024:8d} kB\nVmRSS:\t{rss * 1024:8d} kB\nRssAnon:\t{anon_mb * 1024:8d} kB\n"
            f"RssFile:\t{file_mb * 1024:8d} kB\nRssShmem:\t{shmem_mb * 1024:8d} kB\n"
            f"VmData:\t       1 kB\nVmStk:\t     132 kB\nVmSwap:\t    1024 kB\nHugetlbPages:\t       0 kB\n"
            f"Threads:\t{len(children)}\nSigQ:\t0/96365\n",
        )
        for thread, pids in children.items():
            self.write(f"proc/{pid}/task/{thread}/children", "".join(f"{child} " for child in pids))
        (self.root / "proc/self").mkdir(parents=True, exist_ok=True)

    def membership(self, text: str, mounts: str, pid: int = PID) -> None:
        """mounts: `root mount_point fstype superoptions`, one a line."""
        self.write(f"proc/{pid}/cgroup", text)
        lines = ["23 1 254:0 / / rw,relatime - ext4 /dev/vda rw"]
        for number, mount in enumerate(mounts.strip().splitlines()):
            mounted_root, mount_point, kind, options = mount.split()
            lines.append(
                f"{30 + number} 23 0:{number} {mounted_root} {mount_point} rw,nosuid shared:{number} "
                f"- {kind} {kind} {options}"
            )
        self.write("proc/self/mountinfo", "\n".join(lines) + "\n")

    def v1(
        self,
        folder: str,
        *,
        limit: int = NO_LIMIT_V1,
        rss_mb: int = 0,
        shmem_mb: int = 0,
        cache_mb: int = 0,
        kmem_mb: int = 0,
        kills: int = 0,
        effective: int = NO_LIMIT_V1,
    ) -> None:
        """A v1 cgroup; its own counters are 0, since all its memory is charged to cgroups below it."""
        self.write(f"{folder}/memory.limit_in_bytes", f"{limit}\n")
        self.write(f"{folder}/memory.usage_in_bytes", f"{(rss_mb + cache_mb + kmem_mb) * MB}\n")
        self.write(f"{folder}/memory.max_usage_in_bytes", f"{(rss_mb + cache_mb + kmem_mb + 7) * MB}\n")
        self.write(f"{folder}/memory.kmem.usage_in_bytes", f"{kmem_mb * MB}\n")
        self.write(f"{folder}/memory.oom_control", f"oom_kill_disable 0\nunder_oom 0\noom_kill {kills}\n")
        self.write(
            f"{folder}/memory.stat",
            f"cache 0\nrss 0\nshmem 0\nmapped_file 0\nhierarchical_memory_limit {effective}\n"
            f"hierarchical_memsw_limit {NO_LIMIT_V1}\ntotal_cache {cache_mb * MB}\ntotal_rss {rss_mb * MB}\n"
            f"total_rss_huge 0\ntotal_shmem {shmem_mb * MB}\ntotal_mapped_file {cache_mb * MB}\n",
        )

    def v2(
        self,
        folder: str,
        *,
        limit: int | str = "max",
        anon_mb: int = 0,
        shmem_mb: int = 0,
        file_mb: int = 0,
        kernel: str = "",
        kills: int = 0,
        peak: bool = True,
    ) -> None:
        self.write(f"{folder}/memory.max", f"{limit}\n")
        self.write(f"{folder}/memory.current", f"{(anon_mb + file_mb) * MB}\n")
        if peak:
            self.write(f"{folder}/memory.peak", f"{(anon_mb + file_mb + 7) * MB}\n")
        self.write(
            f"{folder}/memory.events",
            f"low 0\nhigh 0\nmax 12\noom {kills}\noom_kill {kills}\noom_group_kill 0\n",
        )
        self.write(
            f"{folder}/memory.stat",
            f"anon {anon_mb * MB}\nfile {file_mb * MB}\n{kernel}sock 0\n"
            f"shmem {shmem_mb * MB}\nfile_mapped 0\nanon_thp 0\n",
        )


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """A machine of 64 GB with one process and, as yet, no cgroups."""
    found = Tree(tmp_path / "machine")
    found.machine()
    found.process()
    return found


@pytest.fixture(scope="session")
def make_tree() -> type[Tree]:
    """Makes an empty tree in a folder, for tests that need many."""
    return Tree


@pytest.fixture
def small_file(tmp_path: Path) -> Callable[[int], Path]:
    """Makes a file of that many MB."""

    def make(megabytes: int) -> Path:
        path = tmp_path / "tokens.bin"
        with open(path, "wb") as file:
            for _ in range(megabytes):
                file.write(b"\x01" * MB)
        return path

    return make
