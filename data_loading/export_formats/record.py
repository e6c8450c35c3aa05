"""The record in the folder of an export: the sets it was made from, and the checksums of its files."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from data_loading.export_formats import FORMATS
from data_loading.export_formats.contents import Contents
from data_loading.export_formats.exporter import Format
from data_loading.tokens.json_shape import ANY_KEY, shape_problem
from experiment_utils.errors import UserError

RECORD = "highwater.json"
_KIND = "highwater export"
_VERSION = 1
_WRITER_VERSION = "1"
"""Increased when the same set would give other bytes in an export."""

_SHAPE = {
    "kind": str,
    "version": int,
    "format": str,
    "writer_version": str,
    "sets": [{"name": str, "fingerprint": str, "tokens": int}],
    "splits": {ANY_KEY: {"set": str, "start": int, "stop": int}},
    "files": {ANY_KEY: {"bytes": int, "content_hash": str}},
}


@dataclass(frozen=True)
class Record:
    """Content of the record."""

    format: str
    """A name in `FORMATS`."""
    sets: list[dict[str, Any]]
    """name (path from the folder around the export), fingerprint and tokens of each set."""
    splits: dict[str, dict[str, Any]]
    """set, start and stop of each split."""
    writer_version: str
    files: dict[str, dict[str, Any]]
    """bytes and content_hash of each file."""

    def is_of(self, other: Record) -> bool:
        """Whether both records describe the same export, apart from the files."""
        return {**asdict(self), "files": None} == {**asdict(other), "files": None}

    def to_json(self) -> dict[str, Any]:
        return {"kind": _KIND, "version": _VERSION, **asdict(self)}


def record_of(format_: Format, contents: Contents, folder: Path, files: dict[str, dict[str, Any]]) -> Record:
    """Return the record of an export with these contents in this folder."""
    names = {name: _seen_from(folder, split.tokens.path) for name, split in contents.splits.items()}
    found = {names[name]: split.tokens for name, split in contents.splits.items()}
    return Record(
        format=format_.name,
        sets=[
            {"name": name, "fingerprint": token_set.fingerprint, "tokens": token_set.n_tokens}
            for name, token_set in found.items()
        ],
        splits={
            name: {"set": names[name], "start": split.start, "stop": split.stop}
            for name, split in contents.splits.items()
        },
        writer_version=_WRITER_VERSION,
        files=files,
    )


def _seen_from(folder: Path, tokens: Path) -> str:
    return os.path.relpath(tokens.absolute(), folder.absolute().parent)


def read_record(folder: Path) -> Record | None:
    """Return the record of an export, None if the folder has none.

    Raises:
        UserError: It is damaged, or has a later version.
    """
    path = folder / RECORD
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}", code="file-unreadable") from error
    except ValueError as error:
        raise UserError(f"{path} is damaged: {error}", code="export-record-damaged") from None
    if isinstance(value, dict) and isinstance(version := value.get("version"), int) and version > _VERSION:
        raise UserError(
            f"{path} is of version {version}, this program reads up to {_VERSION}. Update it, or write the "
            "export again",
            code="export-record-version",
        )
    if (problem := shape_problem(value, _SHAPE) or _contradiction(value)) is not None:
        raise UserError(f"{path} is damaged: {problem}", code="export-record-damaged")
    return Record(**{name: value[name] for name in Record.__dataclass_fields__})


def _contradiction(value: dict[str, Any]) -> str | None:
    if value["kind"] != _KIND:
        return f"kind is {value['kind']!r}, expected {_KIND!r}"
    if value["format"] not in FORMATS:
        return f"format is {value['format']!r}, expected one of {', '.join(FORMATS)}"
    if {split["set"] for split in value["splits"].values()} != {item["name"] for item in value["sets"]}:
        return "its splits are not of its sets"
    return None
