"""From what a user types to a source: files, patterns, folders, standard input, in the order given."""

from __future__ import annotations

import glob
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from data_loading.find.locate import JSON_SUFFIXES, TABLE_SUFFIXES, bare_name
from data_loading.hub.hub_uri import PREFIX
from data_loading.pretokenizer.cleaning.cleaned_source import Cleaned, check_choice, is_code
from data_loading.pretokenizer.cleaning.deduplicated_source import Deduplicated
from data_loading.pretokenizer.cleaning.duplicates import DEFAULT_MEMORY_BYTES, Duplicates
from data_loading.pretokenizer.inputs.concatenated import Inputs
from data_loading.pretokenizer.inputs.folders import LeftOut, files_below
from data_loading.pretokenizer.sources.json_lines import TEXT_FIELD, JsonLines, Tolerance
from data_loading.pretokenizer.sources.saved_datasets import DEFAULT_SPLIT, HubDataset, saved_files
from data_loading.pretokenizer.sources.stdin import ARGUMENT as STANDARD_INPUT
from data_loading.pretokenizer.sources.stdin import StandardInput
from data_loading.pretokenizer.sources.tables import TableFile
from data_loading.pretokenizer.sources.text_kinds import refuse_no_text, refuse_other_kind
from data_loading.pretokenizer.sources.wrapper import unwrapped
from data_loading.text_io.byte_files import ByteFile, ByteStream
from data_loading.text_io.size_limits import LONGEST_BYTES
from data_loading.text_io.source import Part, Source
from data_loading.text_io.text_file import TextFile, text_encoding
from experiment_utils.errors import UserError
from memory.file_kinds import kind_of

_SHOWN = 5
_READ_TABLES = ("parquet", "arrow-stream")


@dataclass(frozen=True)
class InputOptions:
    """How inputs are read. text_field: None: `text`, where there is one to name. subset, split: of
    datasets of Hugging Face. clean, dedup: None: the text as it is. longest_bytes: of a line or a cell.
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


def open_inputs(arguments: Sequence[str], options: InputOptions) -> Source:
    """One source of all that the arguments name.

    Raises:
        UserError: something is not there, is given twice, or an option has nothing to say something of.
    """
    tolerance = Tolerance(options.skip_bad)
    opens: list[Callable[[], Part]] = []
    seen: dict[object, str] = {}
    empty: list[str] = []
    left_out = LeftOut()
    taken: set[Path] = set()
    for name, identity, open_part in _named(arguments, options, tolerance, empty, left_out):
        if identity in seen:
            other = "" if seen[identity] == name else f", as {seen[identity]} too"
            raise UserError(
                f"{name} is given twice{other}: its documents would count double", code="input-twice"
            )
        seen[identity] = name
        taken.add(Path(name))
        opens.append(open_part)
    parts = [open_part() for open_part in opens]
    if not parts:
        raise UserError(
            f"{' '.join(arguments)}: all files there are empty ({_some(empty)})", code="input-empty"
        )
    _check_options(parts, options)
    notes = [f"left out, since they are empty: {_some(empty)}"] if empty else []
    notes += filter(None, [left_out.note(taken)])
    rows = [part.argument for part in parts if bare_name(part.argument).lower().endswith((".csv", ".tsv"))]
    if rows:
        notes.append(
            f"read as plain text, with their headers and separators: {_some(rows)}. For one document a row, "
            "write them as lines of JSON: python -c 'import csv, json, sys; [print(json.dumps(row)) for row "
            "in csv.DictReader(sys.stdin)]' < FILE.csv > FILE.jsonl"
        )
    return as_one(parts, options, tolerance, notes)


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def as_one(
    parts: Sequence[Part],
    options: InputOptions,
    tolerance: Tolerance | None = None,
    notes: Sequence[str] = (),
) -> Source:
    """The parts as one source: cleaned, without duplicates, up to a limit, where that is asked for.

    notes: what a user is told beforehand.

    Raises:
        UserError: a choice that there is not, or an input that cannot be read twice.
    """
    limits = (options.max_documents, options.max_tokens)
    is_plain = tolerance is None or isinstance(parts[0], TextFile)  # nothing that is counted over parts
    changes = options.clean or options.dedup or limits != (None, None)
    if len(parts) == 1 and is_plain and not changes and not notes:
        return parts[0]
    all_notes = list(notes)
    for part in parts if options.max_tokens is not None else ():
        _check_twice(part, "--max-tokens")
    if options.clean is not None:
        parts = _cleaned(parts, options.clean, all_notes)
    duplicates = None
    if options.dedup is not None:
        duplicates = Duplicates(options.dedup, options.dedup_memory_bytes)
        for part in parts:
            _check_twice(part, "--dedup")
        _note_first_reading(parts, limits != (None, None), all_notes)
        parts = [Deduplicated(part, duplicates, place) for place, part in enumerate(parts)]
    return Inputs(parts, *limits, tolerance or Tolerance(), duplicates, all_notes)


def _cleaned(parts: Sequence[Part], clean: str, notes: list[str]) -> list[Part]:
    check_choice(clean)
    code = [part.argument for part in parts if is_code(part)] if clean == "normalize" else []
    if code:
        notes.append(
            f"--clean normalize leaves source code as it is: {_some(code)} (--clean normalize-code cleans it "
            "too)"
        )
    return [part if part.argument in code else Cleaned(part, clean) for part in parts]


def _check_twice(part: Part, flag: str) -> None:
    if not part.can_continue:
        raise UserError(
            f"{part.what}: {flag} reads text twice, and standard input is gone after the first time. Write "
            "it to a file first (PROGRAM > FILE.txt), and give that",
            code="input-not-readable-twice",
        )


def _note_first_reading(parts: Sequence[Part], is_limited: bool, notes: list[str]) -> None:
    hub = [part.what for part in parts if isinstance(unwrapped(part), HubDataset)]
    if hub:
        notes.append(f"--dedup reads {', '.join(hub)} from the hub twice, whole the first time")
    elif is_limited:
        notes.append(
            "--dedup reads all of the text first, also what lies behind --max-documents or --max-tokens"
        )


def _named(
    arguments: Sequence[str],
    options: InputOptions,
    tolerance: Tolerance,
    empty: list[str],
    left_out: LeftOut,
) -> Iterator[tuple[str, object, Callable[[], Part]]]:
    """(name, what is the same for the same input, what opens it).

    empty: gets the names of files without a byte that nobody named, but that lie in a folder or are of a
    pattern; these are passed over. left_out: gets what folders hold that is no input.
    """
    for argument in arguments:
        if argument == STANDARD_INPUT:
            yield argument, argument, lambda: _open_standard_input(options, tolerance)
            continue
        if argument.startswith(PREFIX):
            yield argument, argument, lambda argument=argument: _open_hub(argument, options, tolerance)  # type: ignore[misc]
            continue
        for path in _files(argument, options, left_out):
            if path != Path(argument).expanduser() and _is_empty(path):
                empty.append(str(path))
                continue
            yield str(path), _identity(path), lambda path=path: open_file(path, options, tolerance)  # type: ignore[misc]


def open_file(path: Path, options: InputOptions, tolerance: Tolerance) -> Part:
    """The source of one file, by its content and its name. Raises UserError."""
    if path.suffix == ".npy":
        raise UserError(f"{path} is a token file already; expected a text", code="input-is-tokens")
    stream = ByteFile(path)
    kind = kind_of(stream.head)
    if (kind and kind.id in _READ_TABLES) or path.suffix.lower() in TABLE_SUFFIXES:
        refuse_other_kind(path, "a table", stream.head, _READ_TABLES)
        return TableFile(path, options.text_field or TEXT_FIELD, options.errors, options.longest_bytes)
    if stream.compression is not None and bare_name(path.name).lower().endswith(TABLE_SUFFIXES):
        raise UserError(
            f"{path} is a compressed table, which cannot be read in parts: decompress it first",
            code="table-compressed",
        )
    may_be_pages = options.document_separator is not None
    refuse_no_text(path, stream, options.encoding, may_be_pages=may_be_pages)
    if bare_name(path.name).lower().endswith(JSON_SUFFIXES):
        return _json_lines(path, options, tolerance, stream)
    return TextFile(path, options.encoding, options.errors, options.document_separator, stream)


def _json_lines(path: Path, options: InputOptions, tolerance: Tolerance, stream: ByteStream) -> JsonLines:
    field, how = options.text_field or TEXT_FIELD, (options.encoding, options.errors)
    return JsonLines(path, field, *how, tolerance, stream, options.longest_bytes)


def _open_standard_input(options: InputOptions, tolerance: Tolerance) -> Part:
    """A text, or lines of JSON where a field is named."""
    path, stream = Path(STANDARD_INPUT), StandardInput()
    refuse_no_text(path, stream, options.encoding, may_be_pages=True)
    if options.text_field is not None:
        return _json_lines(path, options, tolerance, stream)
    return TextFile(path, options.encoding, options.errors, options.document_separator, stream)


def _open_hub(argument: str, options: InputOptions, tolerance: Tolerance) -> Part:
    split = options.split or DEFAULT_SPLIT
    return HubDataset(argument, options.subset, split, options.text_field, tolerance, options.longest_bytes)


def _files(argument: str, options: InputOptions, left_out: LeftOut) -> list[Path]:
    """The files that an argument names. Raises UserError where a pattern or folder has none."""
    path = Path(argument).expanduser()
    if path.is_dir():
        return _files_of(path, options, left_out)
    if path.exists() or not glob.has_magic(argument):
        return [path]
    found = sorted(glob.glob(str(path), recursive=True))  # noqa: PTH207 - a pattern may be absolute
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
    if saved is not None:
        return saved
    return files_below(folder, left_out, with_fields=options.text_field is not None)


def _is_empty(path: Path) -> bool:
    return path.is_file() and path.stat().st_size == 0


def _identity(path: Path) -> object:
    """The same for two names of one file; a file that is not there is told when it is opened."""
    try:
        stat = path.stat()
    except OSError:
        return str(path)
    return stat.st_dev, stat.st_ino


def _check_options(parts: Sequence[Part], options: InputOptions) -> None:
    used = {name for part in parts for name in part.options}
    for name in ("document_separator", "text_field"):
        if getattr(options, name) is not None and name not in used:
            flag = name.replace("_", "-")
            kind = {"document_separator": "a plain text", "text_field": "of a kind with fields"}[name]
            raise UserError(
                f"--{flag}: none of the inputs is {kind}, so it would do nothing", code="flag-without-effect"
            )
    if text_encoding(options.encoding) != InputOptions.encoding and "encoding" not in used:
        raise UserError(
            "--encoding: none of the inputs is a text in a file, so it would do nothing",
            code="flag-without-effect",
        )
    if options.errors != InputOptions.errors and all(
        part.options.get("errors") != options.errors for part in parts
    ):
        raise UserError(
            "--errors: none of the inputs has bytes to decode, so it would do nothing",
            code="flag-without-effect",
        )
    is_hub = any(isinstance(part, HubDataset) for part in parts)
    if options.subset is not None and not is_hub:
        raise UserError(
            "--subset: none of the inputs is a dataset of the hub, so it would do nothing",
            code="flag-without-effect",
        )
    if options.split is not None and not (is_hub or any(part.argument.endswith(".arrow") for part in parts)):
        raise UserError(
            "--split: none of the inputs is a dataset with splits, so it would do nothing",
            code="flag-without-effect",
        )
    if options.skip_bad and not any(isinstance(unwrapped(part), JsonLines | HubDataset) for part in parts):
        raise UserError(
            "--skip-bad: none of the inputs has lines of JSON, so it would do nothing",
            code="flag-without-effect",
        )
