"""plan=true for a cluster: a table, its sums, what is there already, and the very text that would be sent."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from recorded_slurm import planned, recorded, with_slurm
from tiny_run import tiny_config

from conf import Config
from slurm.cluster import Cluster
from slurm.submit.cluster_plan import ClusterPlan, plan_for_cluster, render
from tests.golden_text import Golden
from training.attempt.begin import create_run

pytestmark = pytest.mark.usefixtures("sbatch_accepts")
GB = 1 << 30


def without_scripts(found: ClusterPlan) -> str:
    return render(dataclasses.replace(found, scripts=[(count, "SCRIPT") for count, _ in found.scripts]))


@pytest.fixture
def configs(tmp_path: Path) -> list[Config]:
    base = tiny_config(tmp_path)
    return [dataclasses.replace(base, seed=seed) for seed in (0, 1, 1)]


@pytest.fixture(autouse=True)
def _nothing_is_queued(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slurm.submit.cluster_plan.in_flight", lambda study, names: {})


def test_each_run_once_with_what_it_asks_for(configs: list[Config], golden: Golden) -> None:
    planned(configs[0])  # tokenizes
    found = plan_for_cluster([with_slurm(config, time="2h", mem=GB) for config in configs],
                             cluster=recorded("20.11"))  # fmt: skip
    assert len(found.runs) == 2
    text = render(found)
    header, first, *_ = text.splitlines()
    assert header.split() == ["run", "tokens", "--mem", "time", "GPU", "h", "CPU", "h", "state"]
    assert first.split()[1:] == [
        f"{found.runs[0].plan.budget.tokens:,}",
        "1.0",
        "GB",
        "2:00:00",
        "-",
        "<2",
        "-",
    ]
    golden.text(without_scripts(found), numbers=False)


def test_what_is_there_is_not_asked_for_again(
    configs: list[Config], monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    plan = planned(configs[0])
    assert plan.identity is not None
    folder = create_run(plan.config, plan.identity)
    (folder / "status.json").write_text('{"state": "done"}')
    found = plan_for_cluster(configs, cluster=recorded("20.11"))
    assert [run.state for run in found.runs] == ["done", None]
    assert [count for count, _ in found.scripts] == [1]
    assert found.to_json()["sum"]["there_already"] == 1
    (folder / "status.json").write_text("{}")
    monkeypatch.setattr(
        "slurm.submit.cluster_plan.in_flight", lambda study, names: dict.fromkeys(names, "queued")
    )
    found = plan_for_cluster(configs, cluster=recorded("20.11"))
    assert [run.state for run in found.runs] == ["queued", None]
    golden.text(without_scripts(found), numbers=False)


def test_what_is_done_is_asked_for_again_if_it_begins_again(configs: list[Config]) -> None:
    plan = planned(configs[0])
    assert plan.folder is not None
    plan.folder.mkdir(parents=True)
    (plan.folder / "status.json").write_text('{"state": "done"}')
    config = with_slurm(configs[0], time="2h", mem=GB)
    for again in (False, True):
        (run,) = plan_for_cluster([dataclasses.replace(config, again=again)], cluster=recorded("20.11")).runs
        assert run.is_there is not again


def test_runs_of_one_name_in_two_studies_are_two_runs(configs: list[Config]) -> None:
    planned(configs[0])
    other = [
        dataclasses.replace(config, study=dataclasses.replace(config.study, name="other"))
        for config in configs
    ]
    found = plan_for_cluster([*configs, *other], cluster=recorded("20.11"))
    assert [count for count, _ in found.scripts] == [2, 2]
    assert len(found.missing) == 4


@pytest.mark.usefixtures("cpu_build")
def test_an_array_for_each_class_of_resources(configs: list[Config], golden: Golden) -> None:
    planned(configs[0])
    other = with_slurm(configs[1], mem=3 * GB)
    found = plan_for_cluster([configs[0], other], cluster=recorded("20.11"))
    assert [count for count, _ in found.scripts] == [1, 1]
    assert "#SBATCH --mem=3072M" in found.scripts[1][1]
    golden.text(without_scripts(found), numbers=False)


def test_what_would_be_refused_is_told_beside_the_table(configs: list[Config]) -> None:
    planned(configs[0])
    found = plan_for_cluster(
        [with_slurm(config, partition="bach") for config in configs], cluster=recorded("20.11")
    )
    assert [problem.where for problem in found.refused] == ["slurm.partition"]


def test_a_run_that_does_not_fit_what_it_asks_for(configs: list[Config], golden: Golden) -> None:
    planned(configs[0])
    found = plan_for_cluster([with_slurm(configs[0], mem=GB // 100)], cluster=recorded("20.11"))
    golden.text(without_scripts(found), numbers=False)


def test_a_gpu_that_only_the_nodes_have_is_no_need(configs: list[Config]) -> None:
    training = dataclasses.replace(configs[0].training, device="cuda")
    config = with_slurm(dataclasses.replace(configs[0], training=training), gpus_per_node=1, mem=GB)
    found = plan_for_cluster([config], cluster=Cluster())
    text = render(found)
    assert not found.runs[0].plan.needs
    assert "#SBATCH --gres=gpu:1" in text


def test_without_a_cluster_it_still_plans(configs: list[Config], golden: Golden) -> None:
    found = plan_for_cluster(configs, cluster=Cluster(notes=("no Slurm",)))
    assert len(found.scripts) == 1
    golden.text(without_scripts(found), numbers=False)


def test_as_json(configs: list[Config]) -> None:
    planned(configs[0])
    plain = json.loads(json.dumps(plan_for_cluster(configs, cluster=recorded("20.11")).to_json()))
    assert plain["sum"]["runs"] == 2
    assert plain["runs"][0]["slurm"]["options"]["mem"].endswith("M")
    assert plain["runs"][0]["identity"]
    assert plain["scripts"][0]["text"].startswith("#!/bin/bash")
    assert plain["cluster"]["version"] == "20.11.9"
