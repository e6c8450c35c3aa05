"""`python -m analysis compare`."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.__main__ import main
from analysis.comparison import Group, compare, differing
from analysis.reading.study import Run
from benchmarks.analysis_coverage import comparisons
from tests.golden_text import Golden


def group(name: str, losses: Sequence[float], seeds: Sequence[int] | None = None, **values: Any) -> Group:
    return Group(
        name,
        tuple(
            Run(f"{name}{seed}", Path(), "done", None, {"seed": seed, "val_loss": loss, **values})
            for seed, loss in zip(seeds or range(len(losses)), losses, strict=True)
        ),
    )


def test_pairs_show_what_seeds_hide(golden: Golden) -> None:
    """Seeds differ by 0.1, the groups by 0.01: only pairs of the same seed tell."""
    shared = np.array([3.0, 3.1, 3.2, 2.9, 3.05])
    small = np.array([0.001, -0.001, 0.0005, -0.0005, 0.0])
    found = compare([group("a", shared), group("b", shared - 0.01 + small)], "val_loss")[0]
    assert found.paired
    assert found.difference == pytest.approx(-0.01)
    assert found.p is not None
    assert found.p < 0.001
    golden.text(found.verdict)
    apart = compare([group("a", shared), group("b", shared - 0.01 + small, range(5, 10))], "val_loss")[0]
    assert not apart.paired
    assert (apart.p or 0) > 0.5
    golden.text(apart.verdict)


def test_one_pair_is_no_test(golden: Golden) -> None:
    found = compare([group("a", [3.0]), group("b", [2.9])], "val_loss")[0]
    assert (found.p, found.low, found.difference) == (None, None, pytest.approx(-0.1))
    golden.text(found.verdict)


def test_one_seed_in_common_is_no_reason_to_forget_the_others(golden: Golden) -> None:
    a, b = [3.0, 3.01, 2.99], [2.5, 2.51, 2.49]
    found = compare([group("a", a), group("b", b, [2, 3, 4])], "val_loss")[0]
    assert not found.paired
    golden.text(found.verdict)


def test_what_one_comparison_would_show_many_may_show_by_chance(golden: Golden) -> None:
    seeds, wobble = np.array([3.0, 3.1, 3.2, 2.9]), np.array([0.011, -0.011, 0.009, -0.009])
    a, b = group("a", seeds), group("b", seeds - 0.02 + wobble)
    alone = compare([a, b], "val_loss")[0]
    assert 0.02 < (alone.p or 0) < 0.05
    golden.text(alone.verdict)
    many = compare([a, b, group("c", seeds + wobble), group("d", seeds - wobble)], "val_loss")[0]
    assert (many.p or 0) > 0.05
    assert (many.low, many.high) == (alone.low, alone.high)
    golden.text(many.verdict)


def test_several_comparisons_need_a_smaller_p_each() -> None:
    shared = np.array([3.0, 3.1, 3.2, 2.9, 3.05])
    wobble = np.array([0.01, -0.01, 0.02, -0.02, 0.005])
    alone = compare([group("a", shared), group("b", shared - 0.02 + wobble)], "val_loss")[0]
    many = compare(
        [group("a", shared), *(group(str(n), shared - 0.02 + wobble) for n in range(4))], "val_loss"
    )
    assert all(one.p == pytest.approx(4 * (alone.p or 0)) for one in many)


def test_the_interval_holds_no_difference_as_often_as_it_says() -> None:
    generator = np.random.default_rng(0)
    wrong = 0
    for _ in range(400):
        seeds, noise = generator.normal(size=4), 0.1 * generator.normal(size=(2, 4))
        found = compare([group("a", seeds + noise[0]), group("b", seeds + noise[1])], "val_loss")[0]
        wrong += not (found.low or 0) <= 0 <= (found.high or 0)
    assert 0.02 <= wrong / 400 <= 0.08


def test_interval_of_means_holds_the_truth_with_skewed_noise() -> None:
    """A part of benchmarks/analysis_coverage.py; by Welch's degrees of freedom it is 89%."""
    assert comparisons(False, "even, skewed", (3, 10), 1.0, 400)["holds_the_truth"] >= 0.95


def test_what_differs_between_groups_and_not_within() -> None:
    found = differing([group("a", [3, 3], lr=0.1), group("b", [3, 3], lr=0.2)])
    assert found == {"lr": ["0.1", "0.2"]}


@pytest.fixture
def studies(new_run: Callable[..., Any], tmp_path: Path) -> tuple[str, str]:
    """Three seeds at two rates, in a study each; the second is 0.02 lower."""
    for name, lr in (("a", 0.003), ("b", 0.01)):
        for seed in range(3):
            made = new_run(f"{name}{seed}")
            made.config(lr=lr)
            path = made.path / "config.yaml"
            path.write_text(path.read_text().replace("\nseed: 0\n", f"\nseed: {seed}\n"))
            made.status()
            made.run(identity=f"{name}{seed}".rjust(64, "0"), results={})
            made.losses(
                20, floor=3 + 0.1 * seed - (0.02 if name == "b" else 0) + 0.001 * seed * (name == "b")
            )
            study = tmp_path / name
            study.mkdir(exist_ok=True)
            made.path.rename(study / made.path.name)
    return str(tmp_path / "a"), str(tmp_path / "b")


def test_two_studies(studies: tuple[str, str], capsys: pytest.CaptureFixture[str], golden: Golden) -> None:
    assert main(["compare", *studies, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    one = found["comparisons"][0]
    assert one["paired"]
    assert [pair["what"] for pair in one["pairs"]] == ["seed 0", "seed 1", "seed 2"]
    assert one["low"] < one["difference"] < one["high"] < 0
    assert one["p"] < 0.01
    assert found["differ_in"] == {"lr": ["0.003", "0.01"]}
    assert main(["compare", *studies]) == 0
    page = capsys.readouterr().out
    assert "lr: 0.003 -> 0.01" in page
    golden.text(page, numbers=False)


def test_groups_of_one_study(studies: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", str(Path(studies[0]).parent), "--by", "optimizer.lr", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in found["groups"]] == ["optimizer.lr=0.003", "optimizer.lr=0.01"]
    assert found["comparisons"][0]["paired"]


def cut(folder: Path, rows: int) -> None:
    path = folder / "metrics.csv"
    path.write_text("\n".join(path.read_text().splitlines()[: rows + 1]) + "\n")
    status = json.loads((folder / "status.json").read_text())
    (folder / "status.json").write_text(json.dumps(status | {"state": "cancelled"}))


def test_other_budgets_are_refused_until_common_tokens_are_asked_for(
    studies: tuple[str, str], capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    cut(Path(studies[1]) / "b1", 12)
    assert main(["compare", *studies, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["comparisons"][0]["pairs"]) == 2
    assert found["left_out"][0].startswith("b1: cancelled")
    assert main(["compare", *studies, "--at-tokens", "common", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["at_tokens"] == 12 * 4096
    assert len(found["comparisons"][0]["pairs"]) == 3
    status = Path(studies[1]) / "b1" / "status.json"
    status.write_text(status.read_text().replace("cancelled", "done"))
    assert main(["compare", *studies]) == 2
    golden.text(capsys.readouterr().err)


def test_runs_of_one_name_in_two_studies_are_two(
    studies: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    for study in map(Path, studies):
        for run in study.iterdir():
            run.rename(study / run.name[1:])
    assert main(["compare", *studies, "--json"]) == 0
    whole = json.loads(capsys.readouterr().out)["comparisons"][0]
    assert main(["compare", *studies, "--at-tokens", "common", "--json"]) == 0
    common = json.loads(capsys.readouterr().out)["comparisons"][0]
    assert common["difference"] == pytest.approx(whole["difference"])
    assert common["difference"] < -0.001


def test_one_study_alone_exits_2(
    studies: tuple[str, str], capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    assert main(["compare", studies[0]]) == 2
    golden.text(capsys.readouterr().err)
    assert main(["compare", studies[0], "--by", "seed_data"]) == 2
    golden.text(capsys.readouterr().err)
