"""Entry: text to a token set. `python pretokenize_dataset.py --help` lists the options."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from data_loading.commands.task_commands import add_task_flags, check_tasks, run_task, split_overrides
from data_loading.export_formats import FORMATS, formats_of
from data_loading.pretokenizer.inputs.cli_flags import (
    add_input_flags,
    check_arguments,
    count_of,
    is_stdlib,
    open_sources,
    outputs_of,
    size_of,
)
from experiment_utils.display import can_rewrite
from experiment_utils.errors import UserError
from experiment_utils.exit_status import exit_status
from experiment_utils.room_command import Parser

if TYPE_CHECKING:
    from conf.schema import Tokenizer
    from data_loading.pretokenizer.dry_run import SetPlan
    from data_loading.pretokenizer.inputs.concatenated import Inputs
    from data_loading.pretokenizer.options import Options
    from data_loading.tokenizers.tokenizer import Tokenizer as AnyTokenizer

EXAMPLES = """\
examples:
  python pretokenize_dataset.py Datasets/c4.txt      # Datasets/c4.npy, with gpt2
  python pretokenize_dataset.py corpus.txt --tokenizer bytes
  python pretokenize_dataset.py corpus.txt --tokenizer ./my_bpe --output X.npy
  python pretokenize_dataset.py corpus.txt --tokenizer cl100k_base   # tiktoken
  python pretokenize_dataset.py corpus.txt --dry-run      # tokens, time, disk
  python pretokenize_dataset.py posts.txt --document-separator '<|endoftext|>'
  python pretokenize_dataset.py a.txt 'dump/*.jsonl.zst' --output mix.npy
  python pretokenize_dataset.py crawl.txt --clean normalize --dedup lines
  python pretokenize_dataset.py train.txt --val held_out.txt --output mine
  python pretokenize_dataset.py 'dump/*.zst' --output X --tokens-per-shard 100M
  python pretokenize_dataset.py more.jsonl.zst --output X --append
  python pretokenize_dataset.py 'dump/*.zst' --output X --slurm default --tasks 16
  python pretokenize_dataset.py c4.txt --format megatron,nanogpt
  python pretokenize_dataset.py stdlib         # source code of Python's library
  python pretokenize_dataset.py verify Datasets/c4.npy
  python pretokenize_dataset.py inspect Datasets/c4.npy

The ids are exactly those of encoding each document whole. FILE.npy comes with
FILE.npy.json (source and options), FILE.docs.npy (where documents start) and
FILE.tokenizer/ (the tokenizer's own files). Exit status: 0 done, 1 a failure of
this program, 2 the input cannot be used, 130 interrupted.
"""


LEAST_OF_MOST_WORKERS = 64


def parser() -> argparse.ArgumentParser:
    """Parser of the command's arguments."""
    result = _Parser(
        prog="pretokenize_dataset.py",
        usage="pretokenize_dataset.py INPUT [INPUT ...] [options]",
        description="Tokenize a text once into a memory-mapped token file, in constant memory.",
        epilog=EXAMPLES,
    )
    add_input_flags(result)
    # fmt: off
    add = result.add_argument_group("ids").add_argument
    add("--tokenizer", metavar="NAME_OR_FOLDER",
        help="bytes, gpt2, a folder with tokenizer.json or with vocab.json and merges.txt, an encoding of "
        "tiktoken (cl100k_base, o200k_base, ... or tiktoken:NAME), or a hub repository org/name (default: "
        "gpt2; bytes for stdlib)")
    add("--train-tokenizer", metavar="N",
        help="train a byte-level BPE of N ids on the text first, and keep it next to the tokens")
    add("--eos", metavar="TOKEN",
        help="token or id after each document (default: the tokenizer's eos_token); none: nothing")
    add("--bos", metavar="TOKEN",
        help="token or id before each document, as Gemma and Llama 3 need it; auto: the tokenizer's "
        "bos_token (default: nothing)")
    add("--special-tokens", default="text", metavar="HOW",
        help="<|endoftext|> and the like in the text: text (default), or parse: they become their ids")
    add = result.add_argument_group("what is written").add_argument
    add("--output", metavar="OUT",
        help="FILE.npy, or with --tokens-per-shard a folder (default: next to the text, by its name)")
    add("--tokens-per-shard", metavar="N",
        help="write a folder of files of N tokens each, such as 100M (default: one file)")
    add("--val-fraction", metavar="F", type=float,
        help="share of the tokens, the last documents of the text, that runs hold out (default: each run "
        "decides, dataset.val_fraction)")
    add("--append", action="store_true", help="add the inputs to a folder of shards, as new shards")
    add("--overwrite", action="store_true", help="replace a set that was made from something else")
    add("--format", metavar="NAMES",
        help=f"also write the tokens for other programs: {', '.join(FORMATS)} (several with commas)")
    add = result.add_argument_group("how it is done").add_argument
    add("--dry-run", action="store_true",
        help="plan, and write nothing: about how many tokens, time, disk and memory")
    add("--json", action="store_true", help="print the result, or the plan, as JSON")
    add("--workers", type=int, metavar="N",
        help="threads that encode (default: all cores; 0: the one that reads)")
    add("--engine", default="auto",
        help="auto (default), fastokens, huggingface: the ids are the same; bytes for --tokenizer bytes")
    add("--run-limit", metavar="SIZE",
        help="longest stretch without a place to cut, which is encoded whole in memory (default: 16MB); "
        "above 64MB it also raises how long a line of JSON or a cell of a table can be (64MB)")
    # fmt: on
    add_task_flags(result)
    result.add_argument("--version", action="version", version=_version())
    return result


def _version() -> str:
    from importlib import metadata

    try:
        return f"highwater {metadata.version('highwater')}"
    except metadata.PackageNotFoundError:
        import tomllib

        with open(Path(__file__).with_name("pyproject.toml"), "rb") as file:
            return f"highwater {tomllib.load(file)['project']['version']}"


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    from data_loading.commands import set_commands

    given = sys.argv[1:] if arguments is None else arguments

    def command() -> int:
        check_arguments(given)
        if given and given[0] in set_commands.COMMANDS:
            return set_commands.main(given)
        words, overrides = split_overrides(given)
        return run(_parsed(words), words, overrides)

    return exit_status(
        command,
        "interrupted: what was done is kept, an older output is untouched. The same command resumes",
    )


class _Parser(Parser):
    def error(self, message: str) -> NoReturn:
        if message.endswith("expected one argument"):
            message += " (one that begins with - is given with a =, as in --document-separator=---)"
        super().error(message)


def _parsed(given: Sequence[str]) -> argparse.Namespace:
    options = parser().parse_args(given)
    for name, value in vars(options).items():
        if value == []:  # what argparse makes of --flag=-- before Python 3.13
            setattr(options, name, "--")
    return options


def _print(text: str) -> int:
    """Print the result; returns the exit status."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        print(
            f"error: standard output cannot be written: {error.strerror}. All else was done", file=sys.stderr
        )
        return 1
    return 0


def run(options: argparse.Namespace, given: Sequence[str], overrides: Sequence[str] = ()) -> int:
    """Tokenize, and print the result; returns the exit status.

    Args:
        given: Arguments that the options were read from.
        overrides: `slurm.KEY=VALUE` of the command.
    """
    from data_loading.export_formats.export import check_exports, export
    from data_loading.export_formats.outdated import outdated_exports
    from data_loading.pretokenizer.inputs.leakage import refuse_same_contents
    from data_loading.pretokenizer.job import check_all_append, pretokenize
    from data_loading.pretokenizer.options import Options
    from data_loading.pretokenizer.summary import facts_of, next_command, summary_of
    from data_loading.tokenizers.document_ends import choose_ends, notes_on_ends
    from data_loading.tokenizers.load import load_tokenizer
    from data_loading.tokenizers.special_tokens import choose
    from memory import record_to, stage

    _check_workers(options.workers)
    log = _log_to(sys.stderr)
    tasks = check_tasks(options, overrides)
    if options.tokenizer is not None and options.train_tokenizer is not None:
        raise UserError("--tokenizer and --train-tokenizer: give one of them")
    how = Options(
        overwrite=options.overwrite,
        append=options.append,
        shard_tokens=_shard_tokens(options),
        val_fraction=_val_fraction(options),
        engine=options.engine,
        workers=options.workers,
        run_limit_bytes=_run_limit(options.run_limit),
        terminal=sys.stderr if can_rewrite(sys.stderr) else None,
    )
    formats = formats_of(options.format)
    with record_to(None, attempt=1):
        sources = open_sources(options)
        spec = _tokenizer_spec(options, sources, how, log)
        outputs = outputs_of(options, spec.name)
        with stage("load_tokenizer"):
            tokenizer = choose(load_tokenizer(spec), options.special_tokens)
            tokenizer = choose_ends(tokenizer, options.eos, options.bos)
        for note in notes_on_ends(tokenizer):
            log(note)
        check_exports(formats, outputs, tokenizer, append=options.append)
        if options.block_range is not None:
            return run_task(sources[0], tokenizer, outputs[0], how, options, log)
        if tasks is not None:
            from slurm.tokens.submit_tasks import run_on_slurm

            return run_on_slurm(sources[0], tokenizer, outputs[0], how, options, given, overrides, tasks, log)
        if options.append and len(sources) > 1:
            check_all_append(sources, tokenizer, outputs, how)
        if options.dry_run:
            return _plan(sources, tokenizer, outputs, how, log, options, given)
        results = [
            pretokenize(source, tokenizer, output, how, log)
            for source, output in zip(sources, outputs, strict=True)
        ]
        if len(results) == 2:
            refuse_same_contents(results[0].manifest, results[1].manifest)
        exports = export(formats, outputs, tokenizer, log, elsewhere=not options.append)
        for output in outputs if options.append else ():
            for folder, remake in outdated_exports(output):
                log(f"WARNING: {folder} is an export of the earlier set. {remake}")
    if options.json:
        import json

        facts = [facts_of(result) for result in results]
        if len(facts) == 2:
            facts[0]["val"] = facts[1]
        if formats:
            facts[0]["exports"] = [exported.to_json() for exported in exports]
        return _print(json.dumps(facts[0], indent=2))
    lines = [*map(summary_of, results), *(exported.summary() for exported in exports)]
    usual = is_stdlib(options.files) and len(results) == 1 and options.output is None
    return _print("\n".join([*lines, next_command(results, spec, is_usual_stdlib=usual)]))


def _plan(
    sources: list[Inputs],
    tokenizer: AnyTokenizer,
    outputs: list[Path],
    how: Options,
    log: Callable[[str], None],
    options: argparse.Namespace,
    given: Sequence[str],
) -> int:
    """Print what the command would do, and the command."""
    import shlex

    from data_loading.pretokenizer.dry_run import make_plan

    plans: list[SetPlan] = []
    for source, output in zip(sources, outputs, strict=True):
        plans.append(make_plan(source, tokenizer, output, how, log, plans))
    if options.json:
        import json

        val = {"val": plans[1].facts} if len(plans) == 2 else {}
        return _print(json.dumps({**plans[0].facts, **val}, indent=2))
    flags = [flag for flag in given if not (len(flag) > 3 and "--dry-run".startswith(flag))]
    lines = [line for plan in plans for line in plan.lines]
    if all(plan.facts["refusal"] is None for plan in plans):
        lines.append(f"next: {shlex.join(['python', 'pretokenize_dataset.py', *flags])}")
    return _print("\n".join(lines))


def _tokenizer_spec(
    options: argparse.Namespace, sources: list[Inputs], how: Options, log: Callable[[str], None]
) -> Tokenizer:
    """The tokenizer of the command, trained first if --train-tokenizer is given."""
    from data_loading.tokenizers.load import tokenizer_spec

    if options.tokenizer is not None:
        return tokenizer_spec(options.tokenizer)
    if options.train_tokenizer is None:
        return tokenizer_spec("bytes" if is_stdlib(options.files) else "gpt2")
    from data_loading.pretokenizer.resume import refuse_before_training
    from data_loading.pretokenizer.train_bpe import check_size, train_tokenizer
    from data_loading.tokenizers.read_files import holds_tokenizer
    from data_loading.tokens.disk_errors import disk_errors
    from data_loading.tokens.set_files import SetFiles

    size = count_of(options.train_tokenizer, "--train-tokenizer", 1)
    check_size(size)
    outputs = outputs_of(options, f"bpe{size}")
    tokens = outputs[0]
    folder = tokens.with_name(f"{tokens.name.removesuffix('.npy')}.bpe{size}")
    if options.dry_run and not holds_tokenizer(folder):
        raise UserError(
            "--dry-run: the number of tokens needs the tokenizer, and --train-tokenizer has not trained it "
            "yet. Plan with one that exists (--tokenizer gpt2)"
        )
    if options.append:
        raise UserError(
            f"--append and --train-tokenizer: appended text has the tokenizer of the set. Give that: "
            f"--tokenizer {SetFiles(tokens).tokenizer}"
        )
    with disk_errors(folder, tokens):
        for inputs, output in zip(sources, outputs, strict=True):
            refuse_before_training(SetFiles(output), inputs, folder.name, how)
        return tokenizer_spec(str(train_tokenizer(sources[0].with_duplicates, size, folder, log)))


def _check_workers(workers: int | None) -> None:
    from data_loading.pretokenizer.pool import cores

    most = max(LEAST_OF_MOST_WORKERS, 4 * cores())
    if workers is not None and workers < 0:
        raise UserError(f"--workers {workers}: expected 0 or more")
    if workers is not None and workers > most:
        raise UserError(
            f"--workers {workers:,}: expected at most {most:,}; each is a thread that encodes, and this "
            f"machine has {cores():,} cores"
        )


def _shard_tokens(options: argparse.Namespace) -> int | None:
    given = options.tokens_per_shard
    return None if given is None else count_of(given, "--tokens-per-shard", 1)


def _val_fraction(options: argparse.Namespace) -> float | None:
    given = options.val_fraction
    if given is not None and not 0 < given < 1:
        raise UserError(f"--val-fraction {given}: expected a share above 0 and below 1")
    if given is not None and options.val is not None:
        raise UserError("--val-fraction and --val: give one of them, a part of the text or a text of its own")
    return given


def _run_limit(given: str | None) -> int:
    from data_loading.pretokenizer.blocks import RUN_LIMIT_BYTES

    if given is None:
        return RUN_LIMIT_BYTES
    limit = size_of(given, "--run-limit")
    if limit < 1:
        raise UserError(f"--run-limit {given}: expected a size above 0, such as 16MB")
    return limit


def _log_to(stream: Any) -> Callable[[str], None]:
    return lambda line: print(line, file=stream, flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends as Ctrl-C does, with a line
    sys.exit(main())
