"""Runs of one size that differ in more than their seed: no command takes them for seeds of each other."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_sweeps import RATES, best_rate, make_one, make_sweep, write

from analysis.__main__ import main
from analysis.reading import read_study
from analysis.reading.study import Run, Study
from analysis.report.summary_text import QUESTIONS
from analysis.setups import setup_columns
from tests.golden_text import Golden

Captured = pytest.CaptureFixture[str]


def told(capsys: Captured, *arguments: str) -> Any:
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def change(folder: Path, off: float = 0.0, **keys: Any) -> Path:
    """Another identity, its losses moved, keys of its optimizer set."""
    run = json.loads((folder / "run.json").read_text())
    run["identity"] = f"{abs(hash(str(folder))):064x}"
    run["config"]["optimizer"] |= keys
    write(folder, "run.json", run)
    evals = [json.loads(line) for line in (folder / "evals.jsonl").read_text().splitlines()]
    for record in evals:
        record["loss"] += off
        record["bits_per_byte"] = record["loss"] / math.log(2)
    (folder / "evals.jsonl").write_text("".join(json.dumps(record) + "\n" for record in evals))
    lines = [line.split(",") for line in (folder / "metrics.csv").read_text().splitlines()]
    for line in lines[1:]:
        line[3] = str(float(line[3]) + off) if line[3] else ""
    (folder / "metrics.csv").write_text("".join(",".join(line) + "\n" for line in lines))
    return folder


@pytest.fixture
def two_optimizers(tmp_path: Path) -> Path:
    """adamw, and muon whose best rates are four times as high, and its losses too by 0.2."""
    study = tmp_path / "two"
    for width in (32, 48, 64):
        for lr in RATES:
            change(make_one(study, width, lr, 0))
            change(make_one(study / "muon", width, lr, 0), 0.2, name="muon", lr=4 * lr)
    for folder in (study / "muon").iterdir():
        folder.rename(study / f"{folder.name}-muon")
    (study / "muon").rmdir()
    return study


def test_each_optimizer_has_its_own_best_rate_and_law(
    two_optimizers: Path, capsys: Captured, golden: Golden
) -> None:
    found = told(capsys, "best-lr", str(two_optimizers))
    assert [(one["model"], one["setup"]) for one in found] == [
        (model, name) for model in ("32d", "48d", "64d") for name in ("adamw", "muon")
    ]
    for one in found:
        true = best_rate(int(one["model"][:-1])) * (4 if one["setup"] == "muon" else 1)
        assert one["best_lr"] == pytest.approx(true, rel=0.01)
        assert one["law"]["exponent"]["value"] == pytest.approx(-0.9, abs=0.02)
        assert all(len(rate["losses"]) == 1 for rate in one["rates"])
    assert found[1]["law"]["factor"] == pytest.approx(4 * found[0]["law"]["factor"], rel=0.05)
    assert main(["best-lr", str(two_optimizers)]) == 0
    page = capsys.readouterr().out
    golden.text(page, numbers=False)


def test_the_report_tells_a_law_for_each(two_optimizers: Path, capsys: Captured, golden: Golden) -> None:
    lines = told(capsys, "report", str(two_optimizers), "-o", str(two_optimizers / "r.html"))["summary"]
    rates = next(one["lines"] for one in lines if one["about"] == QUESTIONS["rates"])
    golden.text("\n".join([line.partition(":")[0] for line in rates[-2:]]))


@pytest.mark.parametrize(
    ("decays", "apart"),
    [
        ({0.01: (0.1, 0.1), 0.02: (0.1, 0.1)}, False),
        ({0.01: (0.1, 0.1), 0.02: (0.2, 0.2)}, False),  # it goes with the rate
        ({0.01: (0.1, 0.2), 0.02: (0.1, 0.2)}, True),
        ({0.01: (0.1, 0.1), 0.02: (0.2, 0.2), 0.03: (0.2, 0.2)}, True),
    ],
)
def test_what_goes_with_the_rate_sets_no_runs_apart(decays: dict[float, Any], apart: bool) -> None:
    runs = [
        Run(f"{lr}-{seed}", Path(), "done", None, {"model": "32d", "lr": lr, "decay": one, "seed": seed},
            is_ours=False)
        for lr, each in decays.items() for seed, one in enumerate(each)
    ]  # fmt: skip
    study = Study("s", runs, (), frozenset({"model", "lr", "decay", "seed"}))
    assert setup_columns(study, runs, "model", "lr") == (["decay"] if apart else [])


def test_a_fit_stands_on_the_best_rate_of_each_size(tmp_path: Path, capsys: Captured, golden: Golden) -> None:
    """A mean over learning rates lies above the law."""
    study = tmp_path / "sweep"
    make_sweep(study, (32, 48, 64, 96, 128), seeds=2)
    found = told(capsys, "fit", str(study), "--draws", "40")
    runs = read_study([str(study)]).runs
    for point in found["points"]:
        same = [run for run in runs if run.number("flops") == pytest.approx(point["x"])]
        assert point["y"] == pytest.approx(min(run.number("val_loss") or 9 for run in same))
        assert point["seeds"] == 2
    assert found["seed_deviation"] == pytest.approx(0.0, abs=1e-9)
    assert len(found["other_settings"]) == 5 * 6 * 2
    golden.text(found["notes"][0], numbers=False)


def test_losses_that_rise_have_no_law(tmp_path: Path, capsys: Captured, golden: Golden) -> None:
    study = tmp_path / "rising"
    for place, width in enumerate((32, 48, 64, 96)):
        change(make_one(study, width, 0.01, 0), 1.5 * place)
    assert main(["fit", str(study)]) == 2
    error = capsys.readouterr().err
    golden.text(error, numbers=False)
    assert "Warning" not in error
    told_of = told(capsys, "report", str(study), "-o", str(tmp_path / "r.html"))
    scaling = next(one["lines"] for one in told_of["summary"] if one["about"] == QUESTIONS["scaling"])
    golden.text(scaling[0], numbers=False)


def test_all_losses_but_the_first_alike_have_no_law(tmp_path: Path, capsys: Captured, golden: Golden) -> None:
    for place, loss in enumerate((3.01, 2.88, 2.93, 2.91)):
        (tmp_path / f"{place}.csv").write_text(f"flops,loss\n{10.0 ** (10 + place):g},{loss}\n")
    assert main(["fit", str(tmp_path), "--x", "flops"]) == 2
    golden.text(capsys.readouterr().err)


def test_a_hole_beside_the_edge_is_no_reason_to_go_beyond(
    tmp_path: Path, capsys: Captured, golden: Golden
) -> None:
    study = tmp_path / "holes"
    rates = (0.001, 0.003, 0.01, 0.03)
    folders = {lr: make_one(study, 32, lr, 0) for lr in rates}
    make_sweep(study, (48,), rates)
    for lr, off in ((0.001, 0.9), (0.003, 0.5), (0.03, 0.0)):
        change(folders[lr], off)
    write(
        folders[0.01],
        "status.json",
        {"version": 1, "state": "failed", "step": 20, "reason": "the disk is full"},
    )
    small = next(one for one in told(capsys, "best-lr", str(study)) if one["model"] == "32d")
    assert small["pending"] == [0.01]
    golden.text(small["next"][0]["what"])
    assert not any("experiments.py" in (one["command"] or "") for one in small["next"])
    assert any("resubmit" in (one["command"] or "") for one in small["next"])


def test_partners_that_are_missing_are_told(tmp_path: Path, capsys: Captured, golden: Golden) -> None:
    for seed in (0, 1):
        change(make_one(tmp_path / "a", 32, 0.01, seed, off=0.01 * seed))
        for lr in (0.01, 0.02):
            change(make_one(tmp_path / "b", 32, lr, seed, off=0.013 * seed))
    found = told(capsys, "compare", str(tmp_path / "a"), str(tmp_path / "b"))
    assert found["differ_in"]["lr"] == ["0.01", "0.01, 0.02"]
    assert len(found["comparisons"][0]["pairs"]) == len(found["comparisons"][0]["alone"]) == 2
    assert main(["compare", str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    golden.text(capsys.readouterr().out, numbers=False)


def test_few_seeds_in_common_are_no_reason_to_forget_the_others(tmp_path: Path, capsys: Captured) -> None:
    generator = np.random.default_rng(0)
    for seed in range(8):
        if seed < 5:
            change(make_one(tmp_path / "a", 32, 0.01, seed, off=generator.normal(0, 0.02)))
        if seed > 2:
            change(make_one(tmp_path / "b", 32, 0.01, seed, off=generator.normal(-0.1, 0.02)), name="muon")
    one = told(capsys, "compare", str(tmp_path / "a"), str(tmp_path / "b"))["comparisons"][0]
    assert (one["paired"], one["alone"]) == (False, [])
    assert one["p"] < 0.01


def test_bits_a_byte_are_those_of_the_common_tokens(tmp_path: Path, capsys: Captured, golden: Golden) -> None:
    for seed in range(3):
        change(make_one(tmp_path / "a", 32, 0.01, seed, steps=40), 0.01 * seed)
        change(make_one(tmp_path / "b", 32, 0.01, seed, steps=80), 0.013 * seed, name="muon")
    given = ("compare", str(tmp_path / "a"), str(tmp_path / "b"), "--at-tokens", "common")
    nats, bits = told(capsys, *given), told(capsys, *given, "--y", "bits_per_byte")
    for group, other in zip(nats["groups"], bits["groups"], strict=True):
        assert other["mean"] == pytest.approx(group["mean"] / math.log(2))
    assert main([*given, "--y", "peak_bytes"]) == 2
    golden.text(capsys.readouterr().err)


def test_bits_a_byte_of_other_texts_are_told(tmp_path: Path, capsys: Captured, golden: Golden) -> None:
    for name, data in (("a", "11" * 32), ("b", "22" * 32)):
        folder = change(make_one(tmp_path / name, 32, 0.01, 0))
        run = json.loads((folder / "run.json").read_text())
        run["data"]["fingerprint"] = data
        write(folder, "run.json", run)
    found = told(capsys, "compare", str(tmp_path / "a"), str(tmp_path / "b"), "--y", "bits_per_byte")
    golden.text("\n".join(found["notes"]), numbers=False)


def test_curves_of_other_programs_compare_at_their_common_tokens(
    tmp_path: Path, capsys: Captured, golden: Golden
) -> None:
    for name, end in (("a", 10), ("b", 20)):
        (tmp_path / name).mkdir()
        rows = "".join(f"{step},{step * 1000},{5 - 0.1 * step}\n" for step in range(1, end + 1))
        (tmp_path / name / "run.csv").write_text("step,tokens,loss\n" + rows)
    given = [str(tmp_path / "a"), str(tmp_path / "b")]
    assert main(["compare", *given]) == 2
    golden.text(capsys.readouterr().err)
    found = told(capsys, "compare", *given, "--at-tokens", "common")
    assert found["at_tokens"] == 10_000
    assert [group["mean"] for group in found["groups"]] == pytest.approx([4.0, 4.0])


def test_runs_that_were_evaluated_in_other_rhythms_compare_where_all_were(
    tmp_path: Path, capsys: Captured, golden: Golden
) -> None:
    for name, every, end in (("a", 20, 100), ("b", 30, 90)):
        (tmp_path / name).mkdir()
        rows = "".join(f"{at * 1000},{5 - 0.01 * at}\n" for at in range(every, end + 1, every))
        (tmp_path / name / "run.csv").write_text("tokens,loss\n" + rows)
    given = ["compare", str(tmp_path / "a"), str(tmp_path / "b"), "--at-tokens"]
    found = told(capsys, *given, "common")
    assert found["at_tokens"] == 60_000
    assert [group["mean"] for group in found["groups"]] == pytest.approx([4.4, 4.4])
    (tmp_path / "b" / "run.csv").write_text("tokens,loss\n30000,4\n")
    assert main([*given, "common"]) == 2
    said = capsys.readouterr().err
    golden.text(said, numbers=False)
