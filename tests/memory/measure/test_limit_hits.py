from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from memory.files.procfs import read_number
from memory.measure.cgroup import limit_hits
from tests.memory.deaths.cgroups import version_here

V1 = Path("/sys/fs/cgroup/memory")


@pytest.mark.parametrize(
    ("files", "peak", "hits"),
    [
        ({}, 50, None),
        ({"failcnt": 3}, 100, 3),
        ({"failcnt": 0, "memsw.failcnt": 5}, 100, 5),
        ({"failcnt": 2, "memsw.failcnt": 5}, 100, 7),
        ({"failcnt": 0, "memsw.failcnt": 0}, 99, 0),
        ({"failcnt": 0, "memsw.failcnt": 0}, 100, None),
        ({"failcnt": 0}, None, 0),
    ],
)
def test_both_are_counted_and_a_limit_that_was_reached_was_met(
    tmp_path: Path, files: dict[str, int], peak: int | None, hits: int | None
) -> None:
    for name, count in files.items():
        (tmp_path / f"memory.{name}").write_text(f"{count}\n")
    assert limit_hits(str(tmp_path), peak, 100) == hits


@pytest.mark.privileged
@pytest.mark.parametrize("with_swap", [False, True])
def test_a_limit_that_killed_is_never_told_as_never_met(with_swap: bool) -> None:
    if version_here() != 1 or not (V1 / "memory.memsw.failcnt").exists():
        pytest.skip("needs a v1 memory cgroup that counts swap")
    group = V1 / "highwater_limit_hits"
    try:
        group.mkdir()
        for name in ("limit_in_bytes", "memsw.limit_in_bytes")[: 1 + with_swap]:
            (group / f"memory.{name}").write_text(str(100 << 20))
    except OSError as error:
        pytest.skip(f"no cgroup may be made here: {error}")
    try:
        code = f"open('{group}/cgroup.procs', 'w').write('0'); held = b'x' * (300 << 20)"
        assert subprocess.run([sys.executable, "-c", code], timeout=240).returncode == -9
        peak = read_number(f"{group}/memory.max_usage_in_bytes")
        assert limit_hits(str(group), peak, 100 << 20) != 0
    finally:
        group.rmdir()
