"""Inputs that a user names, as one source: files, patterns, folders, standard input, the hub, in this order.

A custom source is a class of its own file (`text_io/source.py` says what it has) and a row of FILE_KINDS or
ARGUMENTS.
"""

from __future__ import annotations

import glob
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from data_loading.hub.hub_uri import PREFIX
from data_loading.pretokenizer.cleaning.cleaned_source import Cleaned, check_choice, is_code
from data_loading.pretokenizer.cleaning.deduplicated_source import Deduplicated
from data_loading.pretokenizer.cleaning.duplicates import DEFAULT_MEMORY_BYTES, Duplicates
from data_loading.pretokenizer.inputs.concatenated import Inputs
from data_loading.pretokenizer.inputs.folders import LeftOut, files_below
from data_loading.pretokenizer.inputs.input_notes import some
from data_loading.pretokenizer.sources.json_lines import TEXT_FIELD, JsonLines, Tolerance
from data_loading.pretokenizer.sources.saved_datasets import DEFAULT_SPLIT, HubDataset, saved_files
from data_loading.pretokenizer.sources.stdin import ARGUMENT as STANDARD_INPUT
from data_loading.pretokenizer.sources.stdin import StandardInput
from data_loading.pretokenizer.sources.tables import TableFile
from data_loading.pretokenizer.sources.text_kinds import refuse_no_text, refuse_other_kind
from data_loading.pretokenizer.sources.wrapper import unwrapped
from data_loading.text_io.byte_files import ByteFile, ByteStream
from data_loading.text_io.file_names import JSON_SUFFIXES, TABLE_SUFFIXES, bare_name
from data_loading.text_io.single_stream import text_encoding
from data_loading.text_io.size_limits import LONGEST_BYTES
from data_loading.text_io.source import Source
from data_loading.text_io.text_file import TextFile
from experiment_utils.errors import UserError
from memory.files.file_kinds import kind_of

_READ_TABLES = ("parquet", "arrow-stream")


@dataclass(frozen=True)
class InputOptions:
    """Options of inputs.

    text_field: None: `text`. subset, split: of datasets of Hugging Face. clean, dedup: None: the text as it
    is. longest_bytes: of a line or a cell.
    """

    encoding: str = "utf-8"
    errors: str = "strict"
    document_separator: str | None = None
    text_field: str | None = None
    skip_bad: int = 0
    max_documents: int | None = None
    max_tokens: int | None = None
    subset: str | None = None
    split: str | None = None
    clean: str | None = None
    dedup: str | None = None
    dedup_memory_bytes: int = DEFAULT_MEMORY_BYTES
    longest_bytes: int = LONGEST_BYTES


Open = Callable[[], Source]


def open_inputs(arguments: Sequence[str], options: InputOptions) -> Inputs:
    """One source of all that the arguments name.

    Raises:
        UserError: an input is missing or given twice, or an option has no effect on any input.
    """
    tolerance, left_out = Tolerance(options.skip_bad), LeftOut()
    opens: list[Open] = []
    seen: dict[object, str] = {}
    empty: list[str] = []
    for argument in arguments:
        for name, identity, open_part in _named(argument, options, tolerance, empty, left_out):
            if identity in seen:
                other = "" if seen[identity] == name else f", as {seen[identity]} too"
                raise UserError(
                    f"{name} is given twice{other}: its documents would count double", code="input-twice"
                )
            seen[identity] = name
            opens.append(open_part)
    parts = [open_part() for open_part in opens]
    if not parts:
        raise UserError(
            f"{' '.join(arguments)}: all files there are empty ({some(empty)})", code="input-empty"
        )
    _refuse_unused(parts, options)
    notes = [f"left out, since they are empty: {some(empty)}"] if empty else []
    notes += filter(None, [left_out.note({Path(name) for name in seen.values()})])
    rows = [part.argument for part in parts if bare_name(part.argument).lower().endswith((".csv", ".tsv"))]
    if rows:
        notes.append(
            f"read as plain text, with their headers and separators: {some(rows)}. For one document a row, "
            "write them as lines of JSON: python -c 'import csv, json, sys; [print(json.dumps(row)) for row "
            "in csv.DictReader(sys.stdin)]' < FILE.csv > FILE.jsonl"
        )
    return as_one(parts, options, tolerance, notes)


def as_one(
    parts: Sequence[Source],
    options: InputOptions,
    tolerance: Tolerance | None = None,
    notes: Sequence[str] = (),
) -> Inputs:
    """The parts as one source: cleaned, without duplicates, up to a limit, as the options say.

    Args:
        notes: Lines for the user before the work.

    Raises:
        UserError: an option has no such value, or an input cannot be read twice.
    """
    notes, duplicates = list(notes), None
    for flag, is_given in {"--max-tokens": options.max_tokens, "--dedup": options.dedup}.items():
        once = next((part for part in parts if is_given is not None and not part.can_continue), None)
        if once is not None:
            raise UserError(
                f"{once.what}: {flag} reads text twice, and standard input can be read once. Write it to a "
                "file first (PROGRAM > FILE.txt), and give that",
                code="input-not-readable-twice",
            )
    if options.clean is not None:
        check_choice(options.clean)
        code = [part.argument for part in parts if options.clean == "normalize" and is_code(part)]
        if code:
            notes.append(
                f"--clean normalize leaves source code as it is: {some(code)} (--clean normalize-code cleans "
                "it too)"
            )
        parts = [part if part.argument in code else Cleaned(part, options.clean) for part in parts]
    limits = (options.max_documents, options.max_tokens)
    if options.dedup is not None:
        duplicates = Duplicates(options.dedup, options.dedup_memory_bytes)
        hub = [part.what for part in parts if isinstance(unwrapped(part), HubDataset)]
        if hub:
            notes.append(f"--dedup reads {', '.join(hub)} from the hub twice, whole the first time")
        elif limits != (None, None):
            notes.append("--dedup reads all of the text first, also after --max-documents or --max-tokens")
        parts = [Deduplicated(part, duplicates, place) for place, part in enumerate(parts)]
    return Inputs(parts, *limits, tolerance or Tolerance(), duplicates, notes)


def _named(
    argument: str, options: InputOptions, tolerance: Tolerance, empty: list[str], left_out: LeftOut
) -> Iterator[tuple[str, object, Open]]:
    """(name, identity, opener) of each input that an argument names; equal inputs have equal identities.

    Args:
        empty: Gets the names of empty files of folders and patterns, which are left out.
        left_out: Gets what folders hold that is no input.
    """
    key = PREFIX if argument.startswith(PREFIX) else argument
    if key in ARGUMENTS:
        yield argument, argument, lambda: ARGUMENTS[key](argument, options, tolerance)
        return
    for path in _files(argument, options, left_out):
        if path != Path(argument).expanduser() and path.is_file() and path.stat().st_size == 0:
            empty.append(str(path))
        else:
            yield str(path), _identity(path), lambda path=path: open_file(path, options, tolerance)  # type: ignore[misc]


def _identity(path: Path) -> object:
    """The same for two names of one file. A missing file is reported when it is opened."""
    try:
        stat = path.stat()
    except OSError:
        return str(path)
    return stat.st_dev, stat.st_ino


def _files(argument: str, options: InputOptions, left_out: LeftOut) -> list[Path]:
    """The files that an argument names. Raises UserError if a pattern or folder has none."""
    path = Path(argument).expanduser()
    if path.is_dir():
        return _files_of(path, options, left_out)
    if path.exists() or not glob.has_magic(argument):
        return [path]
    found = sorted(glob.glob(str(path), recursive=True))  # noqa: PTH207 - a pattern can be absolute
    if not found:
        raise UserError(f"{argument}: no file matches this pattern", code="pattern-without-match")
    matches_contents = path.name == "**"  # of all folders that it matches
    files: list[Path] = []
    for path in (Path(name) for name in found if not name.endswith(".tokenizer")):
        if not path.is_dir():
            files.append(path)
        elif not matches_contents:
            files += _files_of(path, options, left_out)
    return files


def _files_of(folder: Path, options: InputOptions, left_out: LeftOut) -> list[Path]:
    saved = saved_files(folder, options.split)
    return saved or files_below(folder, left_out, with_fields=options.text_field is not None)


def open_file(path: Path, options: InputOptions, tolerance: Tolerance) -> Source:
    """The source of one file, by its content and its name. Raises UserError."""
    if path.suffix == ".npy":
        raise UserError(f"{path} is a token file already; expected a text", code="input-is-tokens")
    stream = ByteFile(path)
    content, name = kind_of(stream.head), bare_name(path.name).lower()
    for kind in FILE_KINDS:
        if name.endswith(kind.suffixes) or (content and content.id in kind.contents):
            return kind.open(path, stream, options, tolerance)
    return _open_text(path, stream, options, tolerance)


def _open_table(path: Path, stream: ByteStream, options: InputOptions, tolerance: Tolerance) -> Source:
    is_compressed = isinstance(stream, ByteFile) and stream.compression is not None
    if is_compressed and path.suffix.lower() not in TABLE_SUFFIXES:
        raise UserError(
            f"{path} is a compressed table, which cannot be read in parts: decompress it first",
            code="table-compressed",
        )
    refuse_other_kind(path, "a table", stream.at(0, 512)[0], _READ_TABLES)
    return TableFile(path, options.text_field or TEXT_FIELD, options.errors, options.longest_bytes)


def _open_json(path: Path, stream: ByteStream, options: InputOptions, tolerance: Tolerance) -> Source:
    refuse_no_text(path, stream, options.encoding, may_be_pages=options.document_separator is not None)
    field, how = options.text_field or TEXT_FIELD, (options.encoding, options.errors)
    return JsonLines(path, field, *how, tolerance, stream, options.longest_bytes)


def _open_text(path: Path, stream: ByteStream, options: InputOptions, tolerance: Tolerance) -> Source:
    refuse_no_text(path, stream, options.encoding, may_be_pages=options.document_separator is not None)
    return TextFile(path, options.encoding, options.errors, options.document_separator, stream)


def _open_standard_input(argument: str, options: InputOptions, tolerance: Tolerance) -> Source:
    """A text, or lines of JSON if a field is named."""
    open_part = _open_text if options.text_field is None else _open_json
    return open_part(Path(argument), StandardInput(), options, tolerance)


def _open_hub(argument: str, options: InputOptions, tolerance: Tolerance) -> Source:
    split = options.split or DEFAULT_SPLIT
    return HubDataset(argument, options.subset, split, options.text_field, tolerance, options.longest_bytes)


@dataclass(frozen=True)
class InputKind:
    """A kind of file.

    suffixes: of its name, without that of a compression. contents: its ids in `memory/files/file_kinds.py`,
    for files of another name.
    """

    suffixes: tuple[str, ...]
    open: Callable[[Path, ByteStream, InputOptions, Tolerance], Source]
    contents: tuple[str, ...] = ()


FILE_KINDS = (InputKind(TABLE_SUFFIXES, _open_table, _READ_TABLES), InputKind(JSON_SUFFIXES, _open_json))
"""All other files are plain texts."""
ARGUMENTS: dict[str, Callable[[str, InputOptions, Tolerance], Source]] = {
    STANDARD_INPUT: _open_standard_input,
    PREFIX: _open_hub,
}
"""Arguments that are no files: `-`, and all that begin with `hf://`."""


def _refuse_unused(parts: Sequence[Source], options: InputOptions) -> None:
    """Raise UserError if an option has no effect on any of the inputs."""
    used = {name for part in parts for name in part.options}
    kinds = [type(unwrapped(part)) for part in parts]
    is_hub = HubDataset in kinds
    is_saved = any(part.argument.endswith(".arrow") for part in parts)
    errors = {part.options.get("errors") for part in parts}
    unused = {
        "--document-separator": (
            options.document_separator is not None and "document_separator" not in used, "is a plain text",
        ),
        "--text-field": (
            options.text_field is not None and "text_field" not in used, "is of a kind with fields",
        ),
        "--encoding": (
            text_encoding(options.encoding) != "utf-8" and "encoding" not in used, "is a text in a file",
        ),
        "--errors": (options.errors not in ("strict", *errors), "has bytes to decode"),
        "--subset": (options.subset is not None and not is_hub, "is a dataset of the hub"),
        "--split": (options.split is not None and not (is_hub or is_saved), "is a dataset with splits"),
        "--skip-bad": (options.skip_bad and not is_hub and JsonLines not in kinds, "has lines of JSON"),
    }  # fmt: skip
    for flag, (is_unused, kind) in unused.items():
        if is_unused:
            raise UserError(
                f"{flag}: none of the inputs {kind}, so it would do nothing", code="flag-without-effect"
            )
