"""`pretokenize_dataset.py ... --block-range 3/16`, `--slurm SITE --tasks N` and `merge SET`."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data_loading.export_formats import FORMATS, formats_of
from experiment_utils.errors import UserError
from experiment_utils.room_command import Parser

if TYPE_CHECKING:
    from data_loading.export_formats.export import Exported
    from data_loading.pretokenizer.inputs.concatenated import Inputs
    from data_loading.pretokenizer.job import Result
    from data_loading.pretokenizer.options import Options
    from data_loading.tokenizers.tokenizer import Tokenizer

SHARD_TOKENS = "100M"
"""Tokens of each shard of a set that --slurm makes, if --tokens-per-shard is not given."""
_OVERRIDE = re.compile(r"slurm\.\w+=")

EXAMPLES = """\
examples:
  for i in 0 1 2 3; do
    python pretokenize_dataset.py 'dump/*.txt' --output Datasets/dump --tokens-per-shard 1M --block-range $i/4
  done
  python pretokenize_dataset.py merge Datasets/dump

Tasks can run at the same time, on any machines that see the same files. The last one merges automatically:
`merge` is for a merge that was killed, and for --skip-bad. Exit status: 0 the set is made, 2 a task is not
done or damaged, and nothing was changed.
"""


def add_task_flags(parser: argparse.ArgumentParser) -> None:
    """Add --block-range, --slurm and --tasks."""
    parser.add_argument(
        "--block-range",
        metavar="TASK/TASKS",
        help="tokenize the inputs of one task only, such as 3/16 (0/16 to 15/16); the task that is done last "
        "makes the set. With --tokens-per-shard",
    )
    parser.add_argument(
        "--slurm",
        metavar="SITE",
        help="submit to Slurm as an array of --tasks N jobs. SITE: a file of conf/slurm, such as default; "
        "its keys can follow: slurm.mem=8GB slurm.time=4h",
    )
    parser.add_argument(
        "--tasks", metavar="N", help="jobs among which --slurm divides the inputs, such as 16"
    )


def split_overrides(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Divide arguments into (others, `slurm.KEY=VALUE`); the name of an existing file is no override."""
    overrides = [
        argument for argument in arguments if _OVERRIDE.match(argument) and not Path(argument).exists()
    ]
    return [argument for argument in arguments if argument not in overrides], overrides


_REFUSED = {
    "val": "held-out text is a set of its own; tokenize it with another command",
    "train_tokenizer": "each task would train one. Train it first, and give it to all with --tokenizer",
    "overwrite": "a task that starts again would lose what it has done. Remove what is there (rm -r SET "
    ".SET.tasks)",
}
"""Flags that tasks do not take, and what to do instead."""


def check_tasks(given: argparse.Namespace, overrides: Sequence[str]) -> int | None:
    """Check --block-range, --slurm and --tasks; returns the number of tasks to submit, None without --slurm.

    The command of a job has --block-range next to --slurm: it does that task, and submits nothing.

    Args:
        overrides: `slurm.KEY=VALUE` of the command.

    Raises:
        UserError: one of them is missing or invalid, or next to a flag that tasks do not take.
    """
    if given.slurm is None:
        for flag, value in (("--tasks", given.tasks), *((override, override) for override in overrides)):
            if value is not None:
                raise UserError(
                    f"{flag} is for jobs of Slurm: --slurm SITE --tasks N. Without Slurm each task is a "
                    "command: --block-range 0/N to N-1/N",
                    code="flag-without-slurm",
                )
        if given.block_range is None:
            return None
    elif given.tasks is None:
        raise UserError(
            f"--slurm {given.slurm}: give the number of jobs, such as --tasks 16", code="slurm-without-tasks"
        )
    flag = "--slurm" if given.block_range is None else "--block-range"
    refused = _REFUSED if flag == "--slurm" else _REFUSED | {"dry_run": "the plan is that of the whole set"}
    for name, reason in refused.items():
        if getattr(given, name):
            raise UserError(
                f"{flag} and --{name.replace('_', '-')}: {reason}. Remove one of them",
                code="flags-exclude-each-other",
            )
    if given.slurm is not None:
        given.tokens_per_shard = given.tokens_per_shard or SHARD_TOKENS
    if given.block_range is not None:
        from data_loading.pretokenizer.distributed.task_plan import parse_task

        parse_task(given.block_range)
        return None
    from data_loading.pretokenizer.inputs.cli_flags import count_of

    return count_of(given.tasks, "--tasks", 1)


def run_task(
    source: Inputs,
    tokenizer: Tokenizer,
    output: Path,
    options: Options,
    given: argparse.Namespace,
    log: Callable[[str], None],
) -> int:
    """Do one task, merge if it was the last, and print what was made; returns the exit status."""
    from data_loading.pretokenizer.distributed.merge import merge_if_done
    from data_loading.pretokenizer.distributed.task import pretokenize_task
    from data_loading.pretokenizer.distributed.task_plan import missing_tasks, parse_task
    from data_loading.tokens.set_files import SetFiles

    task = parse_task(given.block_range)
    result = pretokenize_task(source, tokenizer, output, task, options, log)
    whole = result if result.path == output else merge_if_done(output, log)
    if given.json:
        facts = {"path": str(output), "task": task.number, "tasks": task.tasks}
        print(json.dumps({**facts, "made": result.made, "is_merged": whole is not None, **_counts(result)}))
    elif result.path != output:
        how = f"made in {result.seconds:.1f} s" if result.made else "up to date: nothing to do"
        print(f"{output}, {task.name}: {_summary(result)}, {how}")
        if whole is None:
            missing = len(missing_tasks(SetFiles(output), task.tasks))
            print(f"{missing:,} of {task.tasks:,} tasks are not done; the last of them makes the set")
    if whole is not None:
        exports = _exports(whole, given.format, log)
        if not given.json:
            _print_set(whole, exports)
    return 0


def main(arguments: list[str]) -> int:
    """Run `merge ...`; returns the exit status. Raises UserError."""
    from data_loading.pretokenizer.distributed.merge import merge
    from data_loading.pretokenizer.inputs.cli_flags import count_of

    given = _parser().parse_args(arguments[1:])
    if given.overwrite:
        raise UserError(
            f"--overwrite: merge replaces no other set. Remove it first: rm -r {given.set}",
            code="flag-removed",
        )
    skip_bad = None if given.skip_bad is None else count_of(given.skip_bad, "--skip-bad", 0)
    formats_of(given.format)

    def log(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    result = merge(Path(given.set).expanduser(), skip_bad=skip_bad, log=log)
    exports = _exports(result, given.format, log)
    if given.json:
        facts: dict[str, Any] = {"path": str(result.path), "made": result.made, **_counts(result)}
        facts |= {name: result.manifest.get(name) for name in ("val", "fingerprint")}
        facts |= {"exports": [exported.to_json() for exported in exports]} if exports else {}
        print(json.dumps(facts, indent=2))
    else:
        _print_set(result, exports)
    return 0


def _exports(whole: Result, names: str | None, log: Callable[[str], None]) -> list[Exported]:
    """Write the set in the formats of --format."""
    from data_loading.export_formats.export import export
    from data_loading.tokenizers.read_files import read_tokenizer
    from data_loading.tokens.set_files import SetFiles

    formats = formats_of(names)
    if not formats:
        return []
    tokenizer = read_tokenizer(SetFiles(whole.path).tokenizer, whole.manifest["tokenizer"]["name"])
    return export(formats, [whole.path], tokenizer, log, elsewhere=False)


def _print_set(whole: Result, exports: Sequence[Exported]) -> None:
    documents = whole.manifest["documents"]
    print(f"{whole.path}: {_summary(whole)}, {documents:,} document{'s' * (documents != 1)}")
    print("merged" if whole.made else "up to date: nothing to do")
    for exported in exports:
        print(exported.summary())


def _counts(result: Result) -> dict[str, Any]:
    return {
        **{name: result.manifest[name] for name in ("tokens", "documents")},
        "shards": len(result.manifest["shards"]),
        "text_bytes": result.text_bytes,
        "seconds": round(result.seconds, 3),
    }


def _summary(result: Result) -> str:
    count = len(result.manifest["shards"])
    return f"{result.manifest['tokens']:,} tokens in {count:,} shard{'s' * (count != 1)}"


def _parser() -> argparse.ArgumentParser:
    result = Parser(
        prog="pretokenize_dataset.py merge",
        description="Make one set from the shards of the tasks of --block-range. Nothing is copied.",
        epilog=EXAMPLES,
    )
    result.add_argument("set", metavar="SET", help="the folder that the tasks were given as --output")
    result.add_argument("--overwrite", action="store_true", help=argparse.SUPPRESS)
    result.add_argument(
        "--skip-bad",
        metavar="N",
        help="bad lines that all tasks together are allowed to leave out (default: that of the tasks)",
    )
    result.add_argument(
        "--format",
        metavar="NAMES",
        help=f"also write the set as other programs read it: {', '.join(FORMATS)}",
    )
    result.add_argument("--json", action="store_true", help="print the result as JSON")
    return result
