"""Two runs compared: stages paired, differences of amounts and configs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from made_runs import MB, MadeStages, make_killed, sample_of, write_outcome, write_ring

from memory.__main__ import main
from memory.report.data.comparison import Comparison
from memory.report.data.history import read_history
from tests.golden_text import Golden


def make_calm(folder: Path, extra_mb: int = 0, config: dict[str, object] | None = None) -> Path:
    folder.mkdir(parents=True)
    made = MadeStages(folder / "memory.jsonl")
    made.stage("start", 0.0, 1.0, 20, 100)
    made.stage("cache", 1.0, 1.5, 100, 100 + extra_mb)
    made.stage("train", 2.0, 9.0, 100 + extra_mb, 110 + extra_mb, workers_mb=(30,))
    if config is not None:
        (folder / "run.json").write_text(json.dumps({"config": config}))
    return folder


def compared(a: Path, b: Path) -> Comparison:
    return Comparison(read_history(a), read_history(b))


def test_stages_are_paired_by_path(tmp_path: Path) -> None:
    found = compared(make_calm(tmp_path / "a"), make_killed(tmp_path / "b"))
    assert [pair.path for pair in found.stages] == [
        ("start",), ("build",), ("build", "weights"), ("build", "optimizer"), ("cache",), ("train",),
        ("evaluate",),
    ]  # fmt: skip
    stages = {pair.path: pair for pair in found.stages}
    assert (stages["cache",].b, stages["evaluate",].a) == (None, None)
    after = stages["train",].pair("unreclaimable_bytes")
    assert (after.a, after.b) == ((110 + 30 + 12) * MB, (210 + 110 + 12) * MB)
    assert after.difference == 180 * MB
    assert stages["cache",].pair("seconds").difference is None


def test_json_holds_the_differences(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = make_calm(tmp_path / "a"), make_calm(tmp_path / "b", extra_mb=70)
    assert main(["compare", str(a), str(b), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert sorted(found) == [
        "a", "b", "config", "highest_anon_bytes", "highest_unreclaimable_bytes", "parts_at_highest_bytes",
        "processes", "seconds", "stages", "version", "written",
    ]  # fmt: skip
    assert found["highest_unreclaimable_bytes"] == {"a": 152 * MB, "b": 222 * MB, "difference": 70 * MB}
    assert found["parts_at_highest_bytes"]["main"]["difference"] == 70 * MB
    assert found["highest_anon_bytes"]["workers"] == {"a": 30 * MB, "b": 30 * MB, "difference": 0}
    assert {tuple(stage["path"]): stage["change_bytes"]["difference"] for stage in found["stages"]} == {
        ("start",): 0, ("cache",): 70 * MB, ("train",): 0,
    }  # fmt: skip
    assert found["config"] is None


def test_configs(tmp_path: Path) -> None:
    one = {"model": {"width": 32, "layers": 2}, "training": {"micro_batch": 8}, "runs_dir": "x", "only": 1}
    other = {"model": {"width": 64, "layers": 2}, "training": {"micro_batch": 8}, "runs_dir": "y"}
    a, b = make_calm(tmp_path / "a", config=one), make_calm(tmp_path / "b", config=other)
    assert compared(a, b).config == {"model.width": ("32", "64"), "only": ("1", "-")}
    assert compared(a, a).config == {}
    (b / "run.json").unlink()
    (b / "config.yaml").write_text("model: {width: 16}\n")
    assert (compared(a, b).config or {})["model.width"] == ("32", "16")
    (b / "config.yaml").write_text("model: [unclosed\n")
    assert compared(a, b).config is None


def test_text(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    golden: Golden,
) -> None:
    """Runs of one name that differ in their configs; one was killed; one has samples alone."""
    monkeypatch.chdir(tmp_path)  # lines are wrapped, and tmp_path differs in length
    a = make_calm(Path("one", "mem"), config={"model": {"width": 32}, "only": 1})
    b = make_calm(Path("other", "mem"), extra_mb=20, config={"model": {"width": 64}})
    write_ring(a, [sample_of(at, 100 + at) for at in range(8)])
    kernel = {"counters_before": {"oom_kill": 0}, "counters_after": {"oom_kill": 1}}
    write_outcome(a, 9.5, victim={"is_main": True, "pid": 100}, **kernel)
    foreign = Path("foreign")
    foreign.mkdir()
    write_ring(foreign, [sample_of(i, 10 * i, (5 * i,)) for i in range(9)])
    for pair in ((a, b), (a, foreign), (foreign, a), (foreign, foreign)):
        assert main(["compare", *map(str, pair), "--html", "--output", "."]) == 0
        text = capsys.readouterr().out
        assert max(map(len, text.partition("By stage")[2].splitlines()[:-2] or [""])) <= 80
        golden.text(text)
    assert Path("memory-compared.html").stat().st_size > 10_000
