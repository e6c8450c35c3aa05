"""A requested reader is taken, and the choice of auto has a reason."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from data_loading.dataset.orders import Shuffled
from data_loading.dataset.windows import Windows
from data_loading.readers import choose_reader as choose
from data_loading.readers.choose_reader import ReaderOptions, open_reader
from data_loading.readers.extents import Extents, extents_of
from data_loading.readers.read_plan import Plan
from tests.golden_text import Golden


@pytest.fixture
def extents(tmp_path: Path) -> Extents:
    np.save(tmp_path / "a.npy", np.arange(100, dtype="<u2"))
    return extents_of(np.load(tmp_path / "a.npy", mmap_mode="r"))


@pytest.mark.parametrize(
    ("kind", "name"),
    [("ext4", "mmap"), ("nfs4", "pread"), ("lustre", "pread"), ("fuse.sshfs", "pread"), (None, "mmap")],
)
def test_network_file_systems_are_read_not_mapped(
    kind: str | None, name: str, extents: Extents, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    monkeypatch.setattr(choose, "file_system_of", lambda path: kind)
    reader, why = open_reader(extents, ReaderOptions())
    assert reader.name == name
    golden.text(why, numbers=False)


SLURM = """#!/bin/sh
echo 'Configuration data as of 2026-11-21T20:00:00'
echo 'JobAcctGatherParams     = {}'
echo 'JobAcctGatherType       = jobacct_gather/linux'
"""


@pytest.mark.parametrize(
    ("parameters", "in_job", "counts"),
    [("OverMemoryKill", True, True), ("OverMemoryKill,UsePss", True, False), ("(null)", True, False),
     ("NoOverMemoryKill", True, False),
     ("OverMemoryKill", False, False)],
)  # fmt: skip
def test_a_cluster_that_counts_mapped_pages_gets_pread(
    parameters: str, in_job: bool, counts: bool, extents: Extents, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    program = tmp_path / "scontrol"
    program.write_text(SLURM.format(parameters))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(choose, "file_system_of", lambda path: "ext4")
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    if in_job:
        monkeypatch.setenv("SLURM_JOB_ID", "7")
    choose.slurm_counts_page_cache.cache_clear()
    assert choose.slurm_counts_page_cache() is counts
    reader, why = open_reader(extents, ReaderOptions())
    assert reader.name == ("pread" if counts else "mmap")
    assert ("UsePss" in why) is counts
    choose.slurm_counts_page_cache.cache_clear()


def test_requested_reader_is_taken(extents: Extents, golden: Golden) -> None:
    for name in ("mmap", "pread", "memory"):
        reader, why = open_reader(extents, ReaderOptions(name))
        assert reader.name == name
        golden.text(why, numbers=False)
        assert reader.gather(np.array([97]), 3).tolist() == [[97, 98, 99]]
    reader, why = open_reader(extents, ReaderOptions(max_resident_bytes=500_000_000))
    golden.text(why, numbers=False)
    reader, why = open_reader(extents_of(np.arange(9)), ReaderOptions())
    golden.text(why, numbers=False)


def test_wrong_choices_are_refused(extents: Extents, golden: Golden) -> None:
    with golden.refused("reader-unknown"):
        open_reader(extents, ReaderOptions("map"))
    with golden.refused("max-resident-without-mmap"):
        open_reader(extents, ReaderOptions("pread", max_resident_bytes=10))
    with golden.refused("reader-needs-file"):
        open_reader(extents_of(np.arange(9)), ReaderOptions("pread"))


def test_set_larger_than_memory_is_read_not_mapped(
    extents: Extents, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    monkeypatch.setattr(choose, "file_system_of", lambda path: "ext4")
    monkeypatch.setattr(choose, "room_bytes", lambda: 199)
    reader, why = open_reader(extents, ReaderOptions())
    assert reader.name == "pread"
    golden.text(why, numbers=False)
    monkeypatch.setattr(choose, "room_bytes", lambda: None)
    assert open_reader(extents, ReaderOptions())[0].name == "mmap"


@pytest.mark.parametrize("reader", ["mmap", "pread"])
def test_small_windows_in_a_set_that_fits_give_no_hints(
    reader: str, extents: Extents, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hints(room: int | None, seq_len: int) -> list[int]:
        """Offsets of spans that the kernel has hints of."""
        found: list[int] = []
        monkeypatch.setattr(choose, "room_bytes", lambda: room)
        windows = Windows([range(100)], seq_len)
        plan = Plan((range(100),), windows, Shuffled(len(windows), 0), False)
        opened = open_reader(extents, ReaderOptions(reader, plan=plan))[0]
        monkeypatch.setattr(opened, "_hint", lambda *where: found.append(where[1]))
        opened.will_need(np.array([0, 8]), seq_len + 1)
        return found

    assert hints(400, 8) == []
    assert len(hints(399, 8)) == len(hints(None, 8)) == 2
    monkeypatch.setattr(choose.mmap, "PAGESIZE", 8 * 18 - 1)
    assert len(hints(400, 8)) == 2, "a window is more than an eighth of a page"
