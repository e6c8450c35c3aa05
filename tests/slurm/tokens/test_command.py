"""`--slurm SITE --tasks N`: what is missing is submitted once, whoever types what again."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_slurm import FakeSlurm

import pretokenize_dataset
from data_loading.pretokenizer.block_range import BlockRange
from experiment_utils import atomic_files
from slurm.records import submissions
from slurm.tokens.truth import token_truths
from tests.golden_text import Golden
from tests.slurm.submit.conftest import one_room
from tests.slurm.tokens.conftest import ASKED, Type, do_task

Told = Callable[..., dict[str, Any]]
TASKS = ["00000-of-00003", "00001-of-00003", "00002-of-00003"]


def refusal(type_: Type, capsys: pytest.CaptureFixture[str], *arguments: str, **options: Any) -> str:
    capsys.readouterr()
    assert type_(*arguments, **options) == 2
    return capsys.readouterr().err.partition("error: ")[2]


def test_an_array_and_a_merge_behind_it(
    type_: Type, cluster: FakeSlurm, home: Path, capsys: Any, golden: Golden
) -> None:
    assert type_() == 0
    tasks, merge = cluster.jobs
    assert tasks["options"]["array"] == "0-2"
    assert tasks["options"]["mem"] == "600M"
    assert tasks["options"]["cpus-per-task"] == "1"
    assert tasks["options"]["requeue"] == ""
    assert merge["options"]["dependency"] == f"afterok:{tasks['id']}"
    assert merge["options"]["kill-on-invalid-dep"] == "yes"
    (submission,) = submissions(home / ".parts.slurm")
    assert [array.job_id for array in submission.arrays] == [str(tasks["id"]), str(merge["id"])]
    out = capsys.readouterr().out
    golden.text(out)


def test_the_script_is_a_page_of_shell_with_the_command_of_each_task(type_: Type, cluster: FakeSlurm) -> None:
    assert type_("--format", "megatron") == 0
    tasks, merge = (Path(job["script"]).read_text().splitlines() for job in cluster.jobs)
    assert f"tasks=({' '.join(TASKS)})" in tasks
    command = shlex.split(tasks[-1])
    assert command[command.index("$task") + 1 :] == [
        "my.txt", "--tokenizer", "bytes", "--output", "parts", "--tokens-per-shard", "40K", "--workers", "0",
    ]  # fmt: skip
    assert shlex.split(merge[-1])[-4:] == ["merge", "parts", "--format", "megatron"]


def test_flags_of_the_submission_are_no_flags_of_a_task(type_: Type, cluster: FakeSlurm) -> None:
    """However they are abbreviated."""
    assert type_("--form", "megatron", "--work=2", "--js", "slurm.parallel=1") == 0
    tasks, merge = cluster.jobs
    assert tasks["options"]["array"] == "0-2%1"
    command = shlex.split(Path(tasks["script"]).read_text().splitlines()[-1])
    assert command[command.index("$task") + 1 :] == [
        "my.txt", "--tokenizer", "bytes", "--output", "parts", "--tokens-per-shard", "40K", "--workers", "2",
    ]  # fmt: skip
    assert "megatron" in Path(merge["script"]).read_text()


def test_again_while_they_are_queued_or_run_submits_nothing(
    type_: Type, told: Told, cluster: FakeSlurm, capsys: Any, golden: Golden
) -> None:
    type_()
    cluster.set_state(101, "RUNNING", task=1)
    capsys.readouterr()
    assert type_() == 0
    golden.text(capsys.readouterr().out)
    answer = told()
    assert (answer["submitted"], answer["running"]) == ([], [TASKS[1]])
    assert set(answer["queued"]) == {TASKS[0], TASKS[2], "merge"}
    assert len(cluster.jobs) == 2


def test_after_a_failure_what_is_missing_and_a_merge_behind_all_that_goes_on(
    type_: Type, told: Told, cluster: FakeSlurm
) -> None:
    type_()
    do_task(0)
    cluster.set_state(101, "COMPLETED", task=0)
    cluster.set_state(101, "RUNNING", task=1)
    cluster.set_state(101, "FAILED", task=2)
    answer = told()
    assert (answer["done"], answer["submitted"], answer["running"]) == ([0], [TASKS[2]], [TASKS[1]])
    assert cluster.calls("scancel") == [["102"]], "the old merge could never begin"
    again, merge = cluster.jobs[2:]
    assert "array" not in again["options"]
    assert merge["options"]["dependency"] == f"afterok:{again['id']}:101_1"
    assert told()["submitted"] == []


def test_when_all_tasks_are_done_the_merge_alone(type_: Type, told: Told, cluster: FakeSlurm) -> None:
    type_()
    cluster.set_state(101, "COMPLETED")
    cluster.set_state(102, "CANCELLED")
    for task in range(3):
        do_task(task)
    answer = told()
    assert (answer["submitted"], answer["merge"]) == ([], "103")
    assert "dependency" not in cluster.jobs[2]["options"]


def test_a_set_that_is_up_to_date_needs_no_slurm(
    type_: Type, told: Told, cluster: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    for task in range(3):
        do_task(task)
    assert pretokenize_dataset.main(["merge", "parts"]) == 0
    monkeypatch.setenv("PATH", "/nowhere")
    assert told() == {"path": "parts", "up_to_date": True, "submitted": [], "jobs": [], "status": 0}
    assert cluster.jobs == []


def test_jobs_of_another_text_or_division_are_not_mixed(
    type_: Type, cluster: FakeSlurm, home: Path, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    type_()
    assert "scancel 101" in refusal(type_, capsys, tasks=4)
    golden.text(refusal(type_, capsys, "--document-separator", "=="))
    os.utime(home / "my.txt", (1, 1))
    assert refusal(type_, capsys)
    assert len(cluster.jobs) == 2


def test_tasks_of_another_division_on_the_disk(type_: Type, capsys: pytest.CaptureFixture[str]) -> None:
    do_task(0, tasks=4)
    assert "--tasks 4" in refusal(type_, capsys)


def test_a_task_made_with_another_option_is_refused_before_anything_is_submitted(
    type_: Type, cluster: FakeSlurm, capsys: pytest.CaptureFixture[str]
) -> None:
    do_task(1, 3, "--val-fraction", "0.5")
    assert "--val-fraction 0.5" in refusal(type_, capsys)
    assert cluster.jobs == []


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
    names = [job["name"] for job in cluster.jobs]
    assert len(names) == len(set(names))
    submitted = [job for job in cluster.jobs if len(job["states"]) == 3]
    assert len(submitted) == 1
    (merge,) = (job for job in cluster.jobs if len(job["states"]) == 1)
    waits_for = merge["options"]["dependency"].split(":")[1:]
    whole = str(submitted[0]["id"])
    assert waits_for in ([whole], [f"{whole}_{task}" for task in range(3)])


def test_as_many_as_the_queue_takes_and_no_merge_before_the_last(
    type_: Type, told: Told, cluster: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    import slurm.submit.room

    monkeypatch.setattr(slurm.submit.room, "rooms_of", one_room(lambda: 2))
    answer = told()
    assert (answer["submitted"], answer["status"]) == (TASKS[:2], 1)
    assert set(answer["not_submitted"]) == {TASKS[2], "merge"}
    cluster.set_state(101, "COMPLETED", task=0)
    do_task(0)
    answer = told()
    assert (answer["submitted"], answer["status"]) == ([TASKS[2]], 0)
    assert cluster.jobs[-1]["options"]["dependency"] == "afterok:102:101_1"


def test_a_full_queue_is_told_by_status_and_resubmit_too(
    type_: Type, cluster: FakeSlurm, home: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    """`status` told of 0 tasks, and `resubmit` of something submitted that could not be read."""
    import slurm.submit.room

    with monkeypatch.context() as full:
        full.setattr(slurm.submit.room, "rooms_of", one_room(lambda: 0))
        assert type_() == type_() == 1
    assert len(list(submissions(home / ".parts.slurm"))) == 1
    found = token_truths(home / ".parts.slurm")
    assert [one.name for one in found] == [*TASKS, "merge"]
    assert {one.state for one in found} == {"never_started"}
    golden.text(str(found[0].reason))
    assert not cluster.jobs
    assert type_() == 0
    assert len(cluster.jobs) == 2


def test_what_sbatch_refuses_is_told_and_nothing_waits_for_it(
    type_: Type, cluster: FakeSlurm, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "slurm.partition" in refusal(type_, capsys, "slurm.partition=nope")
    assert cluster.jobs == []


def test_the_plan_shows_what_would_be_sent(
    type_: Type, told: Told, cluster: FakeSlurm, home: Path, capsys: Any, golden: Golden
) -> None:
    assert type_("--dry-run") == 0
    out = capsys.readouterr().out
    golden.text(out.partition("  jobs")[2].partition("#!")[0])
    assert "#SBATCH --dependency=afterok:ARRAY" in out
    answer = told("--dry-run")
    assert answer["slurm"]["asked"]["mem_bytes"] == 600 << 20
    assert len(answer["slurm"]["scripts"]) == 2
    assert cluster.jobs == []
    assert not (home / ".parts.slurm").exists()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--block-range", "0/3"], "--block-range"),
        (["--val", "my.txt"], "--val"),
        (["--append"], "--append"),
        (["--overwrite"], "--overwrite"),
        (["--dedup", "lines"], "--dedup"),
        (["--max-documents", "3"], "--max-documents"),
        (["slurm.gpus_per_node=1"], "slurm.gpus_per_node"),
        (["slurm.memm=1GB"], "slurm.memm"),
        (["slurm.confirm=2"], "slurm.confirm=3"),
    ],
)
def test_what_cannot_go_along_is_one_message(
    type_: Type, cluster: FakeSlurm, capsys: pytest.CaptureFixture[str], arguments: list[str], expected: str
) -> None:
    assert expected in refusal(type_, capsys, *arguments)
    assert cluster.jobs == []


def test_a_part_of_it_alone_is_told(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, expected in [
        (["my.txt", "--slurm", "default"], "--tasks 16"),
        (["my.txt", "--tasks", "3"], "--slurm SITE"),
        (["my.txt", "slurm.mem=1GB"], "--slurm SITE"),
        (["my.txt", "--slurm", "nowhere", "--tasks", "3", "--tokenizer", "bytes"], "supercloud"),
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
    error = capsys.readouterr().err
    assert "--block-range 0/3" in error
    golden.text(error.partition("error: ")[2])


def test_the_set_has_shards_unless_it_is_said(
    home: Path, cluster: FakeSlurm, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["my.txt", "--tokenizer", "bytes", "--slurm", "default", "--tasks", "2", "slurm.mem=600MB"]
    assert pretokenize_dataset.main(given) == 0
    assert (home / ".my.slurm" / BlockRange(1, 2).folder_name).is_dir()
    (line,) = (
        x for x in Path(cluster.jobs[0]["script"]).read_text().splitlines() if x.startswith("exec srun")
    )
    assert shlex.split(line)[-6:] == [
        "--tokenizer", "bytes", "--tokens-per-shard", "100M", "--workers", "4",
    ]  # fmt: skip


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
    assert list(plain["not_submitted"]) == ["00001-of-00003", "00002-of-00003", "merge"]
    assert told.err.startswith(f"{home}: python pretokenize_dataset.py")
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
    assert main(["cancel", "parts", "--yes"]) == 0
    golden.text(capsys.readouterr().out)
