"""Two runs side by side: what differs, by how much, and what of their configs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from made_runs import MB, MadeStages, make_killed, sample_of, write_outcome, write_ring

from memory.__main__ import main
from memory.report.compare import compared
from memory.report.compare_views import growth_words
from memory.report.history import read_history
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


def test_stages_are_paired_by_their_paths(tmp_path: Path) -> None:
    a, b = make_calm(tmp_path / "a"), make_killed(tmp_path / "b")
    found = compared(read_history(a), read_history(b))
    assert [pair.path for pair in found.stages] == [
        ("start",), ("build",), ("build", "weights"), ("build", "optimizer"), ("cache",), ("train",),
        ("evaluate",),
    ]  # fmt: skip
    stages = {pair.path: pair for pair in found.stages}
    assert stages["cache",].b is None
    assert stages["evaluate",].a is None
    after = stages["train",].pair("unreclaimable_bytes")
    assert (after.a, after.b) == ((110 + 30 + 12) * MB, (210 + 110 + 12) * MB)
    assert after.difference == 180 * MB
    assert stages["cache",].pair("seconds").difference is None


def test_json_holds_the_differences(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = make_calm(tmp_path / "a"), make_calm(tmp_path / "b", extra_mb=70)
    assert main(["compare", str(a), str(b), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["highest_unreclaimable_bytes"] == {"a": 152 * MB, "b": 222 * MB, "difference": 70 * MB}
    assert told["parts_at_highest_bytes"]["main"]["difference"] == 70 * MB
    assert told["parts_at_highest_bytes"]["workers"]["difference"] == 0
    assert {tuple(stage["path"]): stage["change_bytes"]["difference"] for stage in told["stages"]} == {
        ("start",): 0, ("cache",): 70 * MB, ("train",): 0,
    }  # fmt: skip
    assert told["config"] is None


def test_configs_are_compared_where_both_have_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    one = {"model": {"width": 32, "layers": 2}, "training": {"micro_batch": 8}, "runs_dir": "x", "only": 1}
    other = {"model": {"width": 64, "layers": 2}, "training": {"micro_batch": 8}, "runs_dir": "y"}
    a, b = make_calm(tmp_path / "a", config=one), make_calm(tmp_path / "b", config=other)
    assert main(["compare", str(a), str(b), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["config"] == {"model.width": ["32", "64"], "only": ["1", "-"]}
    assert main(["compare", str(a), str(b)]) == 0
    golden.text(capsys.readouterr().out)
    assert main(["compare", str(a), str(a), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["config"] == {}


def test_a_config_yaml_serves_where_run_json_is_gone(tmp_path: Path) -> None:
    a, b = make_calm(tmp_path / "a"), make_calm(tmp_path / "b")
    (a / "config.yaml").write_text("model: {width: 32}\n")
    (b / "config.yaml").write_text("model: {width: 64}\n")
    assert compared(read_history(a), read_history(b)).config == {"model.width": ("32", "64")}
    (b / "config.yaml").write_text("model: [unclosed\n")
    assert compared(read_history(a), read_history(b)).config is None


def test_words_say_which_part_grew(tmp_path: Path, golden: Golden) -> None:
    a, b, c = (make_calm(tmp_path / name, extra) for name, extra in (("a", 0), ("b", 70), ("c", 0)))
    pairs = [(a, b), (b, a), (a, c)]
    told = [growth_words(compared(read_history(one), read_history(other))) for one, other in pairs]
    golden.text("\n".join(told))


def test_runs_that_share_no_stage(tmp_path: Path, capsys: pytest.CaptureFixture[str], golden: Golden) -> None:
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    write_ring(foreign, [sample_of(i, 10 * i, (5 * i,)) for i in range(9)])
    a = make_calm(tmp_path / "a")
    for names in ((a, foreign), (foreign, a), (foreign, foreign)):
        assert main(["compare", *map(str, names), "--html", "--output", str(tmp_path)]) == 0
        golden.text(capsys.readouterr().out)
    assert (tmp_path / "memory-compared.html").stat().st_size > 10_000


def test_a_run_without_records_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = make_calm(tmp_path / "a")
    (tmp_path / "empty").mkdir()
    assert main(["compare", str(a), str(tmp_path / "empty")]) == 2
    assert str(tmp_path / "empty") in capsys.readouterr().err


def test_runs_of_one_name_are_told_by_their_folders_and_how_they_ended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    """Around a foreign command folders have any name; of one that was killed the highest U is no peak."""
    a, b = make_calm(tmp_path / "one" / "mem"), make_calm(tmp_path / "other" / "mem", extra_mb=20)
    write_ring(a, [sample_of(at, 100 + at) for at in range(8)])
    kernel = {"counters_before": {"oom_kill": 0}, "counters_after": {"oom_kill": 1}}
    write_outcome(a, 9.5, victim={"is_main": True, "pid": 100}, **kernel)
    assert main(["compare", str(a), str(b)]) == 0
    text = capsys.readouterr().out
    golden.text(text)
    assert main(["compare", str(a), str(b), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["a"]["ended"] in text
