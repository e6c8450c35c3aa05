"""The plan that all tasks of a token set share: which inputs each takes, tokenizer and options."""

from __future__ import annotations

import json
import os
import re
import shlex
from bisect import bisect_left
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from data_loading.pretokenizer.inputs.concatenated import Inputs
from data_loading.pretokenizer.manifest import WRITER_VERSION
from data_loading.pretokenizer.options import Options
from data_loading.pretokenizer.resume import options_of
from data_loading.tokenizers.tokenizer import Tokenizer
from data_loading.tokens.set_files import SetFiles
from experiment_utils import atomic_files
from experiment_utils.errors import UserError

FLAG = "--block-range"
PLAN = "plan.json"
VERSION = 1
_TASK_FOLDER = re.compile(r"\.?\d{5,}-of-\d{5,}(\.\w+)?")
_NOT_COMPARED = ("skip_bad",)
"""Keys that change no id."""


@dataclass(frozen=True)
class SetTask:
    """Task `number`, counted from 0, of `tasks` that make a token set together."""

    number: int
    tasks: int

    def __str__(self) -> str:
        return f"{self.number}/{self.tasks}"

    @property
    def name(self) -> str:
        """Name in messages."""
        return f"task {self.number} of {self.tasks}"

    @property
    def folder_name(self) -> str:
        return f"{self.number:05d}-of-{self.tasks:05d}"

    def files(self, output: Path) -> SetFiles:
        """Files of the task's own set, for the set `output`."""
        return SetFiles(SetFiles(output).tasks / self.folder_name)


def parse_task(given: str) -> SetTask:
    """Read `3/16`. Raises UserError."""
    found = re.fullmatch(r"(\d+)/(\d+)", given.strip())
    if found is None or int(found[1]) >= int(found[2]):
        raise UserError(
            f"{FLAG} {given}: expected TASK/TASKS, such as 3/16. Tasks are counted from 0: 0/16 to 15/16",
            code="task-invalid",
        )
    return SetTask(int(found[1]), int(found[2]))


def named_task(folder_name: str) -> SetTask:
    """The task with this `folder_name`. Raises ValueError."""
    number, tasks = folder_name.split("-of-")
    return SetTask(int(number), int(tasks))


def assign(sizes: Sequence[int], tasks: int) -> list[range]:
    """Divide inputs of these sizes among tasks: consecutive, each input once, no task without one.

    A task gets at most the even share and the largest input together.

    Args:
        sizes: Bytes of each input.
        tasks: At most as many as there are inputs.
    """
    before = [0, *accumulate(sizes)]
    borders = [0]
    for task in range(1, tasks):
        wanted = before[-1] * task / tasks
        place = bisect_left(before, wanted)
        nearest = place - 1 if wanted - before[place - 1] < before[place] - wanted else place
        borders.append(min(max(nearest, borders[-1] + 1), len(sizes) - (tasks - task)))
    borders.append(len(sizes))
    return [range(*pair) for pair in pairwise(borders)]


def make_plan(
    whole: Inputs, tokenizer: Tokenizer, output: Path, options: Options, tasks: int, flag: str = FLAG
) -> dict[str, Any]:
    """The plan of a set that `tasks` tasks make of these inputs, as plain values.

    Args:
        whole: Inputs of all tasks.
        flag: Flag that asks for tasks, for messages.

    Raises:
        UserError: tasks cannot make this set.
    """
    _check(whole, output, options, tasks, flag)
    plan = {
        "version": VERSION,
        "writer_version": WRITER_VERSION,
        "tasks": tasks,
        "inputs": whole.state(),
        "first_inputs": [part.start for part in assign(sizes_of(whole), tasks)],
        "tokenizer": tokenizer.content_hash,
        "options": options_of(whole, tokenizer),
        "--tokens-per-shard": options.shard_tokens,
        "--val-fraction": options.val_fraction,
        "skip_bad": whole.tolerance.allowed,
    }
    found: dict[str, Any] = json.loads(json.dumps(plan))
    return found


def sizes_of(whole: Inputs) -> list[int]:
    """Bytes of each input; 1 where its length is not known, as on the hub."""
    return [part.total_bytes or 1 for part in whole.parts]


def inputs_of(whole: Inputs, plan: dict[str, Any], task: SetTask) -> Inputs:
    """The inputs of one task, in their order."""
    borders = [*plan["first_inputs"], len(whole.parts)]
    return replace(whole, parts=whole.parts[borders[task.number] : borders[task.number + 1]])


def agree(files: SetFiles, plan: dict[str, Any]) -> None:
    """Write the plan of the set `files`, or compare it with the one that another task wrote.

    Raises:
        UserError: the tasks were begun with another plan, or by an earlier version.
    """
    there = read_plan(files)
    if there is None:
        files.tasks.mkdir(parents=True, exist_ok=True)
        candidate = files.tasks / f".{PLAN}.{os.uname().nodename}.{os.getpid()}"
        candidate.write_text(json.dumps(plan), encoding="utf-8")
        atomic_files.fsync_file(candidate)
        with suppress(FileExistsError):  # another task was faster
            os.link(candidate, files.tasks / PLAN)
        candidate.unlink()
        atomic_files.fsync_folder(files.tasks)
        there = read_plan(files)
    difference = _difference(there, plan)
    if difference is not None:
        raise UserError(
            f"{files.tokens}: its tasks were begun with another command: {difference}. Type it as it was, or "
            f"begin again: {remove_tasks(files)}",
            code="tasks-differ",
        )


def read_plan(files: SetFiles) -> dict[str, Any] | None:
    """The plan of the tasks of a set; None if no task was begun.

    Raises:
        UserError: it is damaged, or an earlier version of this program began the tasks.
    """
    try:
        plan = atomic_files.read_object(files.tasks / PLAN)
    except ValueError as error:
        raise UserError(
            f"{files.tasks / PLAN} is damaged ({error}). Begin again: {remove_tasks(files)}",
            code="task-plan-damaged",
        ) from None
    folders = files.tasks.iterdir() if plan is None and files.tasks.is_dir() else ()
    if any(_TASK_FOLDER.fullmatch(path.name) for path in folders):
        raise UserError(
            f"{files.tasks} holds tasks of an earlier version of this program, which cannot be continued. "
            f"Begin again: {remove_tasks(files)}",
            code="tasks-of-earlier-version",
        )
    return plan


def missing_tasks(files: SetFiles, tasks: int) -> list[SetTask]:
    """Tasks of the set `files` that are not done."""
    every = (SetTask(number, tasks) for number in range(tasks))
    return [task for task in every if not task.files(files.tokens).manifest.exists()]


def _check(whole: Inputs, output: Path, options: Options, tasks: int, flag: str) -> None:
    """Raise UserError if tasks cannot make this set."""
    count, alone = len(whole.parts), f"Omit {flag}: one process does it"
    is_folder = options.shard_tokens is not None and SetFiles(output).is_folder
    inputs = "is 1 input" if count == 1 else f"are {count:,} inputs"
    reasons = (
        (not is_folder, "task-needs-shards",
            "tasks make a folder of shards. Give their length, such as --tokens-per-shard 100M"),
        (options.append, "task-and-append", f"--append adds to a set that exists. {alone}"),
        (whole.is_limited, "task-with-limit",
            f"only the tasks before know where --max-documents and --max-tokens end the set. {alone}"),
        (whole.duplicates is not None, "task-with-dedup",
            f"--dedup compares the texts of all tasks. {alone}"),
        (not whole.can_continue, "input-not-readable-twice",
            "standard input can be read by one process only. Write it to files, and give those"),
        (tasks > count, "more-tasks-than-inputs",
            f"a task takes whole inputs, and there {inputs} for {tasks:,} tasks. Give at most as many tasks "
            "as inputs, or split the files, such as lines of JSON: split -n l/16 --additional-suffix=.jsonl "
            "FILE part-"),
    )  # fmt: skip
    for is_so, code, why in reasons:
        if is_so:
            raise UserError(f"{flag}: {why}", code=code)


def _difference(there: Any, here: Any, name: str = "") -> str | None:
    """The first difference of two plans, as text; None if they are equal."""
    if isinstance(there, dict) and isinstance(here, dict):
        names = [name for name in {**there, **here} if name not in _NOT_COMPARED]
        found = (_difference(there.get(one), here.get(one), one) for one in names)
        return next(filter(None, found), None)
    if there == here:
        return None
    if name == "inputs":
        if len(there) != len(here):
            return f"{len(there):,} inputs then, {len(here):,} now"
        there, here = next(pair for pair in zip(there, here, strict=True) if pair[0] != pair[1])
    return f"{name} {there} then, {here} now"


def remove_tasks(files: SetFiles) -> str:
    """The command that removes what all tasks have done."""
    return shlex.join(["rm", "-r", str(files.tasks)])
