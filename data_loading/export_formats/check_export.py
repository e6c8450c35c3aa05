"""Is an export what its record says, and does it hold the tokens of its set?"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from data_loading.audit.result import Finding
from data_loading.export_formats import FORMATS, load_format
from data_loading.export_formats.contents import SLICE_TOKENS, ArrayLike, Split
from data_loading.export_formats.exporter import Format, NotThisFormat, Reading
from data_loading.export_formats.record import RECORD, Record, read_record
from data_loading.text_io.content_hash import file_content_hash
from data_loading.tokens.set_files import SetFiles
from data_loading.tokens.token_set import TokenSet, open_token_set, read_manifest
from experiment_utils.errors import UserError

MEND = "Remove the export ({folder}) and type the command that made it again, with --format {format}"


def export_folder_of(given: Path) -> Path | None:
    """The folder of the export that a path names: itself, or a file in it; None where it is none."""
    if given.is_dir():
        return given if given.name.endswith(tuple(f".{name}" for name in FORMATS)) else None
    inside = [] if given.name.endswith(".npy") else list(given.parents)[:2]
    return next((folder for folder in inside if (folder / RECORD).is_file()), None)


def audit_beside(tokens: Path) -> Iterator[Finding]:
    """Look at the exports of a set that lie beside it, as far as their records or names tell."""
    for name in FORMATS:
        for folder in sorted(tokens.parent.glob(f"*.{name}")):
            is_called_so = folder.name == f"{tokens.name.removesuffix('.npy')}.{name}" and folder.is_dir()
            try:
                record = read_record(folder)
            except UserError:
                yield from audit_export(folder) if is_called_so else []
                continue
            if record is not None and tokens.name in [item["name"] for item in record.sets]:
                yield from audit_export(folder)
            elif record is None and is_called_so:
                told = f"{folder} has no {RECORD}: of what it was made cannot be told"
                yield Finding(f"{name} export", None, told)


def audit_export(folder: Path) -> list[Finding]:
    """Look at every byte of an export; all findings, good and bad."""
    return list(_findings(folder))


def _findings(folder: Path) -> Iterator[Finding]:
    try:
        record = read_record(folder)
    except UserError as error:
        mend = f"Remove {folder} and type the command that made it again"
        yield Finding(f"{folder.suffix[1:]} export", False, str(error), mend)
        return
    if record is None:
        raise UserError(f"{folder}: no export there (it has no {RECORD})", code="no-export")
    what, mend = f"{record.format} export", MEND.format(folder=folder, format=record.format)
    told = _files(folder, record)
    yield Finding(f"{what}: files", not told, told or f"{_count(record)} of {folder} match", mend)
    format_ = load_format(record.format)
    try:
        reading = format_.read(folder)
    except (NotThisFormat, OSError) as error:
        yield Finding(f"{what}: format", False, f"{folder}: {error}", mend)
        return
    yield Finding(f"{what}: format", True, f"can be read as {record.format}", mend)
    sets, finding = _sets(folder, record)
    yield Finding(f"{what}: set", finding.ok, finding.told, _mend_after_append(folder, record) or mend)
    if finding.ok:
        wrong = _difference(format_, record, reading, sets)
        total = sum(map(len, reading.tokens.values()))
        yield Finding(f"{what}: tokens", wrong is None, wrong or f"{total:,} are those of the set", mend)


def stale_beside(tokens: Path) -> Iterator[tuple[Path, str]]:
    """(folder, how it is mended) of each export beside a set to which more was appended since."""
    for name in FORMATS:
        folder = tokens.with_name(f"{tokens.name}.{name}")
        try:
            record = read_record(folder)
        except UserError:
            continue
        if record is not None and _sets(folder, record)[1].ok is False:
            mend = _mend_after_append(folder, record)
            yield folder, mend or MEND.format(folder=folder, format=record.format)


def _mend_after_append(folder: Path, record: Record) -> str | None:
    """What to do with an export of a set that has grown since; None where it has not."""
    tokens = folder.parent / record.sets[0]["name"]
    try:
        manifest = read_manifest(tokens)
    except UserError:
        return None
    generations = manifest.get("generations", []) if manifest else []
    if manifest is None or len(generations) < 2:
        return None
    parts = len(manifest.get("val", {}).get("ranges", []))
    last = manifest["sources"][-generations[-1]["sources"] :]
    texts = [tokens.parent / source["path"] for source in last]
    why = None
    if parts > 1 and load_format(record.format).has_val:
        why = f"which holds out {parts} parts now, and {record.format} has room for one"
    elif not all(text.is_file() for text in texts):
        why = "and not all of that text is here"
    if why is not None:
        remove = shlex.join(["rm", "-r", str(folder)])
        return (
            f"More was appended to {tokens}, {why}: remove the export ({remove}), and tokenize all texts "
            "together for one of them all"
        )
    flags = ["--tokenizer", str(SetFiles(tokens).tokenizer), "--output", str(tokens), "--append"]
    flags += [*_flags_of(manifest["options"]), "--format", record.format]
    command = shlex.join(["python", "pretokenize_dataset.py", *map(str, texts), *flags])
    return f"More was appended to {tokens}. This writes the export anew: {command}"


def _flags_of(options: dict[str, Any]) -> Iterator[str]:
    """What was typed for the options of a manifest."""
    usual = {"encoding": "utf-8", "errors": "strict", "special_tokens": "text"}
    for name in ("document_separator", "text_field", "clean", "dedup", *usual):
        if options.get(name) not in (None, usual.get(name)):
            yield f"--{name.replace('_', '-')}={options[name]}"


def _count(record: Record) -> str:
    return f"{len(record.files)} file{'s' * (len(record.files) != 1)}"


def _files(folder: Path, record: Record) -> str:
    """What is wrong with the files; empty where nothing is."""
    wrong = []
    for name, fact in record.files.items():
        path = folder / name
        try:
            size = path.stat().st_size
            if size != fact["bytes"]:
                wrong.append(f"{path} has {size:,} bytes, it had {fact['bytes']:,}")
            elif file_content_hash(path) != fact["content_hash"]:
                wrong.append(f"{path} was changed or damaged: its checksum does not match")
        except OSError as error:
            wrong.append(f"{path} cannot be read: {error.strerror}")
    return "; ".join(wrong)


def _sets(folder: Path, record: Record) -> tuple[dict[str, TokenSet], Finding]:
    """The sets of which the export was made, where they are here and still the same."""
    sets = {}
    for item in record.sets:
        path = folder.parent / item["name"]
        if not path.exists():
            return {}, Finding("set", None, f"{item['name']} is not here")
        try:
            found = open_token_set(path)
        except UserError as error:
            return {}, Finding("set", None, f"cannot be compared: {error}")
        if (found.fingerprint, found.n_tokens) != (item["fingerprint"], item["tokens"]):
            return {}, Finding(
                "set",
                False,
                f"{folder} was made from {item['name']} with fingerprint {item['fingerprint'][:12]} and "
                f"{item['tokens']:,} tokens, which has {found.fingerprint[:12]} and {found.n_tokens:,} now",
            )
        sets[item["name"]] = found
    return sets, Finding("set", True, f"made from {' and '.join(sets)} as it is now")


def _difference(format_: Format, record: Record, reading: Reading, sets: dict[str, TokenSet]) -> str | None:
    """The first token or document start that is not that of the set."""
    if set(reading.tokens) != set(record.splits):
        return f"it has {', '.join(reading.tokens)}, its record says {', '.join(record.splits)}"
    for name, fact in record.splits.items():
        split = Split(sets[fact["set"]], fact["start"], fact["stop"])
        wrong = _first_other(reading.tokens[name], format_.stream(split), f"token {{}} of {name}")
        if wrong is not None:
            return wrong
    starts = next(iter(sets.values())).documents
    if reading.documents is not None and starts is not None:
        parts = (starts[at : at + SLICE_TOKENS] for at in range(0, len(starts), SLICE_TOKENS))
        return _first_other(reading.documents, parts, "the start of document {}")
    return None


def _first_other(there: ArrayLike, expected: Iterator[np.ndarray], what: str) -> str | None:
    at = 0
    for part in expected:
        found = there[at : at + len(part)]
        other = np.flatnonzero(found != part[: len(found)])
        if len(other):
            place = int(other[0])
            return f"{what.format(f'{at + place:,}')} is {found[place]}, the set has {part[place]}"
        if len(found) < len(part):
            return f"{what.format(f'{at + len(found):,}')} is missing, the set has {part[len(found)]}"
        at += len(part)
    if at == len(there):
        return None
    return f"{what.format(f'{at:,}')} is {there[at : at + 1][0]}, the set has none there"
