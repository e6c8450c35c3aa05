"""What a run asks of the cluster, by the rules that docs/clusters.md tells."""

from __future__ import annotations

import csv
import dataclasses
import json
import re
import subprocess
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from recorded_slurm import planned, recorded, with_slurm
from tiny_run import tiny_config

from conf.schema import Slurm
from experiment_utils.errors import UserError
from memory.estimate.constants import LIBRARIES_MAPPED
from memory.estimate.estimate import recommended_mem
from slurm.cluster import Ask, Cluster, Speeds, ask
from slurm.cluster.resources import key_conflicts, setup_lines
from slurm.in_job.slots import step_command
from tests.golden_text import Golden
from training.plan.run_plan import Plan

MB = 1 << 20
GB = 1 << 30


def asked(folder: Path, cluster: Cluster | None = None, **values: Any) -> Ask:
    config = with_slurm(tiny_config(folder), **values)
    return ask(config, planned(config, cluster), cluster)


def measured(plan: Plan, name: str, tokens_per_s: float, device: str = "cpu", **slurm: Any) -> None:
    """A run like this one that has been made."""
    folder = Path(plan.config.runs_dir) / "earlier" / name
    folder.mkdir(parents=True)
    config = asdict(plan.config)
    config["slurm"] |= slurm
    (folder / "run.json").write_text(json.dumps({"config": config, "auto": {"device": device}}))
    with (folder / "metrics.csv").open("w") as file:
        writer = csv.writer(file)
        writer.writerow(["step", "tokens", "train_loss", "seconds", "tokens_per_s"])
        writer.writerows([step, step * 1000, 5.0, step * 1000 / tokens_per_s, 1.0] for step in range(1, 41))


def test_options_of_a_plain_run(tmp_path: Path) -> None:
    config = tiny_config(tmp_path)
    plan = planned(config)
    mem_mb = recommended_mem(plan.memory.estimate) // MB
    assert ask(config, plan).options == {
        "nodes": 1,
        "ntasks-per-node": 1,
        "cpus-per-task": 1,  # training.threads
        "mem": f"{mem_mb}M",
        "signal": "USR2@120",
        "requeue": True,
    }


def test_everything_that_can_be_asked_for(tmp_path: Path) -> None:
    found = asked(
        tmp_path, partition="gpu", account="a", qos="q", constraint="c", mem=3 * GB + 1, time="90min",
        nodes=1, gpus_per_node=2, gpu_type="a100", cpus_per_task=5, requeue=False, signal_s=60,
        options=["--exclusive -x n1", "--comment='a b'"], setup=["module load x"], offline=True,
    )  # fmt: skip
    assert found.options == {
        "partition": "gpu", "account": "a", "qos": "q", "constraint": "c", "mem": "3073M", "time": "1:30:00",
        "nodes": 1, "ntasks-per-node": 2, "cpus-per-task": 5, "gres": "gpu:a100:2", "no-requeue": True,
        "signal": "USR2@60", "exclusive": True, "exclude": "n1", "comment": "a b",
    }  # fmt: skip
    assert (found.tasks, found.cpus, found.gpus) == (2, 10, 2)
    assert found.setup[0].split() == ["module", "load", "x", "||", "exit", "1"]
    assert "HF_HUB_OFFLINE=1" in found.setup[1]


def test_memory_is_capped_at_the_node_where_the_estimate_itself_fits(tmp_path: Path) -> None:
    config = tiny_config(tmp_path)
    estimate = planned(config).memory.estimate.resumed_bytes
    for node_bytes, expected in (
        (estimate + 10 * MB, estimate + 10 * MB),
        (estimate - 1, None),
        (64 * GB, None),
    ):
        nodes = f"debug*|up|3|8|{node_bytes // MB}|idle|(null)|(null)\n"
        cluster = recorded(
            "23.02", nodes=answer(nodes), partitions=answer("PartitionName=debug Default=YES\n")
        )
        found = ask(config, planned(with_slurm(config, mem=64 * GB), cluster), cluster)
        assert found.mem_bytes == (
            recommended_mem(planned(config).memory.estimate) if expected is None else expected // MB * MB
        )


def answer(text: str) -> Any:
    from memory.accounting.sacct import Answer

    return Answer(0, text)


def test_mapped_libraries_are_added_where_rss_is_polled(tmp_path: Path) -> None:
    limited, polled = (asked(tmp_path, recorded(version)).options["mem"] for version in ("23.02", "20.11"))
    added_bytes = (int(polled.removesuffix("M")) - int(limited.removesuffix("M"))) * MB
    assert added_bytes == pytest.approx(LIBRARIES_MAPPED.in_bytes, abs=MB)


def test_other_memory_options_take_the_place_of_mem(tmp_path: Path) -> None:
    found = asked(tmp_path, options=["--mem-per-cpu=2G"])
    assert "mem" not in found.options
    assert found.options["mem-per-cpu"] == "2G"


def test_runs_side_by_side_get_the_sum_of_their_needs(tmp_path: Path, golden: Golden) -> None:
    one, eight = asked(tmp_path), asked(tmp_path, pack=8)
    assert one.mem_bytes is not None
    assert eight.mem_bytes == 8 * one.mem_bytes + 9 * 48 * MB
    assert (eight.options["cpus-per-task"], eight.cpus) == (8, 8)
    typed = asked(tmp_path, pack=8, mem=8 * GB, cpus_per_task=4)  # of the whole task
    assert (typed.mem_bytes, typed.cpus) == (8 * GB, 4)
    plan = planned(with_slurm(tiny_config(tmp_path), pack=8, mem=8 * GB))
    assert plan.memory.room.limit_bytes == 970 * MB, "less what the steps themselves take"
    golden.text(plan.memory.room.limit_at)
    (given,) = [
        option
        for option in step_command("word", 0, 8, {"SLURM_MEM_PER_NODE": str(8 * GB // MB)})
        if option.startswith("--mem=")
    ]
    assert given == "--mem=970M", "what each gets in the job is what it was planned for"


def test_a_share_that_is_too_small_names_the_memory_that_does(tmp_path: Path, golden: Golden) -> None:
    """Of three times what one needs each gets less: the steps themselves take some."""
    needed = planned(tiny_config(tmp_path)).memory.estimate.host_bytes
    with golden.refused("needs-more-memory", numbers=False):
        planned(with_slurm(tiny_config(tmp_path), pack=3, mem=3 * (needed + MB)))

    def refused(cluster: Cluster | None = None, **slurm: Any) -> str:
        with pytest.raises(UserError) as told:
            planned(with_slurm(tiny_config(tmp_path), **slurm), *([cluster] if cluster else []))
        return str(told.value)

    for pack in (1, 3):
        said = refused(pack=pack, mem=pack * 40 * MB)
        typed = re.search(r"slurm\.mem=(\d+)MB\.", said)
        assert typed, said
        mem = int(typed[1]) * MB
        assert planned(with_slurm(tiny_config(tmp_path), pack=pack, mem=mem)).memory.problem is None
        assert asked(tmp_path, pack=pack, mem="auto").mem_bytes == mem, "and what auto asks for"
    no_node = refused(recorded("20.11"), partition="batch", pack=1000, mem=40 * MB)
    assert "slurm.mem=" not in no_node


def test_a_worker_has_the_partition_s_time(tmp_path: Path) -> None:
    found = asked(tmp_path, recorded("20.11"), workers=2)
    assert found.options["time"] == "3-00:00:00"
    assert found.cpus == 1  # one run after the other
    assert asked(tmp_path, recorded("20.11"), workers=2, pack=8).cpus == 8


def test_ranks_of_a_node_share_its_memory(tmp_path: Path) -> None:
    one, two = asked(tmp_path), asked(tmp_path, tasks_per_node=2)
    assert one.mem_bytes is not None
    assert two.mem_bytes is not None
    assert one.mem_bytes < two.mem_bytes < 2.5 * one.mem_bytes
    assert (two.options["ntasks-per-node"], two.cpus) == (2, 2)


def test_a_size_asks_for_what_its_by_model_says(tmp_path: Path) -> None:
    config = tiny_config(tmp_path)
    by_model = {config.model.name: {"mem": 5 * GB, "time": "2h"}, "999d": {"mem": 1}}
    found = asked(tmp_path, mem=GB, by_model=by_model)
    assert (found.options["mem"], found.options["time"]) == ("5120M", "2:00:00")
    plan = planned(with_slurm(config, by_model=by_model))
    assert (plan.config.slurm.mem, plan.config.slurm.by_model) == (5 * GB, {})


def test_a_login_node_s_memory_refuses_no_run_that_goes_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(**how: Any) -> Any:
        raise AssertionError("this machine's memory was looked at")

    monkeypatch.setattr("training.plan.run_plan.room_here", never)
    plan = planned(tiny_config(tmp_path), recorded("20.11"))
    assert plan.memory.room.limit_bytes == 191000 * MB
    plan = planned(with_slurm(tiny_config(tmp_path), mem=5 * GB))
    assert (plan.memory.room.limit_bytes, plan.memory.room.limit_at) == (5 * GB, "slurm.mem")


def test_time_follows_the_slowest_run_like_it(tmp_path: Path) -> None:
    cluster = recorded("20.11")
    plan = planned(tiny_config(tmp_path), cluster)
    work = plan.budget.tokens + len(plan.evaluations) * plan.eval_tokens / 3
    measured(plan, "quick", work / 500)
    measured(plan, "slow", work / 3900)  # a run takes 3900 s at this speed
    measured(plan, "gpu", 1e-3, device="cuda")
    found = ask(plan.config, plan, cluster)
    assert found.expected_s == pytest.approx(3900)
    assert found.limit_s == 6600  # 600 + 1.5 * 3900 = 6450, in whole tens of minutes
    assert found.options["time"] == "1:50:00"


def test_a_run_that_was_made_in_the_same_place_goes_before_slower_ones_elsewhere(tmp_path: Path) -> None:
    config = with_slurm(tiny_config(tmp_path), partition="batch")
    plan = planned(config)
    measured(plan, "elsewhere", 10.0, partition=None)
    measured(plan, "here", 1000.0)
    speed = Speeds().of(plan, "cpu", 1)
    assert speed is not None
    assert (speed.tokens_per_s, speed.runs, speed.nearby) == (pytest.approx(1000.0), 1, True)


def test_damaged_and_short_runs_tell_no_speed(tmp_path: Path) -> None:
    plan = planned(tiny_config(tmp_path))
    measured(plan, "whole", 1000.0)
    runs = Path(plan.config.runs_dir) / "earlier"
    for name, text in (("torn", "{"), ("list", "[]"), ("other", '{"config": {}, "auto": {}}')):
        measured(plan, name, 1.0)
        (runs / name / "run.json").write_text(text)
    measured(plan, "short", 1.0)
    rows = (runs / "short" / "metrics.csv").read_text().splitlines(keepends=True)
    (runs / "short" / "metrics.csv").write_text("".join(rows[:5]))
    measured(plan, "empty", 1.0)
    (runs / "empty" / "metrics.csv").write_text("")
    speed = Speeds().of(plan, "cpu", 1)
    assert speed is not None
    assert (speed.tokens_per_s, speed.runs) == (pytest.approx(1000.0), 1)
    assert Speeds().of(plan, "cpu", 4) is None


def test_a_limit_below_what_a_run_needs_is_the_partition_s(tmp_path: Path, golden: Golden) -> None:
    cluster = recorded("23.02")  # debug: an hour
    plan = planned(tiny_config(tmp_path), cluster)
    measured(plan, "slow", plan.budget.tokens / 1e5)
    found = ask(plan.config, plan, cluster)
    assert found.options["time"] == "1:00:00"
    golden.text(found.how_time)


def test_where_no_run_is_known_the_partition_s_default_holds(tmp_path: Path, golden: Golden) -> None:
    found = asked(tmp_path, recorded("20.11"))
    assert "time" not in found.options
    assert found.limit_s == 4 * 3600
    golden.text(found.how_time)


@pytest.mark.parametrize(
    ("time", "signal"), [("1", "15"), ("4", "60"), ("8:00", "120"), ("UNLIMITED", "120")]
)
def test_the_signal_comes_in_the_last_quarter_of_a_short_limit(
    tmp_path: Path, time: str, signal: str
) -> None:
    assert asked(tmp_path, time=time).options["signal"] == f"USR2@{signal}"


def test_a_run_that_gets_a_gpu_is_planned_for_one(tmp_path: Path) -> None:
    config = tiny_config(tmp_path)
    config = dataclasses.replace(config, training=dataclasses.replace(config.training, device="auto"))
    assert planned(config).memory.estimate.gpu_bytes == 0
    assert planned(with_slurm(config, gpus_per_node=1)).memory.estimate.gpu_bytes > 0
    assert planned(with_slurm(config, options=["--gpus=1"])).memory.estimate.gpu_bytes > 0


@pytest.mark.parametrize("line", ["module load cuda/99", "ml cuda"])
def test_a_module_that_is_not_there_ends_the_job(line: str) -> None:
    """What comes after it would run without it."""

    def said(*setup: str) -> str:
        script = "\n".join([*setup_lines(Slurm(setup=list(setup))), "echo continues"])
        return subprocess.run(["bash", "-c", script], capture_output=True, text=True).stdout

    assert said("false", line) == ""
    assert said(f"{line} || echo without") == "without\ncontinues\n"
    assert said("export A=1", f"{line.split()[0]}() {{ true; }}", line) == "continues\n"


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"gpu_type": "a100"}, "gpu_type"),
        ({"gpu_type": "a100", "gpus_per_node": 1}, None),
        ({"gpus_per_node": 1, "options": ["--gpus=2"]}, "options"),
        ({"options": ["--gpus=2"]}, None),
        ({"options": ["--time=3"]}, "options"),
        ({"pack": 2, "tasks_per_node": 2}, "tasks_per_node"),
        ({"workers": 1, "nodes": 2}, "nodes"),
        ({"pack": 2, "workers": 3, "gpus_per_node": 2}, None),  # auto is one rank then
    ],
)
def test_keys_that_exclude_each_other(values: dict[str, Any], key: str | None) -> None:
    found = [problem.where for problem in key_conflicts(Slurm(**values))]
    assert found == ([f"slurm.{key}"] if key else [])
