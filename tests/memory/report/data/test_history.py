"""Records and samples of a folder become attempts, tracks, moments, stages, and an end."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from made_runs import BEGUN_S, LIMIT, MB, MadeStages, make_killed, sample_of, write_outcome, write_ring
from supervised import wait_for

from memory.report.data.ending import ending, events
from memory.report.data.history import read_history
from memory.report.data.processes import process_rows
from tests.golden_text import Golden, refused

ROOT = Path(__file__).parents[4]


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    return make_killed(tmp_path / "killed")


def test_samples_and_records_become_one_history(killed: Path) -> None:
    history = read_history(killed)
    track = history.last.main
    assert (track.records, track.samples) == (13, 73)
    assert [moment.at_s for moment in track.moments] == sorted(moment.at_s for moment in track.moments)
    assert track.highest is not None
    assert track.highest.u == (210 + 608 + 70 + 12) * MB == LIMIT
    assert track.highest.is_sample
    assert (track.stage_at(1.5), track.stage_at(30.0)) == ("build > weights", "train")
    end = ending(history, history.last)
    assert (end.where, end.oom_kills, end.is_bad) == ("train", 1, True)
    found = events(history, history.last)
    assert [(one.at_s, one.is_bad) for one in found] == [
        (pytest.approx(36.0), True),
        (pytest.approx(36.2), True),
    ]


def test_rows_hold_the_amounts_of_records_and_samples(killed: Path) -> None:
    rows = {row.path: row for row in read_history(killed).last.main.rows}
    assert list(rows) == [
        ("start",), ("build",), ("build", "weights"), ("build", "optimizer"), ("train",), ("evaluate",),
    ]  # fmt: skip
    start, build, train = rows["start",], rows["build",], rows["train",]
    assert (start.times, start.seconds) == (1, 1.0)
    assert (start.before_bytes, start.unreclaimable_bytes) == (32 * MB, 112 * MB)
    assert (start.change_bytes, start.anon_change_bytes) == (80 * MB, 80 * MB)
    assert build.highest_bytes is not None
    assert build.highest_bytes >= 232 * MB, "a stage within it held more than it did before and after"
    assert (train.times, train.ended, train.seconds, train.peak_rss_bytes) == (2, False, 7.0, None)
    assert train.highest_bytes == LIMIT, "samples after its last begin count"
    assert train.before_bytes == (200 + 110 + 12) * MB


def test_neighbours_are_not_workers(tmp_path: Path) -> None:
    made = MadeStages(tmp_path / "memory.jsonl")
    record = made.record("begin", "train", 5.0, 100, workers_mb=(20, 30), other_mb=40)
    for worker in record["snapshot"]["workers"]:
        worker["anon_bytes"] += 90 * MB  # shared with the main process
    made.path.write_text(json.dumps(record) + "\n")
    alone = read_history(tmp_path).last.main.highest
    neighbours = [(1, 10), (5, 40), (9, 60)]
    write_ring(tmp_path, [replace(sample_of(at, 90), neighbours_anon_bytes=mb * MB) for at, mb in neighbours])
    sampled = read_history(tmp_path).last.main.highest
    assert alone is not None
    assert sampled is not None
    assert (alone.workers, alone.other) == (90 * MB, 0)
    assert (sampled.workers, sampled.other, sampled.u) == (50 * MB, 40 * MB, alone.u)


@pytest.mark.parametrize(
    ("peak", "file_mb", "highest_mb"),
    [
        ({"rss_bytes": 141 * MB, "samples": 0}, 6, 135),
        ({"rss_bytes": 141 * MB, "samples": 3}, 6, 100),
        ({"rss_bytes": 141 * MB, "samples": 0}, 80, 100),
        ({"rss_bytes": None}, 6, 100),
    ],
)
def test_highest_counts_peak_rss_of_stage(
    tmp_path: Path, peak: dict[str, object], file_mb: int, highest_mb: int
) -> None:
    made = MadeStages(tmp_path / "memory.jsonl")
    records = [made.record(event, "sort", at_s, 88) for event, at_s in (("begin", 0.0), ("end", 4.0))]
    assert records[1]["snapshot"]["unreclaimable_bytes"] == 100 * MB
    records[1]["snapshot"]["main"]["file_bytes"] = file_mb * MB
    records[1]["peak"] = peak
    made.path.write_text("".join(json.dumps(record) + "\n" for record in records))
    track = read_history(tmp_path).last.main
    assert track.highest is not None
    assert (track.highest.u, track.rows[0].highest_bytes) == (highest_mb * MB, highest_mb * MB)
    if highest_mb > 100:
        assert (track.highest.is_by_rss, track.highest.at_s) == (True, 2.0)
        assert track.highest.main == highest_mb * MB
        assert process_rows(track.moments)[0].highest_bytes == highest_mb * MB


@pytest.mark.parametrize("content", [b"", bytes(range(1, 256)) * 9])
def test_damaged_files_are_named(tmp_path: Path, content: bytes) -> None:
    ring, records = tmp_path / "memory.ring", tmp_path / "memory.jsonl"
    ring.write_bytes(content)
    records.write_bytes(content)
    with refused("damaged-records") as error:
        read_history(tmp_path)
    assert all(name in str(error.value) for name in ("memory.ring", "memory.jsonl"))
    records.unlink()
    MadeStages(records).record("begin", "train", 0.0, 100)
    assert any("memory.ring" in note for note in read_history(tmp_path).notes)


def test_damaged_stages(tmp_path: Path) -> None:
    made = MadeStages(tmp_path / "memory.jsonl")
    made.record("begin", "torn", 0.0, 10)
    made.stage("outer", 1.0, 2.0, 10, 20)
    made.record("end", "nowhere", 3.0, 20, seconds=1.0)
    peak = {"rss_bytes": 900 * MB, "gpu_bytes": None, "sampled_unreclaimable_bytes": 700 * MB, "samples": 4}
    made.record("end", "torn", 4.0, 20, peak=peak)
    rows = read_history(tmp_path).last.main.rows
    assert [(row.path, row.times, row.ended) for row in rows] == [
        (("torn",), 1, True), (("outer",), 1, True), (("nowhere",), 0, True),
    ]  # fmt: skip
    assert (rows[0].peak_rss_bytes, rows[0].highest_bytes) == (900 * MB, 700 * MB)


def test_kills_are_those_that_explain_counts(killed: Path) -> None:
    neighbour = {"path": "/job", "limit_bytes": LIMIT, "oom_kill_before": 1, "oom_kill_after": 2}
    own = {"path": "/job/task", "limit_bytes": None, "oom_kill_before": 0, "oom_kill_after": 0}
    counts = {"counters_before": {"oom_kill": 1}, "counters_after": {"oom_kill": 2}}
    # v1: outcome.json counts a tree of cgroups, a sample those above the run; two are known, one was sampled
    for after, kills, marks in ((0, 0, 1), (2, 2, 3)):
        own |= {"oom_kill_after": after}
        write_outcome(killed, 36.2, cgroup_path="/job/task", parents=[own, neighbour], **counts)
        history = read_history(killed)
        end = ending(history, history.last)
        assert end.oom_kills == kills
        assert len(events(history, history.last)) == marks


def test_duration_ends_when_its_supervisor_saw_the_end(tmp_path: Path) -> None:
    write_ring(tmp_path, [sample_of(0.2, 10)])
    for ended_s, attempt, lasted_s in ((None, 1, 0.2), (4.3, 1, 4.3), (9.0, 2, 0.2)):
        if ended_s is not None:
            write_outcome(tmp_path, ended_s, attempt=attempt, exit_code=0, signal=None, by="exit")
        assert read_history(tmp_path).last.lasted_s == pytest.approx(lasted_s)


def test_process_has_the_name_of_when_it_held_most(tmp_path: Path) -> None:
    names = {1: "bash", 2: "bash", 3: "python", 4: "python", 5: "sleep"}
    samples = []
    for at, name in names.items():
        seen = sample_of(at, 200 if name == "python" else 2)
        samples.append(replace(seen, tree=(replace(seen.tree[0], name=name),)))
    write_ring(tmp_path, samples)
    assert [row.name for row in process_rows(read_history(tmp_path).last.main.moments)] == ["python"]


@pytest.mark.parametrize("damage", [{}, {
    "memory.jsonl": b"\0\0\0\n{torn\n[1]\n" + b'{"rank": 0, "stage": "x"',
    "memory.ring": b"HWRING1\n" + bytes(100), "outcome.json": b"[]",
}])  # fmt: skip
def test_folder_without_records_is_refused(tmp_path: Path, damage: dict[str, bytes]) -> None:
    for name, content in damage.items():
        (tmp_path / name).write_bytes(content)
    with refused("damaged-records" if damage else "no-records"):
        read_history(tmp_path)


def test_notes_name_damage(killed: Path, golden: Golden) -> None:
    with open(killed / "memory.jsonl", "a") as file:
        file.write('{"torn": \n')
    (killed / "outcome.json").write_text("x")
    history = read_history(killed)
    assert history.last.main.highest is not None
    golden.text("\n".join(history.notes))


def test_sample_before_the_first_stage_is_the_zero(tmp_path: Path) -> None:
    MadeStages(tmp_path / "memory.jsonl", begun_s=BEGUN_S + 3.0).stage("start", 0.0, 1.0, 10, 20)
    write_ring(tmp_path, [sample_of(i, 5) for i in range(6)])
    track = read_history(tmp_path).last.main
    assert track.moments[0].at_s == 0.0
    assert (track.spans[0].begin_s, track.spans[0].end_s) == (3.0, 4.0)
    assert track.at(BEGUN_S + 2.0) == pytest.approx(2.0)


def test_long_run_is_thinned_as_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memory.report.data.history._HELD", 400)
    monkeypatch.setattr("memory.report.data.history.POINTS", 100)
    monkeypatch.setattr("memory.report.data.stage_rows.SPANS", 50)
    made = MadeStages(tmp_path / "memory.jsonl")
    for i in range(1500):
        made.stage("train", float(i), i + 0.9, 100, 999 if i == 777 else 101)
    track = read_history(tmp_path).last.main
    assert len(track.moments) <= 100
    assert track.highest is not None
    assert (track.highest.u, track.highest.at_s) == ((999 + 12) * MB, 777.9)
    assert track.moments[-1].at_s == 1499.9
    (row,) = track.rows
    assert (row.times, row.highest_bytes, row.seconds) == (1500, (999 + 12) * MB, pytest.approx(1350))
    assert len(track.spans) <= 200


def test_ranks(tmp_path: Path) -> None:
    for rank in range(3):
        name = "memory.jsonl" if rank == 0 else f"memory.rank{rank}.jsonl"
        MadeStages(tmp_path / name, rank=rank).stage("train", 0.0, 5.0, 100, 100)
    for pid, ranks, main in ((100, [0, 1, 2], 0), (77, [0, 1, 2, None], None)):
        write_ring(tmp_path, [sample_of(i, 120) for i in range(5)], pid=pid)
        (attempt,) = read_history(tmp_path).attempts
        assert [track.rank for track in attempt.tracks] == ranks
        assert attempt.main.rank == main, "the sampled process"


TWICE = f"""
import sys; sys.path.insert(0, {str(ROOT)!r})
from memory import record_to, stage
with record_to(sys.argv[1], attempt=1), stage("load"):
    held = bytearray(b"x") * (int(sys.argv[2]) << 20)
"""


@pytest.mark.parametrize("is_watched", [False, True])
def test_command_that_ran_again_in_its_folder(tmp_path: Path, is_watched: bool) -> None:
    watched = [sys.executable, "-m", "memory", "run", "--output", str(tmp_path), "--"] if is_watched else []
    for megabytes in (300, 8):
        command = [*watched, sys.executable, "-c", TWICE, str(tmp_path), str(megabytes)]
        subprocess.run(command, cwd=ROOT, check=True, timeout=120)
    history = read_history(tmp_path)
    (attempt,) = history.attempts
    (row,) = attempt.main.rows
    assert (row.times, attempt.main.records, bool(attempt.main.samples)) == (1, 2, is_watched)
    assert (row.highest_bytes or 0) - (row.before_bytes or 0) < 100 * MB, "the first of the two is over"
    assert len(history.notes) >= 1
    assert not ending(history, attempt).is_bad


@pytest.mark.parametrize("later_attempt", [None, 2])
def test_samples_are_of_the_process_that_they_watched(tmp_path: Path, later_attempt: int | None) -> None:
    """A second process in the folder, sampled as attempt 1: without records, or with records of attempt 2."""
    MadeStages(tmp_path / "memory.jsonl", begun_s=BEGUN_S - 1000).stage("load", 0.0, 1.0, 10, 300)
    if later_attempt:
        MadeStages(tmp_path / "memory.jsonl", attempt=later_attempt).stage("load", 0.0, 1.0, 10, 30)
    write_ring(tmp_path, [sample_of(i, 15) for i in range(3)], attempt=1, pid=200)
    write_outcome(tmp_path, 3.0, pid=200, exit_code=1, signal=None)
    attempts = read_history(tmp_path).attempts
    found = [(one.number, len(one.main.rows), one.main.samples) for one in attempts]
    assert found == ([(1, 1, 0), (2, 1, 3)] if later_attempt else [(1, 0, 3)])


def test_outcome_of_an_earlier_attempt_is_not_of_the_last(tmp_path: Path) -> None:
    MadeStages(tmp_path / "memory.jsonl").stage("train", 0.0, 2.0, 10, 20)
    write_ring(tmp_path, [sample_of(i, 15) for i in range(3)], attempt=1, pid=200)
    sent = [{"signal": "SIGTERM", "time_s": BEGUN_S + 1}]
    write_outcome(tmp_path, 3.0, pid=200, signals_passed_on=sent)
    history = read_history(tmp_path)
    found = events(history, history.last)
    assert [one.at_s for one in found] == [1.0, 3.0]
    MadeStages(tmp_path / "memory.jsonl", attempt=2, begun_s=BEGUN_S + 100).stage("train", 0.0, 5.0, 10, 20)
    history = read_history(tmp_path)
    end = ending(history, history.last)
    assert (history.last.number, end.is_bad) == (2, False)
    assert events(history, history.last) == []
    assert [one.main.samples for one in history.attempts] == [3, 0]


def test_end_of_a_run_between_two_stages(tmp_path: Path, golden: Golden) -> None:
    code = TWICE + "\nopen(sys.argv[1] + '/up', 'w').close()\nsys.stdin.read()"
    watched = [sys.executable, "-m", "memory", "run", "--output", str(tmp_path), "--", sys.executable, "-c"]
    with subprocess.Popen([*watched, code, str(tmp_path), "1"], cwd=ROOT, stdin=subprocess.PIPE) as process:
        wait_for(lambda: (tmp_path / "up").exists() and (tmp_path / "memory.ring").exists())
        ends = [ending(one := read_history(tmp_path), one.last)]
        process.communicate(timeout=60)
    ends.append(ending(one := read_history(tmp_path), one.last))
    (tmp_path / "outcome.json").unlink()  # all of it was killed
    ends.append(ending(one := read_history(tmp_path), one.last))
    assert [end.is_bad for end in ends] == [False] * 3
    golden.text("\n".join(end.words for end in ends))
