"""`python -m analysis best-lr`."""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from composed_once import kept_composer
from made_sweeps import command_in

from analysis.__main__ import main
from conf.command_line.request import read_run
from tests.golden_text import Golden

RATES = (0.001, 0.003, 0.01, 0.03, 0.1)


def loss_at(lr: float, best: float, floor: float = 3.0) -> float:
    return floor + 0.3 * (math.log10(lr / best)) ** 2


@pytest.fixture
def sweep(new_run: Callable[..., Any]) -> Callable[..., Path]:
    """Runs of one size at these rates, in one study."""

    def made(
        best: float,
        *,
        rates: Iterable[float] = RATES,
        seeds: int = 1,
        wobble: float = 0.0,
        model: str = "32d",
    ) -> Path:
        for seed in range(seeds):
            for lr in rates:
                run = new_run(f"{model}-lr{lr:g}-seed{seed}")
                run.config(lr=lr)
                path = run.path / "config.yaml"
                text = path.read_text().replace("\nseed: 0\n", f"\nseed: {seed}\n")
                text = text.replace("name: 32d", f"name: {model}").replace(
                    "d_model: 32", f"d_model: {model[:-1]}"
                )
                path.write_text(text)
                loss = loss_at(lr, best) + wobble * (-1) ** seed * (1 if lr == 0.01 else -1)
                finish(run, loss, f"{model}{lr}{seed}")
        return Path(run.path.parent)

    return made


def finish(run: Any, loss: float, name: str, state: str = "done") -> None:
    run.status(state)
    run.run(identity=f"{name:0>64}", results={})
    header = "step,tokens,train_loss,val_loss,lr,grad_norm,flops,seconds,tokens_per_s,mfu\n"
    half = f"1,2048,{loss + 1},{loss + 1},0.003,1,5e8,0.5,4096,\n"
    (run.path / "metrics.csv").write_text(f"{header}{half}2,4096,{loss},{loss},0.003,1,1e9,1,4096,\n")
    evals = [
        {"step": step, "tokens": 2048 * step, "source": "val", "loss": value, "eval_tokens": 4096}
        for step, value in ((1, loss + 1), (2, loss))
    ]
    (run.path / "evals.jsonl").write_text("".join(json.dumps(one) + "\n" for one in evals))


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    assert main(["best-lr", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out, parse_constant=lambda text: pytest.fail(text))


def overrides(command: str) -> list[str]:
    parts = shlex.split(command)
    assert parts[:3] == ["python", "experiments.py", "-m"]
    return parts[3:]


def test_an_object_a_size(
    sweep: Callable[..., Path], capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    sweep(0.02, model="32d")
    study = sweep(0.005, model="64d")
    found = told(capsys, str(study))
    assert [one["model"] for one in found] == ["32d", "64d"]
    assert [one["best_lr"] for one in found] == [
        pytest.approx(0.02, rel=0.02),
        pytest.approx(0.005, rel=0.02),
    ]
    assert all(one["low"] <= one["best_lr"] <= one["high"] for one in found)
    assert found[0]["law"] is None
    golden.text(found[0]["next"][0]["what"])


def test_the_edge_of_the_grid_gets_a_command_that_goes_beyond(
    sweep: Callable[..., Path], capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    found = told(capsys, str(sweep(0.5)))[0]
    assert (found["edge"], found["high"], found["inside"]) == ("high", None, False)
    golden.text(found["next"][0]["what"])
    typed = overrides(found["next"][0]["command"])
    rates = next(part for part in typed if part.startswith("optimizer.lr=")).partition("=")[2].split(",")
    assert [float(rate) for rate in rates] == [pytest.approx(0.333, rel=0.01), pytest.approx(1.11, rel=0.01)]
    for rate in rates:  # what is printed can be typed
        read_run([part if "lr=" not in part else f"optimizer.lr={rate}" for part in typed], kept_composer())


def test_rates_that_one_size_lacks(
    sweep: Callable[..., Path], capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    sweep(0.01, model="32d")
    study = sweep(0.01, rates=(0.003, 0.01, 0.03), model="64d")
    small, large = told(capsys, str(study))
    golden.text(large["next"][0]["what"])
    assert "optimizer.lr=0.001,0.1" in overrides(large["next"][0]["command"])
    assert "model=64d" in overrides(large["next"][0]["command"])
    assert not any("lacks" in one["what"] for one in small["next"])


@pytest.mark.parametrize(("rates", "more"), [((0.01,), (0.0032, 0.032, 0.1)), ((0.01, 0.03), (0.0033, 0.09))])
def test_of_fewer_than_three_rates_more_are_run_in_the_same_study(
    sweep: Callable[..., Path], capsys: pytest.CaptureFixture[str], rates: tuple[float, ...],
    more: tuple[float, ...],
) -> None:  # fmt: skip
    study = sweep(0.01, rates=rates, model="64d")
    assert main(["best-lr", str(study)]) == 2
    typed = overrides(command_in(capsys.readouterr().err))
    assert "model=64d" in typed
    found = next(part for part in typed if part.startswith("optimizer.lr=")).partition("=")[2].split(",")
    assert [float(rate) for rate in found] == pytest.approx(list(more), rel=0.02)


def test_where_larger_rates_diverged_smaller_ones_are_run(
    sweep: Callable[..., Path], new_run: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    study = sweep(0.01, rates=(0.01, 0.03))
    lost = new_run("lost")
    lost.config(lr=0.1)
    finish(lost, math.nan, "lost")
    (only,) = told(capsys, str(study))
    assert only["best_lr"] is None
    assert "optimizer.lr=0.001111,0.003333" in overrides(only["next"][0]["command"])


def test_seeds_that_disagree_more_than_rates_at_an_edge(
    sweep: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    study = sweep(0.001, rates=(0.01, 0.0101, 0.1), seeds=2, wobble=0.2)
    (only,) = told(capsys, str(study))
    assert only["edge"] == "low"
    (command,) = [
        one["command"] for one in only["next"] if "optimizer.lr=0.01,0.0101" in (one["command"] or "")
    ]
    assert "optimizer.lr=0.01,0.0101" in overrides(command)


def test_a_law_over_tokens_of_too_few_gets_other_budgets(
    sweep: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fit", str(sweep(0.01)), "--x", "tokens"]) == 2
    typed = overrides(command_in(capsys.readouterr().err))
    assert "training.max_steps=200,600,1800,5400" in typed
    assert not any(part.startswith("model=") and "," in part for part in typed)


@pytest.mark.parametrize("law", ["power", "chinchilla"])
def test_a_law_of_too_few_sizes_gets_more_at_the_best_rate(
    sweep: Callable[..., Path], capsys: pytest.CaptureFixture[str], law: str
) -> None:
    study = sweep(0.01, model="64d", rates=(0.001, 0.0099, 0.1))
    assert main(["fit", str(study), "--law", law]) == 2
    typed = overrides(command_in(capsys.readouterr().err))
    assert "optimizer.lr=0.0099" in typed
    for part in [part for part in typed if "," in part]:
        key, _, values = part.partition("=")
        for value in values.split(","):  # what is printed can be typed
            read_run(
                [f"{key}={value}" if one == part else one for one in typed if "," not in one or one == part],
                kept_composer(),
            )


def test_of_fewer_than_three_rates_those_that_go_on_are_waited_for(
    sweep: Callable[..., Path], capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    study = sweep(0.01)
    for run in list(study.iterdir())[1:]:
        (run / "status.json").unlink()
    assert main(["best-lr", str(study)]) == 2
    said = capsys.readouterr().err
    golden.text(said, numbers=False)


def test_seeds_that_disagree_more_than_rates(
    sweep: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    found = told(capsys, str(sweep(0.01, seeds=2, wobble=0.2)))[0]
    assert any("seed=2,3" in one["command"] for one in found["next"])
    assert found["noise"]["freedom"] == 3


def test_seeds_that_agree_are_no_reason_for_more(
    sweep: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    found = told(capsys, str(sweep(0.01, seeds=2, wobble=0.002)))[0]
    assert not any("seed=2,3" in (one["command"] or "") for one in found["next"])


def test_runs_that_died_are_told_and_partial_ones_count_when_asked(
    sweep: Callable[..., Path], new_run: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    study = sweep(0.01, rates=RATES[:4])
    dead = new_run("32d-lr0.1-seed0")
    dead.config(lr=0.1)
    finish(dead, 1.0, "dead", "cancelled")
    metrics = (dead.path / "metrics.csv").read_text().splitlines()[:2]
    (dead.path / "metrics.csv").write_text("\n".join(metrics) + "\n")
    found = told(capsys, str(study))[0]
    assert [rate["lr"] for rate in found["rates"]] == [*RATES[:4]]
    assert found["left_out"][0].startswith("32d-lr0.1-seed0: cancelled")
    assert any("resubmit" in (one["command"] or "").split() for one in found["next"])
    common = told(capsys, str(study), "--at-tokens", "common")[0]
    assert [rate["lr"] for rate in common["rates"]] == [*RATES]
    assert common["rates"][0]["losses"] == [pytest.approx(loss_at(0.001, 0.01) + 1)]
    assert common["best_lr"] > 0.02  # the dead one was the best by far


def test_a_larger_size_at_the_rate_that_the_law_predicts(
    sweep: Callable[..., Path], capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    for width in (32, 48, 64):
        study = sweep(0.5 / width, model=f"{width}d")
    found = told(capsys, str(study))
    assert found[0]["law"]["exponent"]["value"] == pytest.approx(-1, abs=0.05)
    typed = overrides(found[0]["next"][0]["command"])
    assert "model=128d" in typed
    assert main(["best-lr", str(study)]) == 0
    page = capsys.readouterr().out
    golden.text(page, numbers=False)
    assert "0.00391 at 128d" in page


def test_the_page(
    sweep: Callable[..., Path], new_run: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    study = sweep(0.01)
    lost = new_run("32d-lr1-seed0")
    lost.config(lr=1.0)
    finish(lost, math.nan, "lost")
    assert main(["best-lr", str(study)]) == 0
    page = capsys.readouterr().out
    assert "diverged: 1" in page
    assert re.search(r"32d +0\.01 +0\.003 \S+ 0\.03 \? ", page)
    assert "seed=1,2" in overrides(page.strip().splitlines()[-1].strip())


@pytest.mark.parametrize(
    "arguments", [["--where", "lr<0.005"], ["--lr", "rate"], ["--at-tokens", "soon"], ["--at-tokens", "5"]]
)
def test_mistakes_exit_2(
    sweep: Callable[..., Path], arguments: list[str], capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    assert main(["best-lr", str(sweep(0.01)), *arguments]) == 2
    golden.text(capsys.readouterr().err)


def test_other_programs_csvs(shared_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = [str(shared_data / "lr_sweep"), "--pattern", "{model}_lr_{log10_lr}.csv"]
    found = {one["model"]: one["best_lr"] for one in told(capsys, *given, "--y", "validation_loss")}
    for more in (["--x", "tokens"], ["--x", "lr"], ["--x", "log10_lr"]):
        assert {one["model"]: one["best_lr"] for one in told(capsys, *given, *more)} == found
    assert 0.0130 <= float(f"{found['32d']:.2g}") <= 0.0164
    assert 0.0047 <= found["96d"] <= 0.0052
    assert main(["best-lr", str(shared_data / "lr_sweep")]) == 2
    assert "--pattern '{model}_lr_{log10_lr}.csv'" in capsys.readouterr().err
