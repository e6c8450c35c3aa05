"""Check that an export matches its record, is readable by its program and has the tokens of its set."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from data_loading.audit.finding import Finding
from data_loading.export_formats import FORMATS, load_format
from data_loading.export_formats.contents import SLICE_TOKENS, Split
from data_loading.export_formats.exporter import Format, Reading
from data_loading.export_formats.outdated import REMAKE, changed_set, remake_after_append, sets_of
from data_loading.export_formats.record import RECORD, Record, read_record
from data_loading.import_formats.format import DamagedSet
from data_loading.text_io.content_hash import file_content_hash
from data_loading.tokens.lazy_array import Values
from data_loading.tokens.token_set import TokenSet
from experiment_utils.errors import UserError


def export_folder_of(given: Path) -> Path | None:
    """Return the folder of the export that a path names: itself, or around a file in it; None without one."""
    if given.is_dir():
        return given if given.name.endswith(tuple(f".{name}" for name in FORMATS)) else None
    inside = [] if given.name.endswith(".npy") else list(given.parents)[:2]
    return next((folder for folder in inside if (folder / RECORD).is_file()), None)


def check_exports_of(tokens: Path) -> Iterator[Finding]:
    """Check the exports in the folder of a set whose records or names say that they are of it."""
    for name in FORMATS:
        for folder in sorted(tokens.parent.glob(f"*.{name}")):
            has_its_name = folder.name == f"{tokens.name.removesuffix('.npy')}.{name}" and folder.is_dir()
            try:
                record = read_record(folder)
            except UserError:
                yield from check_export(folder) if has_its_name else []
                continue
            if record is not None and tokens.name in [item["name"] for item in record.sets]:
                yield from check_export(folder)
            elif record is None and has_its_name:
                yield Finding(f"{name} export", None, f"{folder} has no {RECORD}: its set is not known")


def check_export(folder: Path) -> list[Finding]:
    """Check every byte of an export.

    Returns:
        All findings, good and bad.

    Raises:
        UserError: The folder has no record.
    """
    return list(_check(folder))


def _check(folder: Path) -> Iterator[Finding]:
    try:
        record = read_record(folder)
    except UserError as error:
        fix = f"Remove {folder} and type the command that made it again"
        yield Finding(f"{folder.suffix[1:]} export", False, str(error), fix)
        return
    if record is None:
        raise UserError(f"{folder}: no export there (it has no {RECORD})", code="no-export")
    what, fix = f"{record.format} export", REMAKE.format(folder=folder, format=record.format)
    problems = "; ".join(_changed_files(folder, record))
    count = f"{len(record.files)} file{'s' * (len(record.files) != 1)}"
    yield Finding(f"{what}: files", not problems, problems or f"{count} of {folder} match", fix)
    format_ = load_format(record.format)
    try:
        reading = format_.read(folder)
    except (UserError, OSError) as error:
        reason = error.reason if isinstance(error, DamagedSet) else str(error)
        yield Finding(f"{what}: format", False, f"{folder}: {reason}", fix)
        return
    yield Finding(f"{what}: format", True, f"can be read as {record.format}")
    try:
        sets = sets_of(folder, record)
    except (UserError, FileNotFoundError) as error:
        yield Finding(f"{what}: set", None, f"cannot be compared: {error}")
        return
    if (problem := changed_set(folder, record, sets)) is not None:
        yield Finding(f"{what}: set", False, problem, remake_after_append(folder, record) or fix)
        return
    yield Finding(f"{what}: set", True, f"made from {' and '.join(sets)} as it is now")
    difference = _difference(format_, record, reading, sets)
    total = sum(map(len, reading.tokens.values()))
    yield Finding(f"{what}: tokens", difference is None, difference or f"{total:,} are those of the set", fix)


def _changed_files(folder: Path, record: Record) -> Iterator[str]:
    """Yield what differs between the files and the record."""
    for name, fact in record.files.items():
        path = folder / name
        try:
            size = path.stat().st_size
            if size != fact["bytes"]:
                yield f"{path} has {size:,} bytes, it had {fact['bytes']:,}"
            elif file_content_hash(path) != fact["content_hash"]:
                yield f"{path} was changed or damaged: its checksum does not match"
        except OSError as error:
            yield f"{path} cannot be read: {error.strerror}"


def _difference(format_: Format, record: Record, reading: Reading, sets: dict[str, TokenSet]) -> str | None:
    """Return the first token or document start that is not that of the set, None if there is none."""
    for name, fact in record.splits.items():
        split = Split(sets[fact["set"]], fact["start"], fact["stop"])
        difference = _first_other(reading.tokens[name], format_.stream(split), f"token {{}} of {name}")
        if difference is not None:
            return difference
    starts = next(iter(sets.values())).documents
    if reading.documents is not None and starts is not None:
        parts = (starts[at : at + SLICE_TOKENS] for at in range(0, len(starts), SLICE_TOKENS))
        return _first_other(reading.documents, parts, "the start of document {}")
    return None


def _first_other(values: Values, expected: Iterator[np.ndarray], what: str) -> str | None:
    at = 0
    for part in expected:
        found = values[at : at + len(part)]
        other = np.flatnonzero(found != part[: len(found)])
        if len(other):
            place = int(other[0])
            return f"{what.format(f'{at + place:,}')} is {found[place]}, the set has {part[place]}"
        if len(found) < len(part):
            return f"{what.format(f'{at + len(found):,}')} is missing, the set has {part[len(found)]}"
        at += len(part)
    if at == len(values):
        return None
    return f"{what.format(f'{at:,}')} is {values[at : at + 1][0]}, the set has none there"
