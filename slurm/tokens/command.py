"""`pretokenize_dataset.py TEXT --slurm SITE --tasks N`: from what was typed to jobs of Slurm."""

from __future__ import annotations

import argparse
import dataclasses
import json
import shlex
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from data_loading.pretokenizer.block_range import FLAG
from data_loading.pretokenizer.existing import job_of
from data_loading.pretokenizer.inputs import Inputs
from data_loading.pretokenizer.job import check_options
from data_loading.pretokenizer.options import Options
from data_loading.pretokenizer.source import Source
from data_loading.pretokenizer.task import check_divisible
from data_loading.pretokenizer.task_states import TaskStates, look_at_tasks
from data_loading.set_files import SetFiles, disk_errors
from data_loading.task_commands import shared_arguments
from data_loading.tokenizer import Tokenizer
from experiment_utils.errors import UserError
from slurm.cluster import read_cluster
from slurm.records import SLURM, Submission
from slurm.submit.arrays import Asked
from slurm.submit.ask import NoAnswer, need_slurm
from slurm.submit.asking import try_out
from slurm.submit.room import limits_of
from slurm.tokens import asking, telling
from slurm.tokens.script import MERGE
from slurm.tokens.sending import Held, Order, Sent, behind, held_by_queue, send_missing, text_of, to_send_of

ROOT = Path(__file__).resolve().parent.parent.parent
Log = Callable[[str], None]


def run_on_slurm(
    source: Source,
    tokenizer: Tokenizer,
    output: Path,
    how: Options,
    given: argparse.Namespace,
    arguments: Sequence[str],
    overrides: Sequence[str],
    tasks: int,
    log: Log,
) -> int:
    """Submit what is missing of the set, and say so; 1 where not all of it could be submitted.

    arguments: what was typed, without `slurm.KEY=VALUE`, which are the overrides.

    Raises:
        UserError: the text cannot be divided, what is there is of something else, or the cluster says no.
    """
    whole = source if isinstance(source, Inputs) else Inputs([source])
    check_divisible(whole, how, output, "--slurm")
    check_options(how, output)
    files = SetFiles(output)
    look = partial(look_at_tasks, whole, tokenizer, files, tasks, how)
    states = look()
    if states.manifest is not None:
        return _up_to_date(output, states, given)
    order, warnings = _order(whole, tokenizer, files, how, given, arguments, overrides, tasks)
    for line in warnings:
        log(f"WARNING: {line}")
    if given.dry_run:
        return _plan(whole, tokenizer, order, look(), how, given, log)
    with disk_errors(files.jobs, output):
        files.jobs.mkdir(parents=True, exist_ok=True)
        sent = send_missing(order, look)
    if sent.states.manifest is not None:
        return _up_to_date(output, sent.states, given)
    if given.json:
        print(json.dumps(telling.to_json(sent, order), indent=2))
    else:
        print("\n".join(telling.render(sent, order)))
    return 1 if sent.not_sent else 0


def _order(
    whole: Inputs,
    tokenizer: Tokenizer,
    files: SetFiles,
    how: Options,
    given: argparse.Namespace,
    arguments: Sequence[str],
    overrides: Sequence[str],
    tasks: int,
) -> tuple[Order, list[str]]:
    """What is to be submitted, and what may go wrong all the same.

    Raises:
        UserError: there is no Slurm here, or it says no.
    """
    config = asking.read_site(given.slurm, overrides)
    shared = shared_arguments(arguments)
    by_hand = shlex.join(["python", "pretokenize_dataset.py", *shared, FLAG])
    need_slurm(
        "--slurm",
        f"do the tasks by hand: {by_hand} 0/{tasks} to {tasks - 1}/{tasks}, then python "
        f"pretokenize_dataset.py merge {shlex.quote(str(files.tokens))}",
    )
    cluster = read_cluster()
    if not cluster.is_here:
        raise NoAnswer(f"Slurm does not answer, so nothing was submitted: {'; '.join(cluster.notes)}")
    asked = asking.ask_for(config, tokenizer, how.engine, how.workers, cluster)
    wrong = asking.refusals(asked, whole, tasks, cluster)
    if wrong:
        raise UserError(*wrong)
    of_tasks = [Asked("the tasks", asked.task.options)] * tasks
    limits = try_out(
        [*of_tasks, Asked("the merge of the tasks", asked.merge.options)],
        limits_of([of_tasks[0].queue], cluster),
        after=1,
    )
    formats = ["--format", given.format] if given.format else []
    order = Order(
        files=files,
        tasks=tasks,
        makes=job_of(whole, tokenizer, dataclasses.replace(how, command=()), None),
        asking=asked,
        limits=limits,
        arguments=[*shared, "--workers", str(asked.workers)],
        merge_arguments=["merge", str(files.tokens), *formats],
        command=shlex.join(["python", "pretokenize_dataset.py", *arguments, *overrides]),
        snapshot=_snapshot,
    )
    return order, asking.warnings(whole, files.tokens, ROOT, cluster)


def _snapshot(folder: Path) -> Path:
    from slurm.snapshot import take

    return take(folder).path


def _up_to_date(output: Path, states: TaskStates, given: argparse.Namespace) -> int:
    if given.json:
        print(json.dumps({"path": str(output), "up_to_date": True, "submitted": [], "jobs": []}, indent=2))
        return 0
    print(f"{output}: the set is there. Up to date: nothing was submitted")
    if given.format:
        print(
            f"its exports: {shlex.join(['python', 'pretokenize_dataset.py', 'merge', str(output)])} "
            f"--format {given.format}"
        )
    return 0


def _plan(
    whole: Inputs,
    tokenizer: Tokenizer,
    order: Order,
    states: TaskStates,
    how: Options,
    given: argparse.Namespace,
    log: Log,
) -> int:
    """Say what would be made and submitted; nothing is."""
    from data_loading.pretokenizer.dry_run import facts_of, lines_of, make_plan

    study = order.files.jobs
    held = held_by_queue(study, order) if study.is_dir() else Held()
    names = [
        name for task, name in enumerate(order.names) if task not in states.done and name not in held.tasks
    ]
    sent = Sent(states, held, not_sent=dict.fromkeys([*names, MERGE], "--dry-run"))
    texts = _scripts(study, order, names, held)
    plan = make_plan(whole, tokenizer, order.files.tokens, how, log)
    if given.json:
        facts = {**telling.to_json(sent, order), "scripts": texts}
        print(json.dumps({**facts_of(plan), "slurm": facts}, indent=2))
    else:
        print("\n".join([*lines_of(plan), *telling.planned(sent, order, texts)]))
    return 0


def _scripts(study: Path, order: Order, names: list[str], held: Held) -> list[str]:
    """As they would be sent, with words in place of what only a submission has."""
    identity = "SUBMISSION"
    to_send = to_send_of(study, identity, order, names)
    submission = Submission(
        id=identity, study=study, launcher=SLURM, created_s=time.time(), user="", host="",
        cwd=str(Path.cwd()), command=order.command, arrays=[], snapshot="SNAPSHOT",
    )  # fmt: skip
    waits_for = ["ARRAY"] if names else []
    waits_for += [job for name, (job, _) in held.tasks.items() if name != MERGE]
    last = to_send[-1].array
    arrays = [*(one.array for one in to_send[:-1]), behind(last, submission, waits_for)]
    return [text_of(submission, array, one.setup, order) for array, one in zip(arrays, to_send, strict=True)]
