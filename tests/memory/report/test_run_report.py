"""The command `report`: text of 80 columns, JSON, files."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from made_runs import BEGUN_S, LIMIT, MB, MadeStages, make_killed, sample_of, write_ring

from memory.__main__ import main
from memory.measure.process import Process
from memory.measure.snapshot import Snapshot
from memory.report.data.history import read_history
from memory.report.data.run_json import run_json
from memory.report.plain_text import encodable
from memory.report.run_report import lines_of
from tests.golden_text import Golden


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    return make_killed(tmp_path / "killed")


def make_attempts(folder: Path) -> None:
    for number, peak in ((1, 100), (2, 300), (3, 200)):
        made = MadeStages(folder / "memory.jsonl", attempt=number, begun_s=BEGUN_S + 1000 * number)
        made.stage("start", 0.0, 1.0, 10, peak)
        if number == 2:
            made.record("begin", "train", 1.0, peak)


def make_ranks(folder: Path) -> None:
    for rank in range(3):
        name = "memory.jsonl" if rank == 0 else f"memory.rank{rank}.jsonl"
        MadeStages(folder / name, rank=rank).stage("train", 0.0, 5.0, 100, 100 + 50 * rank)
    write_ring(folder, [sample_of(i, 120) for i in range(5)])


def make_resident_only(folder: Path) -> None:
    made = MadeStages(folder / "memory.jsonl")
    record = made.record("begin", "start", 0.0, 10)
    made.path.unlink()
    with open(made.path, "a") as file:
        for event, rss in (("begin", 100), ("end", 300)):
            bare = Snapshot(BEGUN_S, Process(1, "python", rss_bytes=rss * MB)).to_json()
            file.write(json.dumps(record | {"event": event, "snapshot": bare}) + "\n")


def make_deep(folder: Path) -> None:
    made = MadeStages(folder / "memory.jsonl")
    for depth in range(12):
        made.record("begin", f"a_stage_with_a_long_name_{depth}", float(depth), 100, depth=depth)
    make_killed(folder / "killed")


@pytest.mark.parametrize("make", [make_attempts, make_ranks, make_resident_only, make_deep])
def test_text(tmp_path: Path, make: object, capsys: pytest.CaptureFixture[str], golden: Golden) -> None:
    make(tmp_path)  # type: ignore[operator]
    history = read_history(tmp_path)
    lines = [line for attempt in history.attempts[-2:] for line in lines_of(history, attempt)]
    assert max(map(len, lines)) <= 80
    golden.text("\n".join(lines).replace(tmp_path.name, "RUN"))
    assert main(["report", str(tmp_path), "--html", "--png"]) == 0, "each kind can be drawn"


def test_json_keys_and_numbers(killed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(killed), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == json.loads(json.dumps(run_json(read_history(killed)) | {"written": []}))
    assert sorted(found) == ["attempts", "folder", "notes", "run", "version", "written"]
    (attempt,) = found["attempts"]
    assert sorted(attempt) == ["attempt", "ended", "ended_badly", "seconds", "tracks"]
    (track,) = attempt["tracks"]
    assert sorted(track) == [
        "limit_at", "limit_bytes", "peak", "processes", "rank", "records", "samples", "scope", "stages",
    ]  # fmt: skip
    assert sorted(track["stages"][0]) == [
        "after_bytes", "anon_change_bytes", "before_bytes", "change_bytes", "depth", "ended", "error",
        "gpu_peak_bytes", "highest_bytes", "path", "peak_rss_bytes", "rss_inside_bytes", "seconds", "stage",
        "thread", "times",
    ]  # fmt: skip
    peak = track["peak"]
    assert (peak["unreclaimable_bytes"], peak["stage"]) == (LIMIT, "train")
    assert peak["workers_anon_bytes"] == (608 + 70) * MB
    assert {row["pid"]: row["highest_anon_bytes"] // MB for row in track["processes"]} == {
        100: 220, 101: 608, 102: 70,
    }  # fmt: skip


def test_files_and_refusals(
    killed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    target = tmp_path / "new" / "folder"
    assert main(["report", str(killed), "--html", "--png", "--output", str(target)]) == 0
    names = ["memory-processes.png", "memory.html", "memory.png"]
    assert sorted(path.name for path in target.iterdir()) == names
    golden.text(capsys.readouterr().out)
    (tmp_path / "file").write_text("")
    assert main(["report", str(killed), "--html", "--output", str(tmp_path / "file")]) == 2
    assert main(["report", str(killed), "--attempt", "7"]) == 2
    assert main(["report", str(tmp_path / "new")]) == 2
    assert main(["report", str(tmp_path / "none")]) == 2
    assert main(["compare", str(killed), str(tmp_path / "new")]) == 2
    golden.text(capsys.readouterr().err, "refusals", numbers=False)


def test_nothing_heavy_is_loaded_by_a_report(killed: Path) -> None:
    program = (
        "import sys\nfrom memory.__main__ import main\n"
        f"main(['report', {str(killed)!r}, '--html', '--json'])\n"
        "heavy = {'matplotlib', 'numpy', 'torch', 'rich', 'psutil'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)


def test_chart_is_ascii_where_terminal_has_no_blocks(killed: Path) -> None:
    text = "\n".join(lines_of(read_history(killed)))
    assert encodable(text, "utf-8") == text
    encodable(text, "ascii").encode("ascii")


def test_one_record_is_not_plural(tmp_path: Path) -> None:
    MadeStages(tmp_path / "memory.jsonl").record("begin", "train", 0.0, 100)
    write_ring(tmp_path, [sample_of(1, 120)])
    (line,) = (line for line in lines_of(read_history(tmp_path)) if line.startswith("Over"))
    assert not {"samples", "records"} & set(line.split())
