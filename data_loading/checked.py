"""What reading a whole file found out, kept beside the tokens so that it is read once."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any, Protocol

import durable
from data_loading.pretokenizer.byte_files import content_hash_of
from data_loading.set_files import SetFiles

log = logging.getLogger("data_loading")

CHECKED = "highwater.checked.json"
"""Its name in the folder of a set that another program wrote."""


class Kept(Protocol):
    """Something whose findings have a place."""

    @property
    def checked(self) -> Path: ...


_known_here: dict[Path, dict[str, Any]] = {}
"""For folders that cannot be written: known for the life of this process."""


def read_checked(files: Kept) -> dict[str, Any]:
    """What an earlier reading found out; empty where nothing did."""
    try:
        facts = json.loads(files.checked.read_text())
    except (OSError, ValueError):
        facts = None
    return facts if isinstance(facts, dict) else _known_here.get(files.checked.absolute(), {})


def write_checked(files: Kept, facts: dict[str, Any]) -> None:
    """Keep the facts on disk, or at least in this process."""
    _known_here[files.checked.absolute()] = facts
    try:
        durable.write_json(files.checked, facts)
    except OSError as error:
        log.info(
            "%s is not kept (%s): the next process checks again", files.checked, os.strerror(error.errno or 0)
        )


def text_difference(text: Path, fact: dict[str, Any], files: SetFiles) -> str | None:
    """How the text is not the one of a manifest's source; None when it is.

    Size and modification time are trusted; otherwise the contents are compared, once for each
    state of the text. Raises UserError where it cannot be read.
    """
    stat = text.stat()
    if fact.get("bytes") != stat.st_size:
        there = f"of {fact['bytes']:,} bytes" if "bytes" in fact else "from another kind of source"
        return f"it was made from a text {there}, and {text} has {stat.st_size:,} bytes"
    if fact.get("mtime_ns") == stat.st_mtime_ns:
        return None
    key = {"bytes": stat.st_size, "mtime_ns": stat.st_mtime_ns, "read_bytes": fact.get("read_bytes")}
    texts = read_checked(files).get("texts", {})
    known = texts.get(str(text.resolve()), {})
    if not all(known.get(name) == value for name, value in key.items()):
        log.info(
            "reading %s once: its modification time is not that of the text %s was made from",
            text,
            files.tokens,
        )
        known = {**key, "content_hash": content_hash_of(text, fact.get("read_bytes"))}
        write_checked(files, {**read_checked(files), "texts": {**texts, str(text.resolve()): known}})
    if known["content_hash"] == fact["content_hash"]:
        return None
    return (
        f"it was made from a text with content hash {fact['content_hash'][:12]}, and {text} has "
        f"{known['content_hash'][:12]}: the text was changed since"
    )
