"""One of several tasks that make a set together: its share of the inputs to a folder of its own."""

from __future__ import annotations

import time
from pathlib import Path

from data_loading.pretokenizer.block_range import FLAG, BlockRange
from data_loading.pretokenizer.blocks import Undecodable
from data_loading.pretokenizer.existing import finished_task, up_to_date
from data_loading.pretokenizer.inputs import Inputs
from data_loading.pretokenizer.job import Result, check_options
from data_loading.pretokenizer.job_memory import JobMemory
from data_loading.pretokenizer.journal import read_job
from data_loading.pretokenizer.making import Job, Log, make_set
from data_loading.pretokenizer.options import Options
from data_loading.pretokenizer.share import share_of
from data_loading.pretokenizer.source import Source
from data_loading.pretokenizer.undecodable import with_count
from data_loading.set_files import SetFiles, disk_errors, finish_commit, settle
from data_loading.tokenizer import Tokenizer
from experiment_utils import lock_file
from experiment_utils.errors import UserError


def pretokenize_share(
    source: Source,
    tokenizer: Tokenizer,
    output: Path,
    block_range: BlockRange,
    options: Options,
    log: Log = lambda line: None,
) -> Result:
    """Write what the task adds to the set `output`, for `merge`; other tasks may work meanwhile.

    A task that is done is left alone, as is one whose set is made. One that was killed goes on.

    Raises:
        UserError: as `pretokenize`; or the inputs cannot be divided among tasks.
        LockHeld: another process does this task.
    """
    whole = source if isinstance(source, Inputs) else Inputs([source])
    check_divisible(whole, options, output)
    check_options(options, output)
    started = time.monotonic()
    files, memory = block_range.files(output), JobMemory()
    with disk_errors(files.tokens, output, is_kept=lambda: read_job(files.partial) is not None):
        made_set = None if options.overwrite else _whole_set(whole, tokenizer, output, options)
        if made_set is not None:
            return made_set
        share = share_of(whole, tokenizer.cut_rule, block_range)
        files.tokens.parent.mkdir(parents=True, exist_ok=True)
        with lock_file.lock(files.lock, f"{block_range.name} of token set {output}"):
            finish_commit(files)
            manifest = None if options.overwrite else finished_task(files, share, tokenizer, options)
            made = manifest is None
            if manifest is None:
                try:
                    with memory:
                        manifest = make_set(Job(share, tokenizer, files, None, options, log, memory))
                except Undecodable as error:
                    raise with_count(error, share) from None
    seconds = time.monotonic() - started
    return Result(files.tokens, manifest, made, share.total_bytes or 0, seconds, memory.peak_bytes)


def check_divisible(whole: Inputs, options: Options, output: Path, flag: str = FLAG) -> None:
    """Raises UserError where tasks cannot make this set together. flag: that asks for tasks."""
    if options.shard_tokens is None or not SetFiles(output).is_folder:
        raise UserError(
            f"{flag}: tasks make a set of shards together; say how long those are, --tokens-per-shard 100M",
            code="task-needs-shards",
        )
    if options.append:
        raise UserError(
            f"{flag} and --append: tasks make a set of its own. Append without {flag}", code="task-and-append"
        )
    if whole.is_limited:
        raise UserError(
            f"{flag}: where --max-documents or --max-tokens ends the set, only the tasks before can tell. "
            "Leave one of them away",
            code="task-with-limit",
        )
    if whole.duplicates is not None:
        raise UserError(
            f"{flag} and --dedup: what came before is known only when all inputs are read. Drop duplicates "
            f"in a command without {flag}",
            code="task-with-dedup",
        )
    if not whole.can_continue:
        raise UserError(
            f"{flag}: standard input is there for one process alone. Write it to a file, and give that to "
            "all tasks",
            code="input-not-readable-twice",
        )


def _whole_set(whole: Inputs, tokenizer: Tokenizer, output: Path, options: Options) -> Result | None:
    """The set, where it is made already. Raises UserError where another one has its name."""
    files = SetFiles(output)
    settle(files)
    manifest = up_to_date(files, whole, tokenizer, options)
    return None if manifest is None else Result(output, manifest, False, 0, 0.0)
