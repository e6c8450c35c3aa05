"""`python -m analysis fit`."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_sweeps import command_in, make_one

from analysis.__main__ import main
from tests.golden_text import Golden

FLOPS = np.geomspace(1e13, 1e16, 8)


def write_csvs(folder: Path, x: Sequence[float], y: Sequence[float]) -> Path:
    folder.mkdir()
    for place, (flops, loss) in enumerate(zip(x, y, strict=True)):
        (folder / f"{place}.csv").write_text(
            f"step,flops,loss\n1,{flops / 2:.9g},9\n2,{flops:.9g},{loss:.9g}\n"
        )
    return folder


@pytest.fixture
def csvs(tmp_path: Path) -> Path:
    noise = np.random.default_rng(0).normal(size=8)
    return write_csvs(
        tmp_path / "scaling", FLOPS.tolist(), (2.5 + 300 * FLOPS**-0.15 + 0.003 * noise).tolist()
    )


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert main(["fit", *arguments, "--json", "--draws", "60"]) == 0
    return json.loads(capsys.readouterr().out)


def test_json_of_a_power_law(csvs: Path, capsys: pytest.CaptureFixture[str], golden: Golden) -> None:
    found = told(capsys, str(csvs), "--x", "flops", "--y", "loss")
    assert found["identified"] is True
    for name, true in (("E", 2.5), ("A", 300), ("alpha", 0.15)):
        assert found[name]["low"] <= found[name]["value"] <= found[name]["high"]
        assert found[name]["low"] < true < found[name]["high"]
    assert 0.999 < found["r2"]["value"] < 1
    assert (found["x"], found["y"]) == ("flops", "loss")
    golden.text(found["x_unit"])
    assert len(found["points"]) == len(found["without"]) == 8
    assert found["foretold"][0]["x"] == pytest.approx(1e17)
    assert found["huber"]["E"] == pytest.approx(2.5, abs=0.2)


def test_the_page_says_what_x_is_and_warns_of_what_is_far(
    csvs: Path, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    assert main(["fit", str(csvs), "--x", "flops", "--draws", "60", "--at", "1e16,1e19"]) == 0
    page = capsys.readouterr().out
    golden.text(page, numbers=False)
    assert page.count("warning") == 1
    assert "residuals: s.d. 0.00" in page


def test_a_profile_is_told_where_one_was_made(
    csvs: Path, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    given = ["fit", str(csvs), "--x", "flops", "--draws", "30"]
    assert main([*given, "--method", "huber"]) == 0
    golden.text(capsys.readouterr().out, numbers=False)


def test_an_e_that_the_data_do_not_hold_is_no_number(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    x = np.geomspace(1e15, 4e15, 6)
    noise = np.random.default_rng(1).normal(size=6)
    folder = write_csvs(tmp_path / "few", x.tolist(), (2.5 + 300 * x**-0.15 + 0.02 * noise).tolist())
    found = told(capsys, str(folder), "--x", "flops", "--y", "loss")
    assert found["identified"] is False
    assert found["E"]["value"] is None
    assert found["E"]["low"] == 0
    assert found["huber"]["E"] is None
    assert main(["fit", str(folder), "--x", "flops", "--draws", "60", "-o", str(tmp_path / "fit.svg")]) == 0
    page = capsys.readouterr().out
    golden.text(page, numbers=False)
    assert f"E                  ?   0 to {found['E']['high']:.4g}\n" in page  # and no other interval
    assert "<!-- E + " in (tmp_path / "fit.svg").read_text()  # the law's name in the legend


def test_a_fixed_e_and_the_data_that_contradict_it(
    csvs: Path, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    found = told(capsys, str(csvs), "--x", "flops", "--fix", "E=2.5")
    assert found["alpha"]["value"] == pytest.approx(0.15, abs=0.002)
    assert (found["fixed_E"], found["doubt"]) == (2.5, None)
    golden.text(told(capsys, str(csvs), "--x", "flops", "--fix", "E=1.5")["doubt"])


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--x", "tokens"],
        ["--x", "flops", "--where", "flops>1e15"],
        ["--x", "step"],
        ["--x", "flops", "--fix", "E=9"],
        ["--x", "flops", "--fix", "A=9"],
        ["--x", "flops", "--at", "-1"],
        ["--x", "flops", "--draws", "3"],
        ["--law", "isoflop", "--at", "1e9"],
        ["--law", "chinchilla", "--x", "flops"],
        ["--size", "flops"],
    ],
)
def test_mistakes_exit_2(
    csvs: Path, arguments: list[str], capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    assert main(["fit", str(csvs), *arguments]) == 2
    golden.text(capsys.readouterr().err)


def test_losses_that_are_all_equal_exit_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    folder = write_csvs(tmp_path / "flat", [1e3, 1e4, 1e5, 1e6], [5, 5, 5, 5])
    assert main(["fit", str(folder), "--x", "flops"]) == 2
    golden.text(capsys.readouterr().err)


@pytest.fixture
def scaling(new_run: Callable[..., Any]) -> Path:
    """Five sizes of two seeds, one run that died and one whose loss became nan."""
    for place, flops in enumerate((1e13, 3e13, 1e14, 3e14, 1e15)):
        for seed in (0, 1):
            made = new_run(f"s{place}-{seed}")
            loss = 2 + 100 * flops**-0.12 + (0.002 if seed else -0.002)
            tail = f"1,4096,{loss},{loss},0.003,1,{flops},1,4096,\n"
            finish(made, tail, loss, seed, state="done")
    finish(new_run("died"), "1,4096,9,9,0.003,1,5e15,1,4096,\n", 9.0, 2, state="cancelled")
    finish(new_run("lost"), "1,4096,nan,9,0.003,1,6e15,1,4096,\n", 9.0, 3, state="done")
    return made.path.parent


def finish(made: Any, row: str, loss: float, seed: int, *, state: str) -> None:
    made.config()
    made.status(state)
    made.run(identity=f"{made.path.name:0>64}", results={})
    header = "step,tokens,train_loss,val_loss,lr,grad_norm,flops,seconds,tokens_per_s,mfu\n"
    (made.path / "metrics.csv").write_text(header + row)
    told = {"step": 1, "tokens": 4096, "source": "val", "loss": loss, "eval_tokens": 4096}
    (made.path / "evals.jsonl").write_text(json.dumps(told) + "\n")


def test_seeds_are_one_point_and_runs_that_died_are_told(
    scaling: Path, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    found = told(capsys, str(scaling))
    assert [point["seeds"] for point in found["points"]] == [2] * 5
    assert found["alpha"]["value"] == pytest.approx(0.12, abs=0.01)
    assert found["seed_deviation"] == pytest.approx(0.002 * 2**0.5, rel=0.01)
    assert [line.partition(":")[0] for line in found["left_out"]] == ["died", "lost"]
    main(["fit", str(scaling), "--draws", "60"])
    page = capsys.readouterr().out
    golden.text(page, numbers=False)


def test_of_too_few_sizes_more_are_run_in_the_same_study(
    scaling: Path, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    given = ["fit", str(scaling), "--where", "run=s0-*,s1-*,died,lost"]
    assert main(given) == 2
    said = capsys.readouterr().err
    golden.text(said, numbers=False)
    typed = shlex.split(command_in(said))
    assert typed[:3] == ["python", "experiments.py", "-m"]
    assert "model=32d,48d,64d,96d,128d" in typed


def test_losses_of_different_data_do_not_mix(
    scaling: Path, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    path = scaling / "s0-0" / "run.json"
    plain = json.loads(path.read_text())
    plain["data"]["fingerprint"] = "other"
    path.write_text(json.dumps(plain))
    assert main(["fit", str(scaling)]) == 2
    said = capsys.readouterr().err
    golden.text(said, numbers=False)
    assert main(["fit", str(scaling), "--any-data", "--draws", "30"]) == 0


def test_chinchilla_needs_sizes_and_tokens_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    (tmp_path / "c").mkdir()
    for place, n in enumerate(np.geomspace(1e5, 1e8, 8)):
        (tmp_path / "c" / f"{place}.csv").write_text(f"n,d,loss\n{n},{20 * n},{2 + 300 * n**-0.3}\n")
    given = ["fit", str(tmp_path / "c"), "--law", "chinchilla", "--size", "n", "--tokens", "d"]
    assert main(given) == 2
    golden.text(capsys.readouterr().err)


def test_runs_over_size_and_tokens_are_told_as_runs(
    new_run: Callable[..., Any], capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    for place, n in enumerate((1e5, 3e5, 1e6)):
        for ratio in (10, 100):
            made = new_run(f"s{place}-{ratio}")
            loss = 2 + 30 * n**-0.3 + 30 * (n * ratio) ** -0.3
            finish(made, f"1,{n * ratio},{loss},{loss},0.003,1,1e9,1,4096,\n", loss, place, state="done")
            made.run(identity=f"{made.path.name:0>64}", results={}, non_embedding=n)
    study = str(made.path.parent)
    assert main(["fit", study, "--law", "chinchilla", "--draws", "30"]) == 0
    page = capsys.readouterr().out
    golden.text(page, numbers=False)
    given = ["fit", study, "--law", "chinchilla", "--where", "non_embedding<1e6"]
    assert main(given) == 2
    said = capsys.readouterr().err
    golden.text(said, numbers=False)
    typed = shlex.split(command_in(said))
    assert "model=32d,64d,128d" in typed
    assert "training.max_steps=200,600,1800" in typed


def test_the_goals_on_real_curves(shared_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(shared_data / "scaling_runs" / "x2_modern")
    found = told(capsys, folder, "--law", "power", "--x", "theoretical_flops", "--y", "validation_loss")
    assert round(found["E"]["value"], 4) == 2.6034
    assert round(found["A"]["value"], 2) == 293.84
    assert round(found["alpha"]["value"], 5) == 0.13441
    assert round(found["r2"]["value"], 5) == 0.99970
    fixed = told(capsys, folder, "--x", "theoretical_flops", "--y", "validation_loss", "--fix", "E=1.9")
    assert (round(fixed["A"]["value"], 2), round(fixed["alpha"]["value"], 5)) == (108.51, 0.09931)
    other = told(capsys, folder, "--x", "total_flops_profiler", "--y", "validation_loss")
    assert round(other["E"]["value"], 3) == 2.556
    assert told(capsys, folder, "--x", "theoretical_flops", "--law", "envelope")["runs_on_it"]


def test_runs_of_one_size_on_different_budgets_are_no_seeds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = tmp_path / "sweep"
    for width in (32, 48, 64, 96, 128):
        make_one(study, width, 0.01, 0)
    short = make_one(study, 32, 0.01, 1, steps=4, off=1.0)
    told = json.loads((short / "run.json").read_text())
    told["config"]["training"]["max_tokens"] = 4 * 4096
    (short / "run.json").write_text(json.dumps(told))
    assert main(["fit", str(study), "--x", "non_embedding", "--draws", "20", "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert plain["other_settings"] == [short.name]
    assert any("budget_tokens" in note for note in plain["notes"])
