"""`hydra/sweeper=halving` as it is typed: rung after rung on a cluster, gone on with, planned, refused."""

from __future__ import annotations

import json
import logging
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from fake_slurm import FakeSlurm

import slurm.submit.submit_runs
from slurm.records.submissions import submissions
from slurm.submit import follow_up
from slurm.submit.watch_runs import WaitInterrupted
from tests.golden_text import Golden
from tests.slurm.submit.conftest import Type
from training.attempt.run_files import read_config, read_run

pytestmark = pytest.mark.usefixtures("quick_start")

HALVING = ("-m", "hydra/sweeper=halving", "hydra.sweeper.eta=2", "training.max_steps=8", "wait=true")
FOUR = "optimizer.lr=1e-3,2e-3,4e-3,8e-3"


def runs(place: Path) -> list[tuple[int, float, Path]]:
    """(steps, rate, folder), the shortest first."""
    found = []
    for path in place.glob("runs/*/*/config.yaml"):
        config = read_config(path.parent)
        found.append((config["training"]["max_steps"], config["optimizer"]["lr"], path.parent))
    return sorted(found)


def wrong(captured: pytest.CaptureFixture[str]) -> str:
    return captured.readouterr().err


@pytest.mark.usefixtures("through_hydra")
def test_of_each_rung_the_better_half_goes_on(
    type_: Type, cluster_that_runs: FakeSlurm, place: Path, caplog: pytest.LogCaptureFixture, golden: Golden
) -> None:
    caplog.set_level(logging.INFO)
    assert type_(*HALVING, FOUR) == 0
    assert [(steps, rate) for steps, rate, _ in runs(place)] == [
        (2, 0.001), (2, 0.002), (2, 0.004), (2, 0.008), (4, 0.001), (4, 0.002), (8, 0.001),
    ]  # fmt: skip
    told = [line for line in caplog.messages if line.startswith("rung")]
    golden.text("\n".join(told), numbers=False)
    assert len(list(submissions(place / "runs" / "default"))) == 3


@pytest.mark.slow
def test_typed_again_it_submits_what_is_missing(
    type_: Type, cluster_that_runs: FakeSlurm, place: Path
) -> None:
    """As after a kill between two rungs, and within one: a search keeps nothing but its runs."""
    assert type_(*HALVING, FOUR) == 0
    assert type_(*HALVING, FOUR) == 0
    assert len(cluster_that_runs.jobs) == 3
    lost = [folder for steps, rate, folder in runs(place) if (steps, rate) in ((4, 0.002), (8, 0.001))]
    for folder in lost:
        shutil.rmtree(folder)
    assert type_(*HALVING, FOUR) == 0
    again = list(submissions(place / "runs" / "default"))[3:]
    assert [array.tasks for one in again for array in one.arrays] == [[[folder.name]] for folder in lost]


@pytest.mark.slow
def test_what_has_failed_does_not_go_on(type_: Type, cluster_that_runs: FakeSlurm, place: Path) -> None:
    """Those of seed 1."""
    assert type_(*HALVING, "seed=1,2", "optimizer.lr=1e-3,2e-3") == 1
    found = Counter((steps, read_config(folder)["seed"]) for steps, _, folder in runs(place))
    assert found == {(2, 1): 2, (2, 2): 2, (4, 2): 2, (8, 2): 1}
    assert type_(*HALVING, "seed=1", FOUR, "study.name=none") == 1
    assert {steps for steps, _, folder in runs(place) if folder.parent.name == "none"} == {2}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seeds", "rungs", "counts"), [("1,2", 3, {"done": 5, "failed": 2}), ("1", 1, {"failed": 4})]
)
def test_what_comes_at_the_end_comes_once_and_tells_of_all_rungs(
    type_: Type, cluster_that_runs: FakeSlurm, place: Path, seeds: str, rungs: int, counts: dict[str, int]
) -> None:
    """It came after each rung, and told of that alone: of a search a mail for every rung."""
    rates = "optimizer.lr=1e-3,2e-3" if seeds == "1,2" else FOUR
    assert type_(*HALVING, f"seed={seeds}", rates, "then=analysis", "notify=me@example.org") == 1
    made = list(submissions(place / "runs" / "default"))
    assert [one.follow_up is not None for one in made] == [False] * (rungs - 1) + [True]
    assert made[-1].earlier == [one.id for one in made[:-1]]
    (job,) = [job for job in cluster_that_runs.jobs if job["name"].endswith("-then")]
    assert (str(job["id"]), job["options"]["mail-user"]) == (made[-1].follow_up, "me@example.org")
    assert "dependency" not in job["options"], "all that it could wait for has ended"
    assert follow_up.summary(made[-1])["counts"] == counts


@pytest.mark.slow
@pytest.mark.usefixtures("cluster_that_runs")
@pytest.mark.parametrize("rung", [1, 2, 3])
def test_the_end_of_a_search_that_was_stopped_in_a_rung(
    type_: Type, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], rung: int
) -> None:
    """The same command again tells of all of it, also where it had nothing more to submit, and once."""
    waited, wait_for = iter(range(1, rung + 1)), slurm.submit.submit_runs.wait_for

    def killed(*asked: Any) -> bool:
        if next(waited) == rung:
            raise WaitInterrupted("")
        return wait_for(*asked)

    with monkeypatch.context() as stopped:
        stopped.setattr(slurm.submit.submit_runs, "wait_for", killed)
        assert type_(*HALVING, FOUR, "then=analysis") == 130
    assert "search" in capsys.readouterr().err
    for _ in range(2):
        assert type_(*HALVING, FOUR, "then=analysis") == 0
        made = list(submissions(place / "runs" / "default"))
        assert [one.follow_up is not None for one in made] == [False] * (len(made) - 1) + [True]
        assert follow_up.summary(made[-1])["counts"] == {"done": 7}


@pytest.mark.parametrize("sampling", ["sobol", "random"])
def test_a_search_alone(type_: Type, cluster_that_runs: FakeSlurm, place: Path, sampling: str) -> None:
    space = ("optimizer.lr=tag(log,interval(1e-4,1e-1))", "model.n_layers=int(interval(1,2))")
    how = (f"hydra.sweeper.sampling={sampling}", "hydra.sweeper.samples=5", "hydra.sweeper.rungs=1")
    assert type_(*HALVING, *how, *space) == 0
    found = runs(place)
    assert [steps for steps, _, _ in found] == [8] * 5
    assert len({rate for _, rate, _ in found}) == 5
    assert {read_config(folder)["model"]["n_layers"] for _, _, folder in found} == {1, 2}


def test_the_plan_tells_the_rungs_and_submits_nothing(
    type_: Type, cluster: FakeSlurm, place: Path, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    local = "hydra/launcher=local"
    assert type_(*HALVING, FOUR, local, "plan=true", "schedule=constant") == 0
    told = capsys.readouterr().out
    golden.text("\n".join(told.splitlines()[:4]), numbers=False)
    assert "4 runs, " in told
    golden.text(told, numbers=False)
    assert type_(*HALVING, FOUR, local, "plan=true", "--json") == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert [(rung["runs"], rung["budget"]) for rung in found["rungs"]] == [(4, 2), (2, 4), (1, 8)]
    assert (found["goes_on"], len(found["first_rung"])) == (False, 4)
    assert type_(*HALVING, FOUR, "plan=true") == 0
    golden.text(capsys.readouterr().out, numbers=False)
    assert type_(*HALVING, FOUR, "plan=true", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (len(found["rungs"]), len(found["scripts"]), found["refused"]) == (3, 1, [])
    assert found["first_rung"][0]["slurm"]["options"]["mem"] == "1024M"
    assert type_(*HALVING[:-1], FOUR, "plan=true") == 0
    told = capsys.readouterr().out
    golden.text(told, numbers=False)
    assert not (place / "runs").exists()
    assert cluster.jobs == []


INTERVAL = "optimizer.lr=interval(1e-3,1e-2)"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), "hydra/sweeper: halving: nothing is searched: give a key several values, or 'optimizer.lr=tag("),
        ((INTERVAL,), "hydra.sweeper.samples: how many candidates are to be drawn from optimizer.lr?"),
        ((FOUR, "hydra.sweeper.eta=1"), "hydra.sweeper.eta: expected a whole number from 2 on, got 1"),
        ((FOUR, "hydra.sweeper.eta=2.5"), "hydra.sweeper.eta: expected a whole number from 2 on, got 2.5"),
        (
            (FOUR, "hydra.sweeper.samples=0"),
            "hydra.sweeper.samples: expected a whole number from 1 on, got 0",
        ),
        ((FOUR, "hydra.sweeper.seed=-1"), "hydra.sweeper.seed: expected a whole number from 0 on, got -1"),
        ((FOUR, "hydra.sweeper.sampling=sobel"), "hydra.sweeper.sampling: no way `sobel`; nearest: sobol"),
        ((FOUR, "hydra.sweeper.rungs=4"), "make 3 rungs at most, got 4: hydra.sweeper.samples=8"),
        ((FOUR, "hydra.sweeper.etta=3"), "hydra.sweeper"),
        ((FOUR, "training.max_steps=2,4"), "training.max_steps: the rungs say how long a run goes"),
        ((FOUR, "training.max_steps=null"), "training.max_tokens: how long does a run of the last rung go?"),
        (
            (FOUR, "wait=false"),
            "wait: this sweeper chooses runs by the results of earlier ones: set wait=true",
        ),
    ],
)
def test_bad_input(
    type_: Type,
    cluster: FakeSlurm,
    place: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    expected: str,
) -> None:
    assert type_(*HALVING, *arguments) == 2
    assert expected in wrong(capsys)
    assert cluster.jobs == []
    assert not list(place.glob("runs/*/*/config.yaml"))


@pytest.mark.slow
def test_runs_of_a_constant_rate_go_on_where_they_were(type_: Type, place: Path) -> None:
    """To the loss of a run that had the whole budget from the beginning."""
    tiny = (
        "training.seq_len=16",
        "training.effective_batch=4",
        "training.eval_tokens=512",
        "training.evals=1",
    )
    here = ("hydra/launcher=local", "schedule=constant", *tiny)
    assert type_(*HALVING, "optimizer.lr=1e-3,1e-2", "study.name=h", *here) == 0
    *first, (steps, rate, last) = runs(place)
    assert [steps for steps, _, _ in first] == [4, 4]
    assert steps == 8
    trunk = next(folder for _, other, folder in first if other == rate)
    assert Path(read_config(last)["restore"]["from"]).resolve() == trunk.resolve()
    assert type_(f"optimizer.lr={rate}", "training.max_steps=8", "study.name=whole", *here) == 0
    (whole,) = (path.parent for path in place.glob("runs/whole/*/config.yaml"))
    assert read_run(last)["results"]["val_loss"] == read_run(whole)["results"]["val_loss"]
