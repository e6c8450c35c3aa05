"""The record beside an export's files: of which set it was made, and what its files hold."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from data_loading.export_formats import FORMATS
from data_loading.export_formats.contents import Contents
from data_loading.export_formats.exporter import Format
from experiment_utils.errors import UserError

RECORD = "highwater.json"
_KIND = "highwater export"
_VERSION = 1
_WRITER_VERSION = "1"
"""Raised when the same set would give other bytes in an export."""


@dataclass(frozen=True)
class Record:
    """format: a name of `FORMATS`. sets: name, fingerprint and tokens of each.

    The name of a set is its path from the folder in which the export lies. splits: set, start and stop of
    each split. files: bytes and content hash by name.
    """

    format: str
    sets: list[dict[str, Any]]
    splits: dict[str, dict[str, Any]]
    writer_version: str
    files: dict[str, dict[str, Any]]

    def is_of(self, other: Record) -> bool:
        """Whether an export with this record is what one with the other would be."""
        return {**asdict(self), "files": None} == {**asdict(other), "files": None}

    def to_json(self) -> dict[str, Any]:
        return {"kind": _KIND, "version": _VERSION, **asdict(self)}


def record_of(format_: Format, contents: Contents, folder: Path, files: dict[str, dict[str, Any]]) -> Record:
    """The record of an export with these contents in this folder."""
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
    """The record of an export; None where the folder has none.

    Raises:
        UserError: it is damaged, or of a later version.
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
    if not _is_whole(value):
        raise UserError(f"{path} is damaged: it is no record of an export", code="export-record-damaged")
    return Record(**{name: value[name] for name in Record.__dataclass_fields__})


def _is_whole(value: Any) -> bool:
    """Whether everything that is read of a record is there, of the right kind."""
    try:
        return (
            value["kind"] == _KIND
            and isinstance(value["version"], int)
            and value["format"] in FORMATS
            and isinstance(value["writer_version"], str)
            and all(isinstance(item[key], str) for item in value["sets"] for key in ("name", "fingerprint"))
            and all(isinstance(item["tokens"], int) for item in value["sets"])
            and all(isinstance(item["set"], str) for item in value["splits"].values())
            and all(
                isinstance(item[key], int) for item in value["splits"].values() for key in ("start", "stop")
            )
            and all(isinstance(item["bytes"], int) for item in value["files"].values())
            and all(isinstance(item["content_hash"], str) for item in value["files"].values())
            and {item["set"] for item in value["splits"].values()} == {item["name"] for item in value["sets"]}
        )
    except (KeyError, TypeError, AttributeError):
        return False
