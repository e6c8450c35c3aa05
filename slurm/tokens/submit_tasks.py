"""Submit the tasks of a token set that are neither done nor queued nor running, as one job array.

    lock -> reconcile what an earlier submitter left -> the queue -> the disk -> intent -> sbatch -> job ids

The queue is asked before the disk: a task that ends in between is seen in the one or the other.
"""

from __future__ import annotations

import argparse
import json
import shlex
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from data_loading.pretokenizer.distributed.merge import merge_if_done
from data_loading.pretokenizer.distributed.task import note_uneven
from data_loading.pretokenizer.distributed.task_plan import (
    SetTask,
    agree,
    make_plan,
    missing_tasks,
    read_plan,
)
from data_loading.pretokenizer.inputs.concatenated import Inputs, as_inputs
from data_loading.pretokenizer.job import check_options
from data_loading.pretokenizer.options import Options
from data_loading.pretokenizer.resume import up_to_date
from data_loading.text_io.source import Source
from data_loading.tokenizers.tokenizer import Tokenizer
from data_loading.tokens.commit import settle
from data_loading.tokens.disk_errors import disk_errors
from data_loading.tokens.set_files import SetFiles
from experiment_utils import atomic_files
from experiment_utils.errors import UserError
from experiment_utils.modules import module_name
from experiment_utils.quantities import counted
from slurm.cluster import read_cluster
from slurm.cluster.job_step import PYTHON, SRUN, default_lines
from slurm.cluster.sbatch_errors import directives
from slurm.queue.arrays import Asked, ToSend, arrays_of, most_tasks
from slurm.queue.job_entry import setup_lines
from slurm.queue.send import send
from slurm.queue.slurm_client import NoAnswer, need_slurm
from slurm.queue.two_phase import intend, send_all, sent, study_lock, submission_id
from slurm.records.submissions import SLURM, Array, Submission
from slurm.submit.in_flight import in_flight
from slurm.submit.reconcile import reconcile
from slurm.submit.resource_check import check_with_sbatch
from slurm.tokens import task_resources
from slurm.tokens.task_resources import TaskRequest


@dataclass(frozen=True)
class TaskOrder:
    """The tasks of a set, what they request, and the state of each."""

    files: SetFiles
    request: TaskRequest
    most_tasks: int
    """Tasks that an array can have."""
    arguments: list[str]
    """Arguments of each task's command, without --block-range."""
    command: str
    """The command as typed."""
    states: Mapping[str, str] = field(default_factory=dict)
    """Folder name of each task to `done`, `queued`, `running` or `missing`, before this command."""
    submission: Submission | None = None
    """Submission of this command."""

    def tasks(self, *states: str) -> list[str]:
        """Names of the tasks in one of these states."""
        return [name for name, state in self.states.items() if state in states]


def run_on_slurm(
    source: Source | Inputs,
    tokenizer: Tokenizer,
    output: Path,
    how: Options,
    given: argparse.Namespace,
    arguments: Sequence[str],
    overrides: Sequence[str],
    tasks: int,
    log: Callable[[str], None],
) -> int:
    """Submit the missing tasks and print what was submitted; returns the exit status.

    Args:
        arguments: As typed, without the overrides `slurm.KEY=VALUE`.

    Raises:
        UserError: tasks cannot make this set, or were begun with another command, or the cluster refuses.
    """
    whole, files = as_inputs(source), SetFiles(output)
    plan = make_plan(whole, tokenizer, output, how, tasks, "--slurm")
    check_options(how, output)
    settle(files)
    if up_to_date(files, whole, tokenizer, how) is not None:
        return _print_made(output, as_json=given.json)
    config = task_resources.read_site(given.slurm, overrides)
    need_slurm(
        "--slurm", f"do the tasks by hand: this command with --block-range 0/{tasks} to {tasks - 1}/{tasks}"
    )
    cluster = read_cluster()
    if not cluster.is_here:
        raise NoAnswer(f"Slurm does not answer, so nothing was submitted: {'; '.join(cluster.notes)}")
    request = task_resources.request_of(config, tokenizer, how.engine, how.workers, cluster)
    refused, notes = check_with_sbatch([("a task", request.ask.options)], cluster)
    if wrong := [*task_resources.refusals(request, whole), *refused]:
        raise UserError(*wrong)
    for note in notes:
        log(f"WARNING: {note}")
    command = shlex.join(["python", "pretokenize_dataset.py", *arguments, *overrides])
    of_each = [*arguments, "--workers", str(request.workers)]
    order = TaskOrder(files, request, most_tasks(cluster), of_each, command)
    note_uneven(whole, tasks, log)
    if read_plan(files) is not None:
        agree(files, plan)
    if given.dry_run:
        return _print_plan(_with_states(order, tasks), as_json=given.json)
    with disk_errors(files.jobs, output):
        agree(files, plan)
        files.jobs.mkdir(parents=True, exist_ok=True)
        with study_lock(files.jobs):
            reconcile(files.jobs)
            order = _with_states(order, tasks)
            if len(order.tasks("done")) == tasks and merge_if_done(output, log) is not None:
                return _print_made(output, as_json=given.json)
            if order.tasks("missing"):
                order = replace(order, submission=_submit(order))
    print(json.dumps(_to_json(order), indent=2) if given.json else "\n".join(_lines(order)))
    return 0


def _with_states(order: TaskOrder, tasks: int) -> TaskOrder:
    """The order with the present state of each task. Raises UserError: Slurm does not answer."""
    names = [SetTask(number, tasks).folder_name for number in range(tasks)]
    queued = in_flight(order.files.jobs, names)
    missing = {task.folder_name for task in missing_tasks(order.files, tasks)}
    states = {name: queued.get(name, "missing") if name in missing else "done" for name in names}
    return replace(order, states=states)


def _submit(order: TaskOrder) -> Submission:
    """Submit the missing tasks.

    Raises:
        UserError: Slurm refuses some of them.
    """
    study, now_s = order.files.jobs, time.time()
    identity, snapshot = submission_id(now_s), _snapshot(study)
    for name in order.states:
        (study / name).mkdir(exist_ok=True)
    arrays = _arrays(order, identity)
    submission = intend(
        identity, study, arrays, now_s, launcher=SLURM, command=order.command, snapshot=snapshot
    )

    def send_one(submission: Submission, one: ToSend, lock: int) -> Array:
        path = submission.folder / f"{one.array.number}.sh"
        atomic_files.write_text(path, script(submission, one, order))
        return sent(one.array, send(submission, path, one.array.options, lock))

    submission, not_sent = send_all(submission, arrays, send_one)
    if not_sent:
        count = len(order.tasks("missing"))
        raise UserError(
            f"{order.files.tokens}: {count - len(not_sent):,} of {counted(count, 'task')} submitted. The "
            f"others: {next(iter(not_sent.values()))}",
            code="tasks-not-submitted",
        )
    return submission


def _snapshot(folder: Path) -> Path:
    from slurm.launch.code_snapshot import take

    return take(folder).path


def _arrays(order: TaskOrder, identity: str) -> list[ToSend]:
    ask, parallel = order.request.ask, order.request.config.slurm.parallel
    asked = [Asked(name, ask.options, ask.setup, parallel) for name in order.tasks("missing")]
    return arrays_of(asked, order.files.jobs, identity, order.most_tasks, shares=False)


def script(submission: Submission, one: ToSend, order: TaskOrder) -> str:
    """The sbatch script of an array of tasks, in shell that can be read and sent by hand."""
    array, study = one.array, shlex.quote(str(submission.study.absolute()))
    output = shlex.quote(str(order.files.tokens.absolute()))
    at_a_time = "" if array.parallel is None else f"%{array.parallel}"
    options = {
        "job-name": array.name,
        "output": str(submission.folder.absolute() / "%j.out"),
        "open-mode": "append",
        **({"array": f"0-{len(array.tasks) - 1}{at_a_time}"} if array.is_array else {}),
        **array.options,
    }
    program = f"{SRUN} {PYTHON} -m {module_name('slurm.tokens.run_task')}"
    lines = [
        f"#!/bin/bash\n{directives(options)}tasks=({' '.join(name for (name,) in array.tasks)})",
        "task=${tasks[${SLURM_ARRAY_TASK_ID:-0}]}",
        f'exec >> {study}/"$task"/log.txt 2>&1',
        *default_lines(),
        f"cd {shlex.quote(submission.cwd)} || exit 1",
        *one.setup,
        *([] if submission.snapshot is None else setup_lines(submission.snapshot)),
        f'exec {program} {output} "$task" {shlex.join(order.arguments)}',
    ]
    return "\n".join([*lines, ""])


def _print_made(output: Path, *, as_json: bool) -> int:
    if as_json:
        print(json.dumps({"path": str(output), "up_to_date": True, "submitted": [], "jobs": []}, indent=2))
    else:
        print(f"{output}: the set is made and up to date. Nothing was submitted")
    return 0


def _print_plan(order: TaskOrder, *, as_json: bool) -> int:
    """Print what would be submitted."""
    submission = Submission(
        id="SUBMISSION", study=order.files.jobs, launcher=SLURM, created_s=time.time(), user="", host="",
        cwd=str(Path.cwd()), command=order.command, arrays=[], snapshot="SNAPSHOT",
    )  # fmt: skip
    texts = [script(submission, one, order) for one in _arrays(order, submission.id)]
    if as_json:
        facts = {**_to_json(order), "to_submit": order.tasks("missing"), "scripts": texts}
        print(json.dumps({"slurm": facts}, indent=2))
    else:
        print(f"{order.files.tokens}: {_counts(order)}")
        print(f"each requests {order.request}", *texts, sep="\n")
        print("tokens, time and memory: the same command without --slurm and --tasks")
    return 0


def _to_json(order: TaskOrder) -> dict[str, Any]:
    ask, names, sent = order.request.ask, list(order.states), order.submission
    return {
        "path": str(order.files.tokens),
        "up_to_date": False,
        "tasks": len(names),
        "done": [names.index(name) for name in order.tasks("done")],
        "queued": order.tasks("queued"),
        "running": order.tasks("running"),
        "submitted": order.tasks("missing") if sent else [],
        "jobs": [
            {"job": array.job_id, "name": array.name, "tasks": array.tasks, "options": array.options}
            for array in (sent.arrays if sent else ())
        ],
        "submission": sent.id if sent else None,
        "logs": str(order.files.jobs),
        "asked": {
            "options": ask.options,
            "mem_bytes": ask.mem_bytes,
            "time_limit_s": ask.limit_s,
            "workers": order.request.workers,
        },
    }


def _lines(order: TaskOrder) -> Iterator[str]:
    """Lines for a terminal."""
    output, count = shlex.quote(str(order.files.tokens)), len(order.tasks("missing"))
    if order.submission:
        jobs = ", ".join(array.job_id or "" for array in order.submission.arrays)
        yield f"{output}: submitted {count:,} of {counted(len(order.states), 'task')} as job {jobs}"
        yield f"  each requests {order.request}"
    yield f"{output}: {_counts(order)}"
    if not count:
        yield "nothing was submitted: all that is missing is queued or running"
    yield f"State: python -m slurm status {output}. Stop: python -m slurm cancel {output}"
    yield f"If one fails: python -m slurm why {output}. The same command again submits what is missing"


def _counts(order: TaskOrder) -> str:
    """`3 of 16 tasks done, 11 queued, 2 running`."""
    missing = "queued" if order.submission else "to submit"
    words = Counter(missing if state == "missing" else state for state in order.states.values())
    done = f"{words.pop('done', 0):,} of {counted(len(order.states), 'task')} done"
    return ", ".join([done, *(f"{count:,} {word}" for word, count in sorted(words.items()))])
