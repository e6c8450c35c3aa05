"""How far the tasks of a set are, by what lies there: what whoever sends tasks has to know."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from data_loading.pretokenizer.block_range import BlockRange, found_tasks
from data_loading.pretokenizer.existing import (
    finished_task,
    goes_on,
    job_of,
    refuse_other_things,
    up_to_date,
)
from data_loading.pretokenizer.inputs import Inputs
from data_loading.pretokenizer.options import Options
from data_loading.pretokenizer.share import share_of
from data_loading.set_files import SetFiles, settle
from data_loading.tokenizer import Tokenizer
from experiment_utils.errors import UserError


@dataclass(frozen=True)
class TaskStates:
    """manifest: of the set, where it is made of all this already. done, begun: numbers of tasks; those that
    were begun go on from where they were."""

    manifest: dict[str, Any] | None = None
    done: frozenset[int] = field(default_factory=frozenset)
    begun: frozenset[int] = field(default_factory=frozenset)


def look_at_tasks(
    whole: Inputs, tokenizer: Tokenizer, files: SetFiles, tasks: int, options: Options
) -> TaskStates:
    """How far the set `files` is. Tasks may be at work meanwhile.

    Raises:
        UserError: the set, a task or what a task has begun is of something else, or of another number of
            tasks; so the tasks would be refused.
    """
    settle(files)
    refuse_other_things(files)
    manifest = up_to_date(files, whole, tokenizer, options)
    if manifest is not None:
        return TaskStates(manifest)
    found = found_tasks(files.tasks)
    others = sorted(set(found) - {tasks})
    if others:
        raise UserError(
            f"{files.tasks} holds tasks of another division: of {others[0]:,}, not of {tasks:,}. Go on with "
            f"that: --tasks {others[0]}; or remove it: rm -r {files.tasks}",
            code="tasks-other-division",
        )
    done, begun = found.get(tasks, set()), set[int]()
    for number in range(tasks):
        block_range = BlockRange(number, tasks)
        own = block_range.files(files.tokens)
        if number not in done and not own.partial.exists():
            continue
        share = share_of(whole, tokenizer.cut_rule, block_range)
        if number in done:
            finished_task(own, share, tokenizer, options)
        elif goes_on(own, job_of(share, tokenizer, options, None), share, tokenizer, options):
            begun.add(number)
    return TaskStates(None, frozenset(done), frozenset(begun))
