"""What a report tells of a run folder is what its records and samples hold."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_runs import (
    BEGUN_S,
    LIMIT,
    MB,
    MadeStages,
    make_killed,
    sample_of,
    snapshot_of,
    write_outcome,
    write_ring,
)
from supervised import wait_for

from memory.__main__ import main
from memory.report.ending import ending, marks
from memory.report.history import read_history
from memory.report.html import peak_rss
from memory.report.moments import PARTS, of_sample, of_snapshot, split
from memory.report.processes import process_rows
from memory.report.summary import summary
from memory.report.terminal import lines_of
from tests.golden_text import Golden, refused

AMOUNTS = st.none() | st.integers(0, 2**40)


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    return make_killed(tmp_path / "killed")


@given(st.integers(0, 2**40), AMOUNTS, AMOUNTS, AMOUNTS, AMOUNTS, AMOUNTS)
def test_the_parts_add_up_to_u(u: int, anon: int, shmem: int, kernel: int, main: int, tree: int) -> None:
    parts = split(u, anon=anon, shmem=shmem, kernel=kernel, main=main, tree=tree)
    assert tuple(sorted(parts)) == tuple(sorted(PARTS))
    assert sum(parts.values()) == u
    assert min(parts.values()) >= 0


@given(st.integers(0, 500), st.lists(st.integers(0, 300), max_size=6), st.integers(0, 400))
def test_parts_of_a_job_are_told_apart(main: int, workers: list[int], other: int) -> None:
    found = snapshot_of(BEGUN_S, main, workers, other_mb=other)
    moment = of_snapshot(found.to_json(), 3.0)
    assert moment.u == found.unreclaimable_bytes
    assert (moment.main, moment.workers, moment.other) == (main * MB, sum(workers) * MB, other * MB)
    assert (moment.shmem, moment.kernel, moment.cache) == (5 * MB, 7 * MB, 288 * MB)
    assert sum(getattr(moment, part) for part in PARTS) == moment.u


def test_pages_that_workers_share_with_the_main_process_count_once() -> None:
    parts = split(112, anon=100, shmem=5, kernel=7, main=80, tree=80 + 85 + 90)
    assert parts == {"main": 80, "workers": 20, "shmem": 5, "kernel": 7, "other": 0}


def test_a_sample_and_a_snapshot_of_the_same_moment_say_the_same() -> None:
    sampled = of_sample(sample_of(4.0, 100, (20, 30)), 4.0)
    measured = of_snapshot(snapshot_of(BEGUN_S + 4.0, 100, (20, 30)).to_json(), 4.0)
    assert [getattr(sampled, part) for part in PARTS] == [getattr(measured, part) for part in PARTS]
    assert (sampled.u, sampled.cache, sampled.limit) == (measured.u, measured.cache, measured.limit)
    assert sampled.holders == measured.holders


@pytest.mark.parametrize("damaged", [
    {}, {"main": None}, {"main": 3, "workers": "x", "job": []}, {"job": {"anon_bytes": "much"}},
    {"main": {"pid": 1.5, "anon_bytes": True}, "workers": [None, {"pid": 3}, 7]},
    {"limit_bytes": float("nan")}, {"unreclaimable_bytes": -5}, {"gpu": [1]},
])  # fmt: skip
def test_a_snapshot_may_hold_anything(damaged: dict[str, Any]) -> None:
    of_snapshot(damaged, 0.0)


def test_samples_and_records_become_one_history(killed: Path, golden: Golden) -> None:
    history = read_history(killed)
    track = history.last.main
    assert (track.records, track.samples) == (13, 73)
    assert [moment.at_s for moment in track.moments] == sorted(moment.at_s for moment in track.moments)
    assert track.highest is not None
    assert track.highest.u == (210 + 608 + 70 + 12) * MB == LIMIT
    assert track.highest.is_sample
    assert track.stage_at(1.5) == "build > weights"
    assert track.stage_at(30.0) == "train"
    end = ending(history.evidence, history.last)
    assert (end.where, end.oom_kills, end.is_bad) == ("train", 1, True)
    assert end.at_s == pytest.approx(36.2)
    found = marks(history.evidence, track, end)
    assert [(round(mark.at, 3), mark.is_bad) for mark in found] == [(36.0, True), (36.2, True)]
    golden.text("\n".join([end.words, *(mark.label for mark in found)]))


def test_what_is_over_time_fits_a_terminal(killed: Path) -> None:
    told = lines_of(read_history(killed))
    assert 0 < max(len(line) for line in told if "█" in line) <= 80


def test_others_in_the_cgroup_are_not_the_workers(tmp_path: Path) -> None:
    """A record cannot tell them from workers that share pages with the main process; the supervisor can."""
    made = MadeStages(tmp_path / "memory.jsonl")
    record = made.record("begin", "train", 5.0, 100, workers_mb=(20, 30), other_mb=40)
    for worker in record["snapshot"]["workers"]:
        worker["anon_bytes"] += 90 * MB  # of which it shares so much
    made.path.write_text(json.dumps(record) + "\n")
    beside = [(1, 10), (5, 40), (9, 60)]
    samples = [replace(sample_of(at, 90), beside_anon_bytes=mb * MB) for at, mb in beside]
    alone = read_history(tmp_path).last.main.highest
    write_ring(tmp_path, samples)
    told = read_history(tmp_path).last.main.highest
    assert alone is not None
    assert told is not None
    assert not told.is_sample
    assert (alone.workers, alone.other) == (90 * MB, 0)
    assert (told.workers, told.other, told.u) == (50 * MB, 40 * MB, alone.u)


def test_a_stage_that_did_not_end_has_no_after_and_no_peak(tmp_path: Path) -> None:
    made = MadeStages(tmp_path / "memory.jsonl")
    made.record("begin", "load", 1.0, 40)
    write_ring(tmp_path, [sample_of(i, 40 + 20 * i) for i in range(1, 11)])
    row = read_history(tmp_path).last.main.rows[0]
    assert (row.ended, row.unreclaimable_bytes, peak_rss(row)) == (False, None, None)
    assert row.highest_bytes == (240 + 12) * MB


def test_kills_are_those_that_explain_counts(killed: Path, tmp_path: Path) -> None:
    """Those in cgroups beside the run's own are not, whatever the samples of the job's cgroup count."""
    beside = {"path": "/job", "limit_bytes": LIMIT, "oom_kill_before": 1, "oom_kill_after": 2}
    own = {"path": "/job/task", "limit_bytes": None, "oom_kill_before": 0, "oom_kill_after": 0}
    counts = {"counters_before": {"oom_kill": 1}, "counters_after": {"oom_kill": 2}}
    write_outcome(killed, 36.2, cgroup_path="/job/task", parents=[own, beside], **counts)
    history = read_history(killed)
    end = ending(history.evidence, history.last)
    assert (end.where, end.oom_kills) == ("train", 0)
    assert [mark.label for mark in marks(history.evidence, history.last.main, end)] == [end.what]
    # v1: the outcome counts a tree of cgroups, a sample those above the run; one more was killed unseen
    own |= {"oom_kill_before": 4, "oom_kill_after": 6}
    write_outcome(killed, 36.2, cgroup_path="/job/task", parents=[own, beside], **counts)
    history = read_history(killed)
    end = ending(history.evidence, history.last)
    assert end.oom_kills == 2
    assert len(marks(history.evidence, history.last.main, end)) == 3


def test_rows_hold_what_the_records_do(killed: Path) -> None:
    rows = {row.path: row for row in read_history(killed).last.main.rows}
    assert list(rows) == [
        ("start",), ("build",), ("build", "weights"), ("build", "optimizer"), ("train",), ("evaluate",),
    ]  # fmt: skip
    start, build, train = rows["start",], rows["build",], rows["train",]
    assert (start.times, start.seconds, start.before_bytes, start.unreclaimable_bytes) == (
        1,
        1.0,
        32 * MB,
        112 * MB,
    )
    assert (start.change_bytes, start.anon_change_bytes) == (80 * MB, 80 * MB)
    assert build.before_bytes == 112 * MB
    assert build.highest_bytes is not None
    assert build.highest_bytes >= 232 * MB, "a stage within it held more than it did before and after"
    assert (train.times, train.ended, train.seconds) == (2, False, 7.0)
    assert train.highest_bytes == LIMIT, "what the samples saw after its last begin counts"
    assert train.before_bytes == (200 + 110 + 12) * MB


def test_what_a_stage_within_held_counts_for_the_outer_one(tmp_path: Path) -> None:
    made = MadeStages(tmp_path / "memory.jsonl")
    made.record("begin", "outer", 0.0, 10)
    made.stage("inner", 1.0, 2.0, 10, 500, depth=1)
    made.record("end", "outer", 3.0, 20, seconds=3.0)
    outer, inner = read_history(tmp_path).last.main.rows
    assert (outer.highest_bytes, outer.unreclaimable_bytes) == (512 * MB, 32 * MB)
    assert inner.path == ("outer", "inner")


def test_a_stage_whose_end_was_lost_is_not_around_the_next_one(tmp_path: Path) -> None:
    made = MadeStages(tmp_path / "memory.jsonl")
    made.record("begin", "torn", 0.0, 10)
    made.stage("next", 1.0, 2.0, 10, 20)
    made.record("end", "nowhere", 3.0, 20, seconds=1.0)
    rows = read_history(tmp_path).last.main.rows
    assert [(row.path, row.times, row.ended) for row in rows] == [
        (("torn",), 1, False), (("next",), 1, True), (("nowhere",), 0, True),
    ]  # fmt: skip


def test_a_recorded_peak_counts(tmp_path: Path) -> None:
    made = MadeStages(tmp_path / "memory.jsonl")
    made.record("begin", "load", 0.0, 50)
    peak = {"rss_bytes": 900 * MB, "gpu_bytes": None, "sampled_unreclaimable_bytes": 700 * MB, "samples": 4}
    made.record("end", "load", 1.0, 60, seconds=1.0, peak=peak)
    (row,) = read_history(tmp_path).last.main.rows
    assert (row.rss_inside_bytes, row.highest_bytes) == (900 * MB, 700 * MB)


def test_json_of_the_command_is_the_summary(killed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(killed), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == json.loads(json.dumps(summary(read_history(killed)) | {"written": []}))
    (attempt,) = told["attempts"]
    peak = attempt["tracks"][0]["peak"]
    assert peak["unreclaimable_bytes"] == LIMIT
    assert peak["stage"] == "train"
    assert peak["workers_anon_bytes"] == (608 + 70) * MB
    assert [stage["stage"] for stage in attempt["tracks"][0]["stages"]][:2] == ["start", "build"]
    assert {row["pid"]: row["highest_anon_bytes"] // MB for row in attempt["tracks"][0]["processes"]} == {
        100: 220, 101: 608, 102: 70,
    }  # fmt: skip


def test_the_text_names_what_matters(
    killed: Path, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    assert main(["report", str(killed)]) == 0
    golden.text(capsys.readouterr().out)


def test_records_alone(tmp_path: Path) -> None:
    MadeStages(tmp_path / "memory.jsonl").stage("only", 0.0, 2.0, 10, 30)
    history = read_history(tmp_path)
    assert history.last.main.samples == 0
    assert history.last.main.highest is not None
    assert history.last.main.highest.u == 42 * MB
    assert not ending(history.evidence, history.last).is_bad


def test_samples_alone_as_around_a_foreign_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    write_ring(tmp_path, [sample_of(i, 10 + i) for i in range(20)])
    write_outcome(tmp_path, 20.0, exit_code=3, signal=None, by="exit")
    assert main(["report", str(tmp_path)]) == 0
    golden.text(capsys.readouterr().out.replace(tmp_path.name, "RUN"))


def test_it_lasted_until_its_supervisor_saw_it_end(tmp_path: Path) -> None:
    """Not until the last sample, which may be the only one."""
    write_ring(tmp_path, [sample_of(0.2, 10)])
    assert read_history(tmp_path).last.lasted_s == pytest.approx(0.2)
    write_outcome(tmp_path, 4.3, exit_code=0, signal=None, by="exit")
    history = read_history(tmp_path)
    assert history.last.lasted_s == pytest.approx(4.3)
    assert lines_of(history)[0].endswith(": ended, 4.30 s")
    write_outcome(tmp_path, 9.0, attempt=2)
    assert read_history(tmp_path).last.lasted_s == pytest.approx(0.2), "of another attempt"


def test_a_process_is_called_as_it_was_when_it_held_most(tmp_path: Path) -> None:
    """A shell that becomes python, and python that becomes sleep."""
    names = {1: "bash", 2: "bash", 3: "python", 4: "python", 5: "sleep"}
    samples = []
    for at, name in names.items():
        seen = sample_of(at, 200 if name == "python" else 2)
        samples.append(replace(seen, tree=(replace(seen.tree[0], name=name),)))
    write_ring(tmp_path, samples)
    assert [row.name for row in process_rows(read_history(tmp_path).last.main.moments)] == ["python"]


def test_nothing_was_written_down(tmp_path: Path, capsys: pytest.CaptureFixture[str], golden: Golden) -> None:
    with golden.refused("no-records"):
        read_history(tmp_path)
    assert main(["report", str(tmp_path)]) == 2
    assert capsys.readouterr().out == ""
    assert main(["report", str(tmp_path / "none")]) == 2


def test_files_of_nothing_but_damage(tmp_path: Path) -> None:
    (tmp_path / "memory.jsonl").write_bytes(b"\0\0\0\n{torn\n[1]\n" + b'{"rank": 0, "stage": "x"')
    (tmp_path / "memory.ring").write_bytes(b"HWRING1\n" + bytes(100))
    (tmp_path / "outcome.json").write_text("[]")
    with refused("no-records"):
        read_history(tmp_path)


def test_what_is_damaged_is_told(killed: Path, golden: Golden) -> None:
    with open(killed / "memory.jsonl", "a") as file:
        file.write('{"torn": \n')
    (killed / "outcome.json").write_text("x")
    history = read_history(killed)
    assert history.last.main.highest is not None
    golden.text("\n".join(history.notes))


def test_several_attempts(tmp_path: Path, capsys: pytest.CaptureFixture[str], golden: Golden) -> None:
    for number, peak in ((1, 100), (2, 300), (3, 200)):
        made = MadeStages(tmp_path / "memory.jsonl", attempt=number, begun_s=BEGUN_S + 1000 * number)
        made.stage("start", 0.0, 1.0, 10, peak)
        if number == 2:
            made.record("begin", "train", 1.0, peak)
    history = read_history(tmp_path)
    assert [attempt.number for attempt in history.attempts] == [1, 2, 3]
    assert [
        attempt.main.highest.u // MB
        for attempt in history.attempts
        if attempt.main.highest and attempt.main.highest.u
    ] == [112, 312, 212]
    assert main(["report", str(tmp_path), "--html"]) == 0
    golden.text(capsys.readouterr().out.replace(tmp_path.name, "RUN"))
    assert main(["report", str(tmp_path), "--attempt", "2"]) == 0
    second = capsys.readouterr().out.replace(tmp_path.name, "RUN")
    golden.text(second, "attempt 2")
    assert main(["report", str(tmp_path), "--attempt", "7"]) == 2
    golden.text(capsys.readouterr().err, "no such attempt")
    ended = second.splitlines()[0].partition(": ")[2].rpartition(",")[0]
    assert ended in (tmp_path / "memory.html").read_text()


def test_several_ranks(tmp_path: Path, golden: Golden) -> None:
    for rank in range(3):
        name = "memory.jsonl" if rank == 0 else f"memory.rank{rank}.jsonl"
        made = MadeStages(tmp_path / name, rank=rank)
        made.stage("train", 0.0, 5.0, 100, 100 + 50 * rank)
    write_ring(tmp_path, [sample_of(i, 120) for i in range(5)])
    history = read_history(tmp_path)
    (attempt,) = history.attempts
    assert [track.rank for track in attempt.tracks] == [0, 1, 2]
    assert attempt.main.rank == 0, "the samples are of the process of rank 0"
    golden.text(
        "\n".join(lines_of(history)).replace(tmp_path.name, "RUN")
    )  # drawn are rank 0 and the fullest
    write_ring(tmp_path, [sample_of(i, 120) for i in range(5)], pid=77)
    (attempt,) = read_history(tmp_path).attempts
    assert [track.rank for track in attempt.tracks] == [0, 1, 2, None]
    assert attempt.main.rank is None


@pytest.mark.parametrize("jump_s", [3600.0, -3600.0])
def test_a_clock_that_was_set(tmp_path: Path, jump_s: float) -> None:
    made = MadeStages(tmp_path / "memory.jsonl")
    made.stage("one", 0.0, 10.0, 10, 20)
    made.clock_s = jump_s
    made.stage("two", 10.0, 20.0, 20, 30)
    samples = [sample_of(i, 15) for i in (2, 8)] + [sample_of(jump_s + i, 25) for i in (12, 18)]
    write_ring(tmp_path, samples)
    history = read_history(tmp_path)
    track = history.last.main
    assert track.lasted_s == 20.0
    assert [(span.name, span.begin_s, span.end_s) for span in track.spans] == [
        ("one", 0.0, 10.0),
        ("two", 10.0, 20.0),
    ]
    assert any(f"{jump_s:+,.0f} s" in note for note in history.notes)
    if jump_s > 0:
        assert [m.at_s for m in track.moments if m.is_sample] == [2.0, 8.0, 12.0, 18.0]


def test_a_supervisor_that_looked_before_the_first_stage_began(tmp_path: Path) -> None:
    MadeStages(tmp_path / "memory.jsonl", begun_s=BEGUN_S + 3.0).stage("start", 0.0, 1.0, 10, 20)
    write_ring(tmp_path, [sample_of(i, 5) for i in range(6)])
    track = read_history(tmp_path).last.main
    assert track.moments[0].at_s == 0.0
    assert (track.spans[0].begin_s, track.spans[0].end_s) == (3.0, 4.0)
    assert track.at(BEGUN_S + 2.0) == pytest.approx(2.0)


def test_a_process_that_is_gone_is_seen_under_the_limit_of_the_host(tmp_path: Path) -> None:
    write_ring(tmp_path, [sample_of(1, 50), sample_of(2, 500), sample_of(3, 4, limit=64000 * MB)])
    assert read_history(tmp_path).last.main.limit_bytes == LIMIT


def test_of_a_system_that_tells_only_resident_memory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    from memory.measure.process import Process
    from memory.measure.snapshot import Snapshot

    made = MadeStages(tmp_path / "memory.jsonl")
    record = made.record("begin", "start", 0.0, 10)
    (tmp_path / "memory.jsonl").unlink()
    for event, rss in (("begin", 100), ("end", 300)):
        bare = Snapshot(BEGUN_S, Process(1, "python", rss_bytes=rss * MB)).to_json()
        with open(tmp_path / "memory.jsonl", "a") as file:
            file.write(json.dumps(record | {"event": event, "snapshot": bare}) + "\n")
    assert main(["report", str(tmp_path), "--html", "--png"]) == 0
    golden.text(capsys.readouterr().out.replace(tmp_path.name, "RUN"))


def test_a_long_run_is_thinned_as_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memory.report.history._HELD", 400)
    monkeypatch.setattr("memory.report.history.POINTS", 100)
    monkeypatch.setattr("memory.report.stages.SPANS", 50)
    made = MadeStages(tmp_path / "memory.jsonl")
    for i in range(1500):
        made.stage("train", float(i), i + 0.9, 100, 999 if i == 777 else 101)
    track = read_history(tmp_path).last.main
    assert len(track.moments) <= 100
    assert track.highest is not None
    assert (track.highest.u, track.highest.at_s) == ((999 + 12) * MB, 777.9)
    assert track.moments[-1].at_s == 1499.9
    (row,) = track.rows
    assert (row.times, row.highest_bytes) == (1500, (999 + 12) * MB)
    assert row.seconds == pytest.approx(1350)
    assert len(track.spans) <= 200


@pytest.mark.slow
def test_very_many_records_take_little_more_memory_than_a_thousand(tmp_path: Path) -> None:
    """Written by hand: the recorder would take longer than the report."""
    made = MadeStages(tmp_path / "memory.jsonl")
    line = json.dumps(made.record("begin", "train", 0.0, 100)) + "\n"
    few, many = tmp_path / "few", tmp_path / "many"
    for folder, count in ((few, 1000), (many, 40_000)):
        folder.mkdir()
        with open(folder / "memory.jsonl", "w") as file:
            for i in range(count):
                event = "end" if i % 2 else "begin"
                file.write(
                    line.replace('"elapsed_s": 0.0', f'"elapsed_s": {i}').replace('"begin"', f'"{event}"')
                )
    program = (
        "import resource, sys, pathlib\n"
        "from memory.report.history import read_history\nfrom memory.report.html import page_of\n"
        "page = page_of(read_history(pathlib.Path(sys.argv[1])), command='x')\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, len(page))\n"
    )
    found = {}
    for folder in (few, many):
        done = subprocess.run(
            [sys.executable, "-c", program, str(folder)], capture_output=True, text=True, check=True
        )
        found[folder.name] = [int(word) for word in done.stdout.split()]
    assert found["many"][0] - found["few"][0] < 120 * 1024  # all of them take 300 MB
    assert found["many"][1] < 1 << 20


def test_an_output_folder(
    killed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    target = tmp_path / "new" / "folder"
    assert main(["report", str(killed), "--html", "--png", "--output", str(target)]) == 0
    assert sorted(path.name for path in target.iterdir()) == [
        "memory-processes.png",
        "memory.html",
        "memory.png",
    ]
    assert (target / "memory.png").read_bytes().startswith(b"\x89PNG")
    assert str(target / "memory.html") in capsys.readouterr().out
    (tmp_path / "file").write_text("")
    assert main(["report", str(killed), "--html", "--output", str(tmp_path / "file")]) == 2
    golden.text(capsys.readouterr().err, numbers=False)


def test_nothing_heavy_is_loaded_by_a_report(killed: Path) -> None:
    program = (
        "import sys\nfrom memory.__main__ import main\n"
        f"main(['report', {str(killed)!r}, '--html', '--json'])\n"
        "heavy = {'matplotlib', 'numpy', 'torch', 'rich', 'psutil'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)


TWICE = f"""
import sys; sys.path.insert(0, {str(Path(__file__).parents[3])!r})
from memory import record_to, stage
with record_to(sys.argv[1], attempt=1), stage("load"):
    held = bytearray(b"x") * (int(sys.argv[2]) << 20)
"""


@pytest.mark.parametrize("is_watched", [False, True])
def test_a_command_that_was_run_again_in_its_folder(tmp_path: Path, is_watched: bool, golden: Golden) -> None:
    watched = [sys.executable, "-m", "memory", "run", "--output", str(tmp_path), "--"] if is_watched else []
    for megabytes in (300, 8):
        command = [*watched, sys.executable, "-c", TWICE, str(tmp_path), str(megabytes)]
        subprocess.run(command, cwd=Path(__file__).parents[3], check=True, timeout=120)
    history = read_history(tmp_path)
    (attempt,) = history.attempts
    (row,) = attempt.main.rows
    assert row.times == 1
    assert attempt.main.records == 2
    assert row.highest_bytes is not None
    assert row.before_bytes is not None
    assert row.highest_bytes - row.before_bytes < 100 * MB, "the first of the two is over"
    assert bool(attempt.main.samples) is is_watched
    assert len(history.notes) >= 1
    golden.text(history.notes[-1], numbers=False)
    assert not ending(history.evidence, attempt).is_bad


def test_a_command_that_was_run_again_and_came_to_no_stage(tmp_path: Path) -> None:
    MadeStages(tmp_path / "memory.jsonl", begun_s=BEGUN_S - 1000).stage("load", 0.0, 1.0, 10, 300)
    write_ring(tmp_path, [sample_of(i, 15) for i in range(3)], attempt=1, pid=200)
    write_outcome(tmp_path, 3.0, pid=200, exit_code=1, signal=None)
    (attempt,) = read_history(tmp_path).attempts
    assert (attempt.main.rows, attempt.main.samples) == ([], 3)
    assert attempt.main.highest is not None
    assert attempt.main.highest.main == 15 * MB


def test_samples_are_of_the_attempt_that_ran_under_them_whatever_its_number(tmp_path: Path) -> None:
    MadeStages(tmp_path / "memory.jsonl", attempt=1, begun_s=BEGUN_S - 1000).stage("load", 0.0, 1.0, 10, 300)
    MadeStages(tmp_path / "memory.jsonl", attempt=2).stage("load", 0.0, 1.0, 10, 30)
    write_ring(tmp_path, [sample_of(i, 15) for i in range(3)], attempt=1, pid=200)
    write_outcome(tmp_path, 3.0, pid=200, exit_code=0, signal=None)
    attempts = read_history(tmp_path).attempts
    assert [(one.number, one.main.samples) for one in attempts] == [(1, 0), (2, 3)]
    assert attempts[1].lasted_s == 3.0


def test_an_outcome_of_an_earlier_attempt_is_none_of_the_last(tmp_path: Path) -> None:
    MadeStages(tmp_path / "memory.jsonl").stage("train", 0.0, 2.0, 10, 20)
    write_ring(tmp_path, [sample_of(i, 15) for i in range(3)], attempt=1, pid=200)
    lost = [{"pid": 7, "name": "worker", "time_s": BEGUN_S + 1}]
    write_outcome(tmp_path, 3.0, pid=200, children_lost=lost)
    MadeStages(tmp_path / "memory.jsonl", attempt=2, begun_s=BEGUN_S + 100).stage("train", 0.0, 5.0, 10, 20)
    history = read_history(tmp_path)
    end = ending(history.evidence, history.last)
    assert (history.last.number, end.is_bad) == (2, False)
    assert marks(history.evidence, history.last.main, end) == []
    assert [one.main.samples for one in history.attempts] == [3, 0]


def test_a_run_between_two_stages_has_not_ended(tmp_path: Path, golden: Golden) -> None:
    code = TWICE + "\nopen(sys.argv[1] + '/up', 'w').close()\nsys.stdin.read()"
    with subprocess.Popen(
        [
            sys.executable, "-m", "memory", "run", "--output", str(tmp_path), "--",
            sys.executable, "-c", code, str(tmp_path), "1",
        ],
        cwd=Path(__file__).parents[3], stdin=subprocess.PIPE,
    ) as process:  # fmt: skip
        wait_for(lambda: (tmp_path / "up").exists() and (tmp_path / "memory.ring").exists())
        history = read_history(tmp_path)
        running = ending(history.evidence, history.last)
        process.communicate(timeout=60)
    assert not running.is_bad
    history = read_history(tmp_path)
    ended = ending(history.evidence, history.last)
    (tmp_path / "outcome.json").unlink()  # as where all of it was killed
    history = read_history(tmp_path)
    golden.text("\n".join([running.words, ended.words, ending(history.evidence, history.last).words]))
