"""One of several tasks that make a token set together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from data_loading.pretokenizer.distributed.task_plan import (
    SetTask,
    agree,
    inputs_of,
    make_plan,
    remove_tasks,
    sizes_of,
)
from data_loading.pretokenizer.inputs.concatenated import Inputs, as_inputs
from data_loading.pretokenizer.job import Result, pretokenize
from data_loading.pretokenizer.options import Options
from data_loading.pretokenizer.resume import up_to_date
from data_loading.text_io.source import Source
from data_loading.tokenizers.tokenizer import Tokenizer
from data_loading.tokens.commit import settle
from data_loading.tokens.disk_errors import disk_errors
from data_loading.tokens.set_files import SetFiles
from experiment_utils.errors import UserError

_UNEVEN = 1.5
"""Times the even share that a task has because of one large input, above which a line says so."""


def pretokenize_task(
    source: Source | Inputs,
    tokenizer: Tokenizer,
    output: Path,
    task: SetTask,
    options: Options,
    log: Callable[[str], None] = lambda line: None,
) -> Result:
    """Tokenize the inputs of one task into a set of its own, for `merge`; others can work at the same time.

    A task that is done is left alone, as is one whose set is made. A killed one resumes.

    Returns:
        The result of the task, or of the whole set (`path` is `output`) if that is made already.

    Raises:
        UserError: as `pretokenize`; or tasks cannot make this set, or were begun with another command.
        LockHeld: another process does this task.
    """
    whole = as_inputs(source)
    plan = make_plan(whole, tokenizer, output, options, task.tasks)
    files = SetFiles(output)
    with disk_errors(files.tasks, output):
        settle(files)
        manifest = up_to_date(files, whole, tokenizer, options)
        if manifest is not None:
            return Result(output, manifest, False, 0, 0.0)
        agree(files, plan)
    part = inputs_of(whole, plan, task)
    note_uneven(whole, task.tasks, log)
    try:
        return pretokenize(
            part, tokenizer, task.files(output).tokens, replace(options, val_fraction=None), log
        )
    except UserError as error:
        if "no-text" not in error.codes:
            raise
        raise UserError(
            f"{error}, and {task.name} has no other input. Leave them away, or give fewer tasks: "
            f"{remove_tasks(files)}, then the command again",
            code="no-text",
        ) from error


def note_uneven(whole: Inputs, tasks: int, log: Callable[[str], None]) -> None:
    """Log a line if one input is much larger than the share of a task."""
    sizes = sizes_of(whole)
    largest = max(sizes)
    if tasks > 1 and largest > _UNEVEN * sum(sizes) / tasks:
        what = whole.parts[sizes.index(largest)].what
        log(
            f"{what} has {largest / sum(sizes):.0%} of the bytes, and one task does it alone. Split it into "
            "several files to be faster"
        )
