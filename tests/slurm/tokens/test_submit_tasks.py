"""`--slurm SITE --tasks N`: each missing task is submitted once, whatever is typed again."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_slurm import FakeSlurm

import pretokenize_dataset
from experiment_utils import atomic_files
from slurm.records.submissions import submissions
from tests.golden_text import Golden
from tests.slurm.tokens.conftest import ASKED, TEXTS, Type, do_task

Told = Callable[..., dict[str, Any]]
TASKS = ["00000-of-00003", "00001-of-00003", "00002-of-00003"]
SHARED = [
    *TEXTS, "--tokenizer", "bytes", "--output", "parts", "--tokens-per-shard", "40K", "--workers", "0",
    "--slurm", "default",
]  # fmt: skip


def refusal(type_: Type, capsys: pytest.CaptureFixture[str], *arguments: str, **options: Any) -> str:
    capsys.readouterr()
    assert type_(*arguments, **options) == 2
    return capsys.readouterr().err.partition("error: ")[2]


def test_one_array_of_all_tasks(
    type_: Type, cluster: FakeSlurm, home: Path, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    assert type_() == 0
    (tasks,) = cluster.jobs
    assert tasks["options"]["array"] == "0-2"
    assert tasks["options"]["mem"] == "600M"
    assert tasks["options"]["cpus-per-task"] == "1"
    assert tasks["options"]["requeue"] == ""
    (submission,) = submissions(home / ".parts.slurm")
    assert [array.job_id for array in submission.arrays] == [str(tasks["id"])]
    golden.text(capsys.readouterr().out)


def test_the_script_has_the_command_of_each_task(type_: Type, cluster: FakeSlurm, home: Path) -> None:
    assert type_("--form", "megatron", "--work=2", "slurm.parallel=1", 'slurm.setup=["module load x"]') == 0
    (tasks,) = cluster.jobs
    assert tasks["options"]["array"] == "0-2%1"
    lines = Path(tasks["script"]).read_text().splitlines()
    assert f"tasks=({' '.join(TASKS)})" in lines
    assert f'exec >> {home / ".parts.slurm"}/"$task"/log.txt 2>&1' in lines
    setup = next(number for number, line in enumerate(lines) if line.startswith("module"))
    assert setup > next(number for number, line in enumerate(lines) if line.startswith("cd "))
    command = shlex.split(lines[-1])
    assert command[command.index("slurm.tokens.run_task") + 1 :] == [
        str(home / "parts"), "$task", *SHARED, "--tasks", "3", "--form", "megatron", "--work=2",
        "--workers", "2",
    ]  # fmt: skip


def test_a_command_of_a_job_does_its_task_and_submits_nothing(home: Path, cluster: FakeSlurm) -> None:
    for task in range(3):
        arguments = [*SHARED, "--tasks", "3", "--workers", "0", "--block-range", f"{task}/3"]
        assert pretokenize_dataset.main(arguments) == 0
    assert (home / "parts" / "manifest.json").exists()
    assert cluster.jobs == []


def test_again_while_they_are_queued_or_run_submits_nothing(
    type_: Type, told: Told, cluster: FakeSlurm, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    type_()
    cluster.set_state(101, "RUNNING", task=1)
    capsys.readouterr()
    assert type_() == 0
    golden.text(capsys.readouterr().out)
    answer = told()
    assert (answer["submitted"], answer["running"]) == ([], [TASKS[1]])
    assert answer["queued"] == [TASKS[0], TASKS[2]]
    assert len(cluster.jobs) == 1


def test_after_a_failure_what_is_missing(type_: Type, told: Told, cluster: FakeSlurm) -> None:
    type_()
    do_task(0)
    cluster.set_state(101, "COMPLETED", task=0)
    cluster.set_state(101, "RUNNING", task=1)
    cluster.set_state(101, "FAILED", task=2)
    answer = told()
    assert (answer["done"], answer["submitted"], answer["running"]) == ([0], [TASKS[2]], [TASKS[1]])
    assert "array" not in cluster.jobs[1]["options"]
    assert told()["submitted"] == []


def test_when_all_tasks_are_done_the_set_is_made_here(
    told: Told, cluster: FakeSlurm, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from data_loading.pretokenizer.distributed import merge

    with monkeypatch.context() as patch:  # as if each job had been killed before
        patch.setattr(merge, "merge_if_done", lambda *_: None)
        for task in range(3):
            do_task(task)
    assert not (home / "parts").exists()
    made = {"path": "parts", "up_to_date": True, "submitted": [], "jobs": [], "status": 0}
    assert told() == made
    assert (home / "parts" / "manifest.json").exists()
    monkeypatch.setenv("PATH", "/nowhere")
    assert told() == made, "a set that is up to date needs no Slurm"
    assert cluster.jobs == []


def test_tasks_of_another_command_are_not_mixed(
    type_: Type, cluster: FakeSlurm, home: Path, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    do_task(1, 3, "--val-fraction", "0.5")
    assert "--val-fraction 0.5" in refusal(type_, capsys)
    assert cluster.jobs == []
    shutil.rmtree(home / ".parts.tasks")
    type_()
    golden.text(refusal(type_, capsys, "--document-separator", "=="), numbers=False)
    os.utime(home / TEXTS[1], (1, 1))
    assert TEXTS[1] in refusal(type_, capsys)
    assert len(cluster.jobs) == 1


@pytest.mark.parametrize("point", ["submit:after_places", "submit:after_sbatch", "submit:after_job_id"])
def test_a_submitter_that_dies_leaves_no_job_twice_and_none_unknown(
    type_: Type, told: Told, cluster: FakeSlurm, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    class Died(BaseException):
        pass

    def on_point(name: str) -> None:
        if name == point:
            raise Died

    with monkeypatch.context() as patch:
        patch.setattr(atomic_files, "on_point", on_point)
        with pytest.raises(Died):
            type_()
    told()
    assert [len(job["states"]) for job in cluster.jobs] == [3]


def test_a_queue_without_room_is_refused(
    type_: Type, cluster: FakeSlurm, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    cluster.tell("most", "2")
    golden.text(refusal(type_, capsys))
    assert cluster.jobs == []
    do_task(0)
    assert type_() == 0
    assert len(cluster.jobs[0]["states"]) == 2


def test_the_plan_shows_what_would_be_sent(
    type_: Type,
    told: Told,
    cluster: FakeSlurm,
    home: Path,
    capsys: pytest.CaptureFixture[str],
    golden: Golden,
) -> None:
    assert type_("--dry-run") == 0
    out = capsys.readouterr().out
    golden.text(out.partition("#!")[0])
    assert "#SBATCH --array=0-2" in out
    answer = told("--dry-run")["slurm"]
    assert answer["asked"]["mem_bytes"] == 600 << 20
    assert (answer["to_submit"], len(answer["scripts"])) == (TASKS, 1)
    assert cluster.jobs == []
    assert sorted(path.name for path in home.iterdir()) == list(TEXTS)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--val", "part-0.txt"], "--val"),
        (["--append"], "--append"),
        (["--overwrite"], "--overwrite"),
        (["--dedup", "lines"], "--dedup"),
        (["--max-documents", "3"], "--max-documents"),
        (["slurm.gpus_per_node=1"], "slurm.gpus_per_node"),
        (["slurm.memm=1GB"], "slurm.memm"),
        (["slurm.confirm=2"], "slurm.confirm"),
        (["slurm.partition=nope"], "slurm.partition"),
    ],
)
def test_what_cannot_go_along_is_one_message(
    type_: Type, cluster: FakeSlurm, capsys: pytest.CaptureFixture[str], arguments: list[str], expected: str
) -> None:
    assert expected in refusal(type_, capsys, *arguments)
    assert cluster.jobs == []


def test_more_tasks_than_inputs(type_: Type, capsys: pytest.CaptureFixture[str], golden: Golden) -> None:
    golden.text(refusal(type_, capsys, tasks=4))


def test_flags_that_are_missing(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, expected in [
        (["part-0.txt", "--slurm", "default"], "--tasks 16"),
        (["part-0.txt", "--tasks", "3"], "--slurm SITE"),
        (["part-0.txt", "slurm.mem=1GB"], "--slurm SITE"),
        (["part-0.txt", "--slurm", "nowhere", "--tasks", "1", "--tokenizer", "bytes"], "supercloud"),
        (
            ["-", "--slurm", "default", "--tasks", "3", "--tokenizer", "bytes", "--output", "x"],
            "standard input",
        ),
    ]:
        assert pretokenize_dataset.main(arguments) == 2
        assert expected in capsys.readouterr().err


def test_without_slurm_the_commands_by_hand_are_named(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert pretokenize_dataset.main([*ASKED, "--tasks", "3"]) == 2
    golden.text(capsys.readouterr().err.partition("error: ")[2])


def test_the_set_has_shards_without_a_flag(home: Path, cluster: FakeSlurm) -> None:
    given = [*TEXTS, "--output", "x", "--tokenizer", "bytes", "--slurm", "default", "--tasks", "2"]
    assert pretokenize_dataset.main([*given, "slurm.mem=600MB"]) == 0
    assert json.loads((home / ".x.tasks" / "plan.json").read_text())["--tokens-per-shard"] == 100_000_000


def test_slurm_resubmit_types_the_command_again(
    type_: Type, cluster: FakeSlurm, home: Path, capfd: pytest.CaptureFixture[str], golden: Golden
) -> None:
    from slurm.__main__ import main

    assert type_() == 0
    for job in cluster.jobs:
        cluster.set_state(job["id"], "FAILED")
    do_task(0)
    capfd.readouterr()
    assert main(["resubmit", "parts", "--mem", "x2", "slurm.parallel=1", "--dry-run", "--json"]) == 0
    told = capfd.readouterr()
    plain = json.loads(told.out)["slurm"]
    assert plain["asked"]["mem_bytes"] == 1200 << 20
    assert plain["to_submit"] == TASKS[1:]
    assert told.err.split()[:3] == [f"{home}:", "python", "pretokenize_dataset.py"]
    assert main(["resubmit", "parts", "--only", "oom"]) == 2
    golden.text(capfd.readouterr().err)


def test_slurm_cancel_ends_the_jobs_of_a_set(
    type_: Type, cluster: FakeSlurm, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    from slurm.__main__ import main

    assert type_() == 0
    capsys.readouterr()
    assert main(["cancel", "parts", "--yes"]) == 0
    golden.text(capsys.readouterr().out)
    assert {state for job in cluster.jobs for state in job["states"]} == {"CANCELLED"}
