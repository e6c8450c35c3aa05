"""The `[mem]` line: what decides first, 80 columns, details behind."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory import Cgroup, Gpu, Host, Process, Snapshot, format_bytes
from memory.record.stage_line import COLUMNS, duration, fitted, format_change, stage_label, stage_line
from tests.golden_text import Golden

MB, GB = 1 << 20, 1 << 30
UNITS = {"B": 1, "KB": 1 << 10, "MB": MB, "GB": GB, "TB": 1 << 40, "PB": 1 << 50}
HOST = Host(64 * GB, 50 * GB)
LEAK = ["+1.1 MB/step, LEAK", "limit in 3.2 h", "in main"]
NO_LEAK = ["+0.3 MB/step, no leak"]


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
    host=HOST,
    gpu=Gpu(0, "H100", int(41.2 * GB), 45 * GB, 52 * GB, 80 * GB),
)
SMALL = Snapshot(0.0, process(400 * MB, 250 * MB), (), job(400 * MB, 10 * MB, 2 * MB), HOST)
ALONE = Snapshot(0.0, process(2 * GB, GB), (), None, HOST)
NO_LIMIT = Snapshot(0.0, process(GB), (), job(2 * GB, 0, 0, limit=None), HOST)
NO_SPLIT = Snapshot(0.0, Process(1, rss_bytes=300 * MB), (), None, HOST, notes=("no /proc here: so",))
CHANGES = {
    "run_bytes": 2 * GB, "anon_bytes": -1, "shmem_bytes": 2 * GB,
    "file_bytes": 1000,  # less than a megabyte is shown of anon alone
    "gpu_bytes": -3 * MB, "rss_bytes": GB,
}  # fmt: skip
LINES = {
    "workers, a GPU, no leak": stage_line(
        "train 1,200", BIG, {"anon_bytes": 35 * MB}, 34.04, growth=NO_LEAK
    ),
    "a leak": stage_line("train 1,200", replace(BIG, gpu=None), {}, 34.04, growth=LEAK),
    "a leak, the limit of the host": stage_line("train 1,200,000", NO_LIMIT, {}, 34.04, growth=LEAK),
    "small": stage_line("open", SMALL, {"run_bytes": 300_000, "file_bytes": 250 * MB}, 0.42),
    "limit of the host": stage_line("x", NO_LIMIT, {}, 1.0),
    "no limit known": stage_line("x", Snapshot(0.0, process(2 * GB), (), NO_LIMIT.job), {}, 1.0),
    "no cgroup": stage_line("x", ALONE, {}, 1.0),
    # pages shared since the fork count twice
    "no cgroup, forked": stage_line("x", replace(ALONE, workers=(process(2 * GB),)), {}, 1.0),
    "rss alone": stage_line("x", NO_SPLIT, {"run_bytes": 5, "rss_bytes": 5}, 1.0),
    "nothing known": stage_line("x", Snapshot(0.0, Process(1)), {}, 1.0),
    "changes": stage_line("x", SMALL, CHANGES, 7300.0),
    "went higher": stage_line("x", SMALL, {}, 1.0, peak_bytes=900 * GB),
    "failed": stage_line("x", SMALL, {"anon_bytes": 0}, 150.0, error="ValueError: a long story"),
}  # fmt: skip


def test_lines_of_stages(golden: Golden) -> None:
    golden.text("\n".join(f"{name}:\n{fitted(line)}\n{line}\n" for name, line in LINES.items()))


@pytest.mark.parametrize("name", LINES)
def test_a_line_is_whole_parts_of_at_most_80_columns(name: str) -> None:
    parts = LINES[name].partition(" | ")[0].split("  ")
    for columns in (COLUMNS, 60, 45):
        shown = fitted(LINES[name], columns)
        assert shown.split("  ") == parts[: len(shown.split("  "))]
        assert len(shown) <= columns


amounts = st.integers(min_value=0, max_value=1 << 42)


@given(
    st.text(st.characters(codec="ascii", exclude_characters=" |\n"), max_size=60),
    st.integers(0, 8), amounts, amounts, amounts, st.none() | amounts, st.sampled_from([[], LEAK, NO_LEAK]),
)  # fmt: skip
def test_no_line_is_wider_and_the_first_number_is_always_there(
    name: str, depth: int, anon: int, shmem: int, workers: int, limit: int | None, growth: list[str]
) -> None:
    at = Snapshot(
        0.0, process(anon), (process(workers),), job(anon, shmem, 0, limit), Host(1 << 43, GB), BIG.gpu
    )
    line = stage_line(stage_label(name, {"step": anon}, depth, "loader-1"), at, {}, 1.0, growth=growth)
    assert len(fitted(line)) <= COLUMNS
    label = "job" if at.limit_at != "host" else "run"
    assert f"{label} {format_bytes(at.run_bytes or 0).split()[0]}" in fitted(line)


@pytest.mark.parametrize(("above", "is_shown"), [(15 * MB, False), (16 * MB, True)])
def test_a_peak_is_shown_if_it_is_well_above_both_ends(above: int, is_shown: bool) -> None:
    change = {"run_bytes": -50 * MB}  # it began 50 MB higher
    line = stage_line("x", SMALL, change, 1.0, peak_bytes=(SMALL.run_bytes or 0) + 50 * MB + above)
    assert ("  peak " in line) == is_shown


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *((format_bytes(n), text) for n, text in [
            (0, "0 B"), (999, "999 B"), (1000, "1.0 KB"), (1024, "1.0 KB"), (12_345, "12 KB"),
            (999 * 1024, "999 KB"), (1023 * 1024, "1.0 MB"), (3.2 * MB, "3.2 MB"), (9.96 * MB, "10 MB"),
            (412 * MB, "412 MB"), (9.4 * GB, "9.4 GB"), (32 * GB, "32.0 GB"), (99.96 * GB, "100 GB"),
            (360.4 * GB, "360 GB"), (1.5 * 1024 * GB, "1.5 TB"), (-35 * MB, "-35 MB"),
        ]),
        *((duration(s), text) for s, text in [
            (0.00042, "0.4 ms"), (0.42, "0.42 s"), (34.04, "34.0 s"), (150, "2.5 min"), (7300, "2.0 h"),
        ]),
        *((format_change(n), text) for n, text in [(9, "+0 MB"), (35 * MB, "+35 MB"), (-GB, "-1.0 GB")]),
        (stage_label("start", {"step": 0}, 0, None), "start"),
        (stage_label("read", {"step": 1200, "path": "x"}, 2, "loader-1"), "    read 1,200 (loader-1)"),
    ],
)  # fmt: skip
def test_amounts_durations_and_labels(text: str, expected: str) -> None:
    assert text == expected


@given(st.integers(min_value=0, max_value=1 << 59))
def test_an_amount_is_short_and_reads_back(n: int) -> None:
    number, unit = format_bytes(n).split(" ")
    assert len(number) <= 4
    assert float(number) * UNITS[unit] == pytest.approx(n, rel=0.055, abs=0.5)
    assert format_bytes(-n).lstrip("-") == format_bytes(n)
