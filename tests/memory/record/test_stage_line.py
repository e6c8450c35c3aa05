"""Amounts as people read them, and the stage line."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory import Cgroup, Gpu, Host, Process, Snapshot, format_bytes
from memory.record.stage_line import fitted, stage_label, stage_line
from tests.golden_text import Golden

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


HOST = Host(64 * GB, 50 * GB)
ALONE = Snapshot(0.0, process(2 * GB, GB), (), None, HOST)
NO_LIMIT = Snapshot(0.0, process(GB), (), job(2 * GB, 0, 0, limit=None), HOST)
CHANGES = {
    "anon_bytes": -1,
    "shmem_bytes": 2 * GB,
    "file_bytes": 1000,  # less than a megabyte is worth a word of anon alone
    "gpu_bytes": -3 * MB,
    "rss_bytes": GB,
}
LINES = {
    "eight workers, a GPU": stage_line("train step 1,200", BIG, {"anon_bytes": 35 * MB}, 34.04),
    "small": stage_line("open", SMALL, {"anon_bytes": 300_000, "file_bytes": 250 * MB}, 0.42),
    "limit of the host": stage_line("x", NO_LIMIT, {}, 1.0),
    "no limit known": stage_line("x", Snapshot(0.0, process(2 * GB), (), NO_LIMIT.job), {}, 1.0),
    "no cgroup": stage_line("x", ALONE, {}, 1.0),
    # pages shared since the fork count twice
    "no cgroup, forked": stage_line("x", replace(ALONE, workers=(process(2 * GB),)), {}, 1.0),
    "rss alone": stage_line(
        "x",
        Snapshot(0.0, Process(1, rss_bytes=300 * MB), (), None, HOST, notes=("no /proc here: so",)),
        {"rss_bytes": 5}, 1.0,
    ),
    "nothing known": stage_line("x", Snapshot(0.0, Process(1)), {}, 1.0),
    "MB and GB": stage_line("x", replace(SMALL, main=process(400 * MB, 30 * GB)), {}, 1.0),
    "GB and TB": stage_line("x", replace(ALONE, main=process(2 * GB, 1.5 * 1024 * GB)), {}, 1.0),
    "changes": stage_line("x", SMALL, CHANGES, 7300.0),
    "went higher": stage_line("x", SMALL, {}, 1.0, rise_bytes=64 * MB, highest_u_bytes=900 * GB),
    "failed": stage_line("x", SMALL, {"anon_bytes": 0}, 150.0, "ValueError: a long story"),
}  # fmt: skip


def test_lines_of_stages(golden: Golden) -> None:
    """A unit is in every part as soon as one of them is not in GB."""
    golden.text("\n\n".join(f"{name}:\n{line}" for name, line in LINES.items()))
    assert NO_LIMIT.limit_at == "host"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.00042, "0.4 ms"), (0.42, "0.42 s"), (34.04, "34.0 s"), (150, "2.5 min"), (7300, "2.0 h")],
)
def test_durations(seconds: float, text: str) -> None:
    assert stage_line("x", SMALL, {}, seconds).endswith(f" {text}")


def test_labels() -> None:
    assert stage_label("start", {"step": 0}, 0, None) == "start"
    assert stage_label("read", {"path": "x"}, 2, "loader-1") == "    read (loader-1)"


def test_a_line_is_shortened_part_by_part(golden: Golden) -> None:
    at = replace(BIG, job=job(8.9 * GB, 0.3 * GB, 0.2 * GB, limit=None), host=Host(32 * GB, 20 * GB))
    line = stage_line("  train step 1,200", at, {"anon_bytes": 35 * MB}, 34.04)
    told = [fitted(line, columns) for columns in range(len(line), 60, -1)]
    assert told[0] == line
    assert all(len(text) <= columns for columns, text in zip(range(len(line), 90, -1), told, strict=False))
    golden.text("\n".join(dict.fromkeys(told)))


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
