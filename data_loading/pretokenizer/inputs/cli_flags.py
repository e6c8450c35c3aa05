"""Flags about what is read, and the name of the set if --output does not give one."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiment_utils.errors import UserError

if TYPE_CHECKING:
    from data_loading.pretokenizer.inputs.concatenated import Inputs
    from data_loading.pretokenizer.inputs.discover import InputOptions

STDLIB = "stdlib"
_LONGEST_NAME_BYTES = 200


def add_input_flags(parser: argparse.ArgumentParser) -> None:
    """Add the inputs and the flags about them."""
    parser.add_argument(
        "files",
        metavar="INPUT",
        nargs="+",
        help="text, .jsonl (plain, .gz, .zst, .bz2 or .xz), .parquet; a folder or quoted pattern of them; "
        "a folder of save_to_disk, hf://ORG/NAME[:CONFIG][@REVISION], hf://NAME of a known dataset "
        "(python -m data_loading list), - for standard input, stdlib: Python's own source code",
    )
    # fmt: off
    add = parser.add_argument_group("what is read").add_argument
    add("--document-separator", metavar="LINE",
        help="a line between two documents (default: a text file is one document)")
    add("--text-field", metavar="NAME",
        help="field or column of the text, such as text or meta.text (default: text)")
    add("--subset", metavar="NAME", help="subset of a dataset on the hub")
    add("--split", metavar="NAME", help="split of a Hugging Face dataset (default: train)")
    add("--encoding", default="utf-8", help="encoding of the text (default: utf-8)")
    add("--errors", default="strict", metavar="HOW",
        help="undecodable bytes: strict (default), replace, ignore")
    add("--skip-bad", metavar="N", help="leave out up to N lines that are no documents (default: 0)")
    add("--max-documents", metavar="N", help="end after N documents, such as 1M")
    add("--max-tokens", metavar="N", help="end with the document in which token N falls, such as 1B")
    add("--clean", metavar="HOW",
        help="normalize: Unicode NFC; no control characters; runs of blanks to one space, none at the end of "
        "a line; at most two line breaks in a row; source code (by its name) is left as it is. "
        "normalize-code: code too")
    add("--dedup", metavar="WHAT",
        help="lines or documents: drop each that came before in the inputs; reads them twice")
    add("--dedup-memory", metavar="SIZE",
        help="memory for the hashes of --dedup; more of them go to disk (default: 256MB)")
    add("--val", metavar="INPUT", nargs="+",
        help="held-out text: --output OUT makes two sets, OUT_train.npy and OUT_validation.npy")
    # fmt: on


def check_arguments(given: Sequence[str]) -> None:
    """Raise UserError if one is not UTF-8, in which manifests and file lists are written."""
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


def open_sources(given: argparse.Namespace) -> list[Inputs]:
    """The inputs, and those of --val if given; limits hold for the first.

    Raises:
        UserError: something cannot be read, or the two hold the same text.
    """
    from data_loading.pretokenizer.inputs.leakage import refuse_same_files

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


def _open(files: Sequence[str], options: InputOptions) -> Inputs:
    from data_loading.pretokenizer.inputs.discover import InputOptions, as_one, open_inputs
    from data_loading.pretokenizer.sources.stdlib import StdlibSource

    if STDLIB in files and len(files) > 1 and not Path(STDLIB).exists():
        raise UserError(
            "stdlib: Python's own source code is a set of its own. Leave the other inputs out",
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
    """Name of the token set of each source. Raises UserError if it cannot be one."""
    in_shards = given.tokens_per_shard is not None or given.append
    end = "" if in_shards else ".npy"
    if given.output is None:
        inputs = [given.files] if given.val is None else [given.files, given.val]
        outputs = [_default_output(files, tokenizer_name, given) for files in inputs]
        outputs = [path.with_name(path.name.removesuffix(".npy") + end) for path in outputs]
    else:
        output = Path(given.output).expanduser()
        name = output.name
        if in_shards and (name.endswith(".npy") or name in ("", "..")):
            raise UserError(
                f"--output {given.output}: a set of shards is a folder; expected a name that does not end in "
                ".npy",
                code="output-not-folder",
            )
        is_npy = in_shards or given.val is not None or output.suffix == ".npy"
        if name.endswith(".docs.npy") or not is_npy:
            raise UserError(
                f"--output {given.output}: expected a name that ends in .npy (not .docs.npy), or "
                "--tokens-per-shard for a folder of shards",
                code="output-not-npy",
            )
        halves = [f"{name.removesuffix('.npy')}{half}{end}" for half in ("_train", "_validation")]
        outputs = [output] if given.val is None else [output.with_name(half) for half in halves]
    for path in outputs:
        _check_place(path)
        if given.output is not None and path.is_dir() and not in_shards:
            raise UserError(
                f"--output {path} is a folder; expected a file name that ends in .npy",
                code="output-is-other-folder",
            )
    return outputs


def _check_place(output: Path) -> None:
    """Raise UserError if no set can have this name."""
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
    """Name of a set without --output. Raises UserError if the inputs suggest none."""
    from data_loading.pretokenizer.sources.stdin import ARGUMENT
    from data_loading.pretokenizer.sources.stdlib import default_name
    from data_loading.text_io.file_names import DEFAULT_FOLDER, tokens_for

    path = Path(files[0]).expanduser()
    if is_stdlib(files):
        flags = ("max_documents", "max_tokens", "clean", "dedup")
        changed = [f"--{flag.replace('_', '-')}" for flag in flags if getattr(given, flag) is not None]
        if not changed:
            return DEFAULT_FOLDER / default_name(tokenizer_name)
        what = f"stdlib with {', '.join(changed)} is not the set that runs take by that name"
    elif len(files) == 1 and files[0].startswith("hf://"):
        from data_loading.hub.hub_uri import parse

        parts = (parse(files[0], given.subset).short, given.split)
        return DEFAULT_FOLDER / f"{'-'.join(filter(None, parts))}.npy"
    elif len(files) == 1 and path.is_file():
        return tokens_for(path)
    elif len(files) > 1:
        what = f"{len(files)} inputs have no name in common"
    elif files[0] == ARGUMENT:
        what = "standard input has no name"
    else:
        what = f"{path} is a folder" if path.is_dir() else f"{files[0]} can be several files"
    raise UserError(f"{what}: give the name of the set, --output FILE.npy", code="output-missing")


def _input_options(given: argparse.Namespace) -> InputOptions:
    from data_loading.pretokenizer.inputs.discover import InputOptions
    from data_loading.text_io.size_limits import LONGEST_BYTES

    names = ("encoding", "errors", "document_separator", "text_field", "subset", "split", "clean", "dedup")
    found: dict[str, Any] = {name: getattr(given, name) for name in names}
    for name, least in (("skip_bad", 0), ("max_documents", 1), ("max_tokens", 1)):
        if (text := getattr(given, name)) is not None:
            found[name] = count_of(text, f"--{name.replace('_', '-')}", least)
    if given.dedup_memory is not None and given.dedup is None:
        raise UserError("--dedup-memory: without --dedup it would do nothing", code="flag-without-effect")
    if given.dedup_memory is not None:
        found["dedup_memory_bytes"] = size_of(given.dedup_memory, "--dedup-memory")
    if given.run_limit is not None:  # text that can be held as one run can be one line too
        found["longest_bytes"] = max(LONGEST_BYTES, size_of(given.run_limit, "--run-limit"))
    return InputOptions(**found)


def count_of(text: str, flag: str, least: int) -> int:
    """Number that a flag was given, such as 1M. Raises UserError."""
    from experiment_utils.quantities import parse_count

    try:
        number = parse_count(text)
    except ValueError as error:
        raise UserError(f"{flag} {text}: {error}", code="number-invalid") from None
    if number < least:
        raise UserError(f"{flag} {text}: expected {least} or more", code="number-too-small")
    return number


def size_of(text: str, flag: str) -> int:
    """Bytes that a flag was given, such as 64MB. Raises UserError."""
    from experiment_utils.quantities import parse_size

    try:
        return parse_size(text)
    except ValueError as error:
        raise UserError(f"{flag} {text}: {error}", code="size-invalid") from None
