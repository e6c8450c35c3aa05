"""`pretokenize_dataset.py ... --block-range 3/16`, `--slurm SITE` and `merge SET`: a set made by tasks."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data_loading.formats import FORMATS, formats_of
from experiment_utils.errors import UserError

if TYPE_CHECKING:
    from data_loading.pretokenizer.job import Result
    from data_loading.pretokenizer.options import Options
    from data_loading.pretokenizer.source import Source
    from data_loading.tokenizer import Tokenizer

SHARD_TOKENS = "100M"
"""Tokens a shard of a set that --slurm makes."""
_OVERRIDE = re.compile(r"slurm\.\w+=")

EXAMPLES = """\
examples:
  for i in 0 1 2 3; do
    python pretokenize_dataset.py 'dump/*.txt' --output Datasets/dump --tokens-per-shard 1M --block-range $i/4
  done
  python pretokenize_dataset.py merge Datasets/dump

The tasks may run at the same time and on any machines that see the same files. Exit status: 0 the set is
there, 2 a task is missing or not like the others; then nothing was changed.
"""


def add_block_range(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--block-range",
        metavar="TASK/TASKS",
        help="tokenize only this share of the inputs, such as 3/16 (0/16 to 15/16), for `merge`; with "
        "--tokens-per-shard",
    )


def add_slurm(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--slurm",
        metavar="SITE",
        help="submit it to Slurm: --tasks N jobs of an array, and one that merges what they made. SITE: of "
        "conf/slurm, such as default; keys of it beside that: slurm.mem=8GB slurm.time=4h",
    )
    parser.add_argument("--tasks", metavar="N", help="jobs among which --slurm divides the text, such as 16")


def split_overrides(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """(the arguments without `slurm.KEY=VALUE`, those); a file of such a name is an argument."""
    overrides = [
        argument for argument in arguments if _OVERRIDE.match(argument) and not Path(argument).exists()
    ]
    return [argument for argument in arguments if argument not in overrides], overrides


_REASONS = {
    "val": "held-out text is a set of its own; tokenize it by a command of its own",
    "train_tokenizer": "each task would train one. Train it first, and give it to all with --tokenizer",
}
"""Flags that no task takes, and what to do instead."""


def check_task(given: argparse.Namespace) -> None:
    """Raises UserError where --block-range stands beside what tasks cannot do."""
    if given.block_range is None:
        return
    from data_loading.pretokenizer.block_range import FLAG, parse_block_range

    parse_block_range(given.block_range)
    _refuse_beside(
        given,
        FLAG,
        _REASONS
        | {
            "format": "other formats are written of the whole set: merge SET --format NAMES",
            "dry_run": "the plan is that of the whole set; each task does its share of that",
        },
    )


def check_slurm(given: argparse.Namespace, overrides: Sequence[str]) -> int | None:
    """The number of tasks that are to be submitted; None without --slurm. overrides: `slurm.KEY=VALUE`.

    Shards are `SHARD_TOKENS` long where nobody says it.

    Raises:
        UserError: a part of it is missing, or it stands beside what jobs cannot do.
    """
    if given.slurm is None:
        if given.tasks is not None:
            raise UserError(
                "--tasks: is for jobs of Slurm, --slurm SITE beside it. By hand each task is a command: "
                f"--block-range 0/{given.tasks} and so on",
                code="tasks-without-slurm",
            )
        if overrides:
            raise UserError(
                f"{overrides[0]}: is for jobs of Slurm: --slurm SITE --tasks N beside it",
                code="overrides-without-slurm",
            )
        return None
    from data_loading.pretokenizer.input_flags import count_of

    if given.tasks is None:
        raise UserError(
            f"--slurm {given.slurm}: say among how many jobs the text is divided, such as --tasks 16",
            code="slurm-without-tasks",
        )
    tasks = count_of(given.tasks, "--tasks", 1)
    _refuse_beside(
        given,
        "--slurm",
        _REASONS
        | {
            "block_range": "each job is given its share",
            "overwrite": "a job that is put back into the queue would begin anew each time. Remove what is "
            "there (rm -r SET .SET.tasks)",
        },
    )
    given.tokens_per_shard = given.tokens_per_shard or SHARD_TOKENS
    return tasks


def _refuse_beside(given: argparse.Namespace, flag: str, reasons: dict[str, str]) -> None:
    for name, reason in reasons.items():
        if getattr(given, name):
            raise UserError(
                f"{flag} and --{name.replace('_', '-')}: {reason}. Leave one of them away",
                code="flags-exclude-each-other",
            )


def shared_arguments(arguments: Sequence[str]) -> list[str]:
    """Of those typed with --slurm: what the command of each task has, without --workers."""
    from data_loading.pretokenizer.block_range import without_flags

    kept = without_flags(arguments, ("--slurm", "--tasks", "--format", "--workers"), ("--json", "--dry-run"))
    has_shards = len(without_flags(kept, ("--tokens-per-shard",))) < len(kept)
    return kept if has_shards else [*kept, "--tokens-per-shard", SHARD_TOKENS]


def run_task(
    source: Source,
    tokenizer: Tokenizer,
    output: Path,
    options: Options,
    given: argparse.Namespace,
    arguments: Sequence[str],
    log: Callable[[str], None],
) -> int:
    """Do one task and say what it made. arguments: what was typed."""
    from data_loading.pretokenizer.block_range import parse_block_range, without_block_range
    from data_loading.pretokenizer.task import pretokenize_share

    block_range = parse_block_range(given.block_range)
    options = replace(options, command=tuple(_lasting(without_block_range(arguments))))
    result = pretokenize_share(source, tokenizer, output, block_range, options, log)
    manifest = result.manifest
    is_whole = result.path == output
    if given.json:
        told = {"path": str(output), "task": block_range.task, "tasks": block_range.tasks}
        print(json.dumps({**told, "made": result.made, "is_merged": is_whole, **_counts(result)}, indent=2))
        return 0
    if is_whole:
        print(f"{output}: the set is there, merged of its tasks. Up to date: nothing to do")
        return 0
    print(f"{output}, {block_range.name}: {_told(result)}")
    if not manifest["tokens"]:
        print("no text begins in its share, so it adds none")
    done = (
        f"made in {result.seconds:.1f} s"
        if result.made
        else "up to date: nothing to do (--overwrite redoes it)"
    )
    print(done)
    print(f"next, when all {block_range.tasks:,} are done: python pretokenize_dataset.py merge {output}")
    return 0


def _lasting(arguments: Sequence[str]) -> list[str]:
    """Without what concerns one call alone."""
    return [argument for argument in arguments if argument not in ("--overwrite", "--json")]


def _counts(result: Result) -> dict[str, Any]:
    return {
        **{name: result.manifest[name] for name in ("tokens", "documents")},
        "shards": len(result.manifest["shards"]),
        "text_bytes": result.text_bytes,
        "seconds": round(result.seconds, 3),
    }


def _told(result: Result) -> str:
    manifest = result.manifest
    count = len(manifest["shards"])
    return f"{manifest['tokens']:,} tokens in {count:,} shard{'s' * (count != 1)}"


def main(arguments: list[str]) -> int:
    """Run `merge ...`; returns the exit status. Raises UserError."""
    from data_loading.formats.export import check_exports, export
    from data_loading.pretokenizer.input_flags import count_of
    from data_loading.pretokenizer.merge import merge
    from data_loading.set_files import SetFiles
    from data_loading.tokenizer_files import read_tokenizer

    given = _parser().parse_args(arguments[1:])
    output = Path(given.set).expanduser()
    skip_bad = None if given.skip_bad is None else count_of(given.skip_bad, "--skip-bad", 0)
    formats = formats_of(given.format)

    def log(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    result = merge(output, overwrite=given.overwrite, skip_bad=skip_bad, log=log)
    exports = []
    if formats:
        tokenizer = read_tokenizer(SetFiles(output).tokenizer, result.manifest["tokenizer"]["name"])
        check_exports(formats, [output], tokenizer)
        exports = export(formats, [output], tokenizer, log, elsewhere=False)
    if given.json:
        facts: dict[str, Any] = {"path": str(output), "made": result.made, **_counts(result)}
        facts |= {name: result.manifest.get(name) for name in ("val", "fingerprint")}
        facts |= {"exports": [exported.to_json() for exported in exports]} if formats else {}
        print(json.dumps(facts, indent=2))
        return 0
    documents = result.manifest["documents"]
    print(f"{output}: {_told(result)}, {documents:,} document{'s' * (documents != 1)}")
    print("merged" if result.made else "up to date: nothing to do")
    for exported in exports:
        print(exported.told())
    return 0


def _parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(
        prog="pretokenize_dataset.py merge",
        description="Make one set of what the tasks of --block-range have written. Nothing is copied.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    result.add_argument("set", metavar="SET", help="the folder that the tasks were given as --output")
    result.add_argument("--overwrite", action="store_true", help="replace another set of that name")
    result.add_argument(
        "--skip-bad",
        metavar="N",
        help="lines left out that all tasks may have together (default: as they had)",
    )
    result.add_argument(
        "--format",
        metavar="NAMES",
        help=f"also write the set as other programs read it: {', '.join(FORMATS)}",
    )
    result.add_argument("--json", action="store_true", help="print the result as JSON")
    return result
