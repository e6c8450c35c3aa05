"""Amounts as people read them, and the stage line."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory import Cgroup, Gpu, Host, Process, Snapshot, format_bytes
from memory.format import fitted, stage_label, stage_line

MB, GB = 1 << 20, 1 << 30
UNITS = {"B": 1, "KB": 1 << 10, "MB": MB, "GB": GB, "TB": 1 << 40, "PB": 1 << 50}


def process(anon: float = 0, files: float = 0) -> Process:
    return Process(1, "python", 1, int(anon + files), int(anon), int(files), 0, 0, int(anon + files))


def job(anon: float, shmem: float, kernel: float, limit: float | None = 32 * GB) -> Cgroup:
    known = None if limit is None else int(limit)
    return Cgroup(2, "/job_1", known, known and "/job_1", 0, 0, int(anon), int(shmem), int(kernel), 0, {})


BIG = Snapshot(
    time_s=0.0,
    main=process(3.1 * GB, 14.3 * GB),
    workers=tuple(process(5.8 * GB / 8, GB) for _ in range(8)),
    job=job(8.9 * GB, 0.3 * GB, 0.2 * GB),
    host=Host(64 * GB, 50 * GB),
    gpu=Gpu(0, "H100", int(41.2 * GB), 45 * GB, 52 * GB, 80 * GB),
)
SMALL = Snapshot(0.0, process(400 * MB, 250 * MB), (), job(400 * MB, 10 * MB, 2 * MB), Host(64 * GB, 50 * GB))


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 KB"),
        (1024, "1.0 KB"),
        (12_345, "12 KB"),
        (999 * 1024, "999 KB"),
        (1023 * 1024, "1.0 MB"),
        (3.2 * MB, "3.2 MB"),
        (9.96 * MB, "10 MB"),
        (412 * MB, "412 MB"),
        (9.4 * GB, "9.4 GB"),
        (32 * GB, "32.0 GB"),
        (99.96 * GB, "100 GB"),
        (360.4 * GB, "360 GB"),
        (1.5 * 1024 * GB, "1.5 TB"),
        (-35 * MB, "-35 MB"),
    ],
)
def test_amounts(amount: float, text: str) -> None:
    assert format_bytes(amount) == text


@given(st.integers(min_value=0, max_value=1 << 59))
def test_an_amount_is_short_and_reads_back(n: int) -> None:
    number, unit = format_bytes(n).split(" ")
    assert len(number) <= 4
    assert float(number) * UNITS[unit] == pytest.approx(n, rel=0.055, abs=0.5)
    assert format_bytes(-n).lstrip("-") == format_bytes(n)


def test_the_line_of_the_design() -> None:
    label = stage_label("train", {"step": 1200}, 0, None)
    line = stage_line(label, BIG, {"anon_bytes": 35 * MB}, 34.04)
    assert re.sub(" +", " ", line) == (
        "[mem] train step 1,200 | job 9.4 of 32.0 GB unreclaimable (29%) | anon 8.9 shm 0.3 kernel 0.2"
        " | rss 31.2 of which 22.3 mapped files (reclaimable) | main 3.1 + 8 workers 5.8"
        " | GPU 41.2 of 80.0, peak 52.0 | +35 MB anon in 34.0 s"
    )


def test_a_small_run() -> None:
    line = stage_line("open_dataset", SMALL, {"anon_bytes": 300_000, "file_bytes": 250 * MB}, 0.42)
    assert re.sub(" +", " ", line) == (
        "[mem] open_dataset | job 412 MB of 32.0 GB unreclaimable (1%) | anon 400 shm 10 kernel 2 MB"
        " | rss 650 of which 250 MB mapped files (reclaimable) | +0.3 MB anon, +250 MB mapped files in 0.42 s"
    )


def test_where_slurm_polls_rss_it_is_what_counts() -> None:
    """The run's own, of what was asked for: U would be all of the machine's, which never comes near."""
    at = replace(SMALL, job=job(9 * GB, 0, 0, limit=None), host=Host(64 * GB, 50 * GB))
    line = stage_line("train", at, {"anon_bytes": 2 * MB}, 1.0, highest_u_bytes=11 * GB, polled_bytes=GB)
    assert re.sub(" +", " ", line) == (
        "[mem] train | 650 MB rss of --mem 1.0 GB, polled by Slurm (63%) | anon 400 mapped files 250 MB"
        " | +2.0 MB anon in 1.00 s"
    )
    untold = Snapshot(0.0, Process(1), (), job(2 * GB, 0, 0, limit=None), Host(64 * GB, 50 * GB))
    assert "job 2.0 of the host's 64.0 GB" in stage_line("x", untold, {}, 1.0, polled_bytes=GB)


def test_without_a_limit_the_host_is_the_limit() -> None:
    at = Snapshot(0.0, process(GB), (), job(2 * GB, 0, 0, limit=None), Host(64 * GB, 50 * GB))
    assert "| job 2.0 of the host's 64.0 GB unreclaimable (3%)" in stage_line("x", at, {}, 1.0)
    assert at.limit_at == "host"


def test_without_a_cgroup_it_is_the_process_tree() -> None:
    alone = Snapshot(0.0, process(2 * GB, GB), (), None, Host(64 * GB, 50 * GB))
    line = stage_line("x", alone, {}, 1.0)
    assert "| process tree 2.0 of the host's 64.0 GB unreclaimable (3%)" in line
    assert "| anon 2.0 shm 0.0 " in line
    assert "kernel" not in line
    forked = Snapshot(0.0, process(2 * GB), (process(2 * GB),), None, Host(64 * GB, 50 * GB))
    line = stage_line("x", forked, {}, 1.0)
    assert "| process tree up to 4.0 of" in line, "pages shared since the fork count twice"
    assert "| main 2.0 + 1 worker 2.0 " in line


def test_where_only_rss_is_known_the_line_says_so() -> None:
    at = Snapshot(
        0.0, Process(1, rss_bytes=300 * MB), (), None, Host(16 * GB, GB), notes=("no /proc here: so",)
    )
    assert re.sub(" +", " ", stage_line("x", at, {"rss_bytes": 5}, 1.0)) == (
        "[mem] x | unreclaimable memory unknown (no /proc here) | rss 300 MB | in 1.00 s"
    )
    nothing = Snapshot(0.0, Process(1))
    assert "unknown (not told by this system) | in" in stage_line("x", nothing, {}, 1.0)


def test_an_unknown_limit_is_left_out() -> None:
    at = Snapshot(0.0, process(2 * GB), (), job(2 * GB, 0, 0, limit=None))
    assert re.search(r"\| job 2.0 GB unreclaimable +\|", stage_line("x", at, {}, 1.0))


def test_units_are_said_as_soon_as_one_part_is_not_in_gb() -> None:
    mapped = Snapshot(0.0, process(400 * MB, 30 * GB), (), job(400 * MB, 0, 0), Host(64 * GB, GB))
    assert "| rss 30.4 of which 30.0 GB mapped files (reclaimable)" in stage_line("x", mapped, {}, 1.0)
    huge = Snapshot(0.0, process(2 * GB, 1.5 * 1024 * GB), (), job(2 * GB, 0, 0), Host(64 * GB, GB))
    line = re.sub(" +", " ", stage_line("x", huge, {}, 1.0))
    assert "| anon 2.0 shm 0.0 kernel 0.0 GB | rss 1.5 of which 1.5 TB mapped" in line


def test_changes_by_less_than_a_megabyte_are_not_told_but_of_anon() -> None:
    change = {
        "anon_bytes": -1,
        "shmem_bytes": 2 * GB,
        "file_bytes": 1000,
        "gpu_bytes": -3 * MB,
        "rss_bytes": GB,
    }
    line = stage_line("x", SMALL, change, 7300.0)
    assert line.endswith("| +0 MB anon, +2.0 GB shm, -3.0 MB GPU in 2.0 h")


def test_a_stage_that_failed_says_by_what() -> None:
    line = stage_line("x", SMALL, {"anon_bytes": 0}, 150.0, "ValueError: a long story")
    assert line.endswith("| +0 MB anon in 2.5 min, ended by ValueError")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.00042, "0.4 ms"), (0.42, "0.42 s"), (34.04, "34.0 s"), (150, "2.5 min"), (7300, "2.0 h")],
)
def test_durations(seconds: float, text: str) -> None:
    assert stage_line("x", SMALL, {}, seconds).endswith(f"| in {text}")


def test_labels() -> None:
    assert stage_label("start", {"step": 0}, 0, None) == "start"
    assert stage_label("read", {"path": "x"}, 2, "loader-1") == "    read (loader-1)"


def test_a_line_is_shortened_part_by_part() -> None:
    line = (
        "[mem]   train step 1,200     | job 9.4 GB of the host's 32.0 GB unreclaimable (29%)   "
        "| anon 8.9 shm 0.3 kernel 0.2   | rss 31.2 of which 22.3 mapped files (reclaimable)  "
        "| main 3.1 + 8 workers 5.8 | GPU 41.2 of 80.0, peak 52.0   | +35 MB anon in 34.0 s"
    )
    told = [fitted(line, columns) for columns in range(len(line), 60, -1)]
    assert told[0] == line
    assert all(len(text) <= columns for columns, text in zip(range(len(line), 90, -1), told, strict=False))
    steps = list(dict.fromkeys(told))
    gone = ["  |", "rss", "main", "anon 8.9", "unreclaimable", "the host's", "GPU"]
    for text, word in zip(steps[1:], gone, strict=True):
        assert word not in text
    assert steps[-1] == "[mem]   train step 1,200 | job 9.4 GB of 32.0 GB (29%) | +35 MB anon in 34.0 s"


megabytes = st.integers(min_value=1, max_value=90_000)


@given(st.lists(st.tuples(megabytes, megabytes, megabytes, megabytes), min_size=2, max_size=6))
def test_bars_of_successive_lines_stand_below_each_other(sizes) -> None:
    columns = set()
    for anon, shmem, kernel, files in sizes:
        at = Snapshot(
            0.0,
            process(anon * MB, files * MB),
            (process(kernel * MB, shmem * MB),),
            job(anon * MB, shmem * MB, kernel * MB, limit=360 * GB),
            Host(512 * GB, GB),
        )
        line = stage_line("x", at, {}, 1.0)
        columns.add(tuple(at for at, character in enumerate(line) if character == "|"))
    assert len(columns) == 1
