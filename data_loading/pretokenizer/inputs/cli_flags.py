"""The flags that say what is read, and where the tokens of it go when nobody says it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from experiment_utils.errors import UserError

if TYPE_CHECKING:
    from data_loading.pretokenizer.inputs.discover import InputOptions
    from data_loading.text_io.source import Source

STDLIB = "stdlib"
_LONGEST_NAME_BYTES = 200


def add_input_flags(parser: argparse.ArgumentParser) -> None:
    """What is read, and how."""
    parser.add_argument(
        "files",
        metavar="INPUT",
        nargs="+",
        help="text, .jsonl (plain, .gz, .zst, .bz2 or .xz), .parquet; a folder or quoted pattern of them; "
        "a folder of save_to_disk, hf://ORG/NAME[:CONFIG][@REVISION], hf://NAME of a known dataset "
        "(python -m data_loading list), - for standard input, stdlib: Python's own source code",
    )
    parser.add_argument(
        "--val",
        metavar="INPUT",
        nargs="+",
        help="held-out text, a set of its own; --output OUT then makes OUT_train.npy and OUT_validation.npy",
    )
    parser.add_argument(
        "--document-separator",
        metavar="LINE",
        help="a line that stands between two documents (default: a text file is one document)",
    )
    parser.add_argument(
        "--text-field", metavar="NAME", help="field or column that holds the text (default: text)"
    )
    parser.add_argument("--subset", metavar="NAME", help="of a dataset on the hub")
    parser.add_argument("--split", metavar="NAME", help="of a Hugging Face dataset (default: train)")
    parser.add_argument("--encoding", default="utf-8", help="of the text (default: utf-8)")
    parser.add_argument(
        "--errors",
        default="strict",
        metavar="HOW",
        help="undecodable bytes: strict (default), replace, ignore",
    )
    parser.add_argument(
        "--clean",
        metavar="HOW",
        help="normalize: Unicode NFC; no control characters; runs of blanks to one space, none at the end of "
        "a line; at most two line breaks in a row; source code (by its name) is left as it is. "
        "normalize-code: code too",
    )
    parser.add_argument(
        "--dedup",
        metavar="WHAT",
        help="lines or documents: drop each that came before anywhere in the inputs; reads them twice",
    )
    parser.add_argument(
        "--dedup-memory",
        metavar="SIZE",
        help="for the hashes of --dedup; more of them go to disk beside the output (default: 256MB)",
    )
    parser.add_argument(
        "--skip-bad", metavar="N", help="leave out up to N lines that are no documents (default: 0)"
    )
    parser.add_argument("--max-documents", metavar="N", help="end after N documents, such as 1M")
    parser.add_argument(
        "--max-tokens", metavar="N", help="end with the document in which token N falls, such as 1B"
    )


def check_arguments(given: Sequence[str]) -> None:
    """Raises UserError where one is not UTF-8, in which manifests and file lists are written."""
    import os

    for argument in given:
        try:
            argument.encode()
        except UnicodeEncodeError:
            raise UserError(
                f"the argument {os.fsencode(argument)!r} is not UTF-8. A file of such a name: rename it (mv)",
                code="argument-not-utf8",
            ) from None


def is_stdlib(files: Sequence[str]) -> bool:
    """Whether the text is Python's own, not a file of that name."""
    return list(files) == [STDLIB] and not Path(STDLIB).exists()


def open_sources(given: argparse.Namespace) -> list[Source]:
    """What is to be tokenized, and what is held out where --val names it; limits hold for the first.

    Raises:
        UserError: something cannot be read, or the two hold the same text.
    """
    from dataclasses import replace

    from data_loading.pretokenizer.inputs.held_out_overlap import refuse_same_files

    options = _input_options(given)
    train = _open(given.files, options)
    if given.val is None:
        return [train]
    val = _open(given.val, replace(options, max_documents=None, max_tokens=None))
    if not (train.can_continue or val.can_continue):
        raise UserError(
            "-: standard input cannot be read twice, for training and for --val",
            code="input-not-readable-twice",
        )
    refuse_same_files(train, val)
    return [train, val]


def _open(files: Sequence[str], options: InputOptions) -> Source:
    from data_loading.pretokenizer.inputs.discover import InputOptions, as_one, open_inputs
    from data_loading.pretokenizer.sources.stdlib import StdlibSource

    if STDLIB in files and len(files) > 1 and not Path(STDLIB).exists():
        raise UserError(
            "stdlib: Python's own source code is a set by itself. Leave the other inputs away",
            code="stdlib-with-others",
        )
    if not is_stdlib(files):
        return open_inputs(files, options)
    plain = InputOptions()
    for name in ("document_separator", "text_field", "encoding", "errors", "skip_bad", "subset", "split"):
        if getattr(options, name) != getattr(plain, name):
            raise UserError(
                f"--{name.replace('_', '-')}: stdlib is read file by file, so it would do nothing",
                code="flag-without-effect",
            )
    return as_one([StdlibSource()], options)


def outputs_of(given: argparse.Namespace, tokenizer_name: str) -> list[Path]:
    """What the token set of each source is called. Raises UserError where one cannot be named so."""
    inputs = [given.files] if given.val is None else [given.files, given.val]
    in_shards = given.tokens_per_shard is not None or given.append
    end = "" if in_shards else ".npy"
    if given.output is None:
        outputs = [_default_output(files, tokenizer_name, given) for files in inputs]
        outputs = [path.with_name(path.name.removesuffix(".npy") + end) for path in outputs]
        for path in outputs:
            _check_place(path)
        return outputs
    output = Path(given.output).expanduser()
    name = output.name
    if in_shards and (name.endswith(".npy") or name in ("", "..")):
        raise UserError(
            f"--output {given.output}: a set of shards is a folder; expected a name that does not end in "
            ".npy",
            code="output-not-folder",
        )
    if name.endswith(".docs.npy") or (given.val is None and not in_shards and output.suffix != ".npy"):
        raise UserError(
            f"--output {given.output}: expected a name that ends in .npy (not .docs.npy), or "
            "--tokens-per-shard for a folder of shards",
            code="output-not-npy",
        )
    outputs = [output]
    if given.val is not None:
        stem = name.removesuffix(".npy")
        outputs = [output.with_name(f"{stem}{suffix}{end}") for suffix in ("_train", "_validation")]
    for path in outputs:
        _check_place(path)
        if path.is_dir() and not in_shards:
            raise UserError(
                f"--output {path} is a folder; expected a file name that ends in .npy",
                code="output-is-other-folder",
            )
    return outputs


def _check_place(output: Path) -> None:
    """Raises UserError where no set can be called so."""
    import os

    size = len(os.fsencode(output.name))
    if size > _LONGEST_NAME_BYTES:
        raise UserError(
            f"--output {output.name[:20]}...: a name of {size} bytes; expected {_LONGEST_NAME_BYTES} at "
            "most, since other names are made of it",
            code="output-name-too-long",
        )
    above = next(folder for folder in output.parents if os.path.lexists(folder) or folder.parent == folder)
    if not above.is_dir():
        raise UserError(f"--output {output}: {above} is no folder", code="output-below-file")


def _default_output(files: Sequence[str], tokenizer_name: str, given: argparse.Namespace) -> Path:
    """Where the tokens go. Raises UserError where no name suggests itself."""
    from data_loading.find.locate import DEFAULT_FOLDER, tokens_beside
    from data_loading.pretokenizer.sources.stdin import ARGUMENT
    from data_loading.pretokenizer.sources.stdlib import default_name

    if is_stdlib(files):
        flags = ("max_documents", "max_tokens", "clean", "dedup")
        changed = [f"--{flag.replace('_', '-')}" for flag in flags if getattr(given, flag) is not None]
        if changed:
            raise UserError(
                f"stdlib with {', '.join(changed)} is not the set that runs take by that name: say where the "
                "tokens go, --output FILE.npy",
                code="output-missing",
            )
        return DEFAULT_FOLDER / default_name(tokenizer_name)
    path = Path(files[0]).expanduser()
    if len(files) == 1 and files[0].startswith("hf://"):
        from data_loading.hub.hub_uri import parse

        parts = (parse(files[0], given.subset).short, given.split)
        return DEFAULT_FOLDER / f"{'-'.join(filter(None, parts))}.npy"
    if len(files) == 1 and path.is_file():
        return tokens_beside(path)
    if len(files) > 1:
        what = f"{len(files)} inputs have no name in common"
    elif files[0] == ARGUMENT:
        what = "standard input has no name"
    elif path.is_dir():
        what = f"{path} is a folder"
    else:
        what = f"{files[0]} may be several files"
    raise UserError(f"{what}: say where the tokens go, --output FILE.npy", code="output-missing")


def _input_options(given: argparse.Namespace) -> InputOptions:
    from data_loading.pretokenizer.inputs.discover import InputOptions

    return InputOptions(
        encoding=given.encoding,
        errors=given.errors,
        document_separator=given.document_separator,
        text_field=given.text_field,
        skip_bad=_limit(given.skip_bad, "--skip-bad", 0) or 0,
        max_documents=_limit(given.max_documents, "--max-documents", 1),
        max_tokens=_limit(given.max_tokens, "--max-tokens", 1),
        subset=given.subset,
        split=given.split,
        clean=given.clean,
        dedup=given.dedup,
        **_dedup_memory(given),
        **_longest(given.run_limit),
    )


def _longest(run_limit: str | None) -> dict[str, int]:
    """What may be held whole as text may also be read whole."""
    from data_loading.text_io.size_limits import LONGEST_BYTES

    return (
        {} if run_limit is None else {"longest_bytes": max(LONGEST_BYTES, size_of(run_limit, "--run-limit"))}
    )


def _dedup_memory(given: argparse.Namespace) -> dict[str, int]:
    if given.dedup_memory is None:
        return {}
    if given.dedup is None:
        raise UserError("--dedup-memory: without --dedup it would do nothing", code="flag-without-effect")
    return {"dedup_memory_bytes": size_of(given.dedup_memory, "--dedup-memory")}


def _limit(text: str | None, flag: str, least: int) -> int | None:
    return None if text is None else count_of(text, flag, least)


def count_of(text: str, flag: str, least: int) -> int:
    """The number that a flag was given, such as 1M. Raises UserError."""
    from experiment_utils.quantities import parse_count

    try:
        number = parse_count(text)
    except ValueError as error:
        raise UserError(f"{flag} {text}: {error}", code="number-invalid") from None
    if number < least:
        raise UserError(f"{flag} {text}: expected {least} or more", code="number-too-small")
    return number


def size_of(text: str, flag: str) -> int:
    """The bytes that a flag was given, such as 64MB. Raises UserError."""
    from experiment_utils.quantities import parse_size

    try:
        return parse_size(text)
    except ValueError as error:
        raise UserError(f"{flag} {text}: {error}", code="size-invalid") from None
