"""Compare a text with the one that a token set was made from."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from data_loading.text_io.byte_files import content_hash_of
from data_loading.tokens.set_files import SetFiles
from data_loading.verification_cache import read_checked, write_checked

log = logging.getLogger("data_loading")


def text_difference(text: Path, fact: dict[str, Any], files: SetFiles) -> str | None:
    """Return how a text differs from a source in a manifest, None if it is the same.

    Size and modification time are trusted. If the time differs, contents are compared, once for each state of
    the text.

    Args:
        text: The file.
        fact: Entry of `sources` in the manifest.
        files: The set.

    Raises:
        UserError: The text cannot be read.
    """
    stat = text.stat()
    if fact.get("bytes") != stat.st_size:
        made_from = f"of {fact['bytes']:,} bytes" if "bytes" in fact else "from another kind of source"
        return f"it was made from a text {made_from}, and {text} has {stat.st_size:,} bytes"
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
