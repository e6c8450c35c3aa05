"""What reading a whole file found out, kept beside the tokens so that it is read once."""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol

from data_loading.interruptible_wait import Wait
from data_loading.text_io.byte_files import content_hash_of
from data_loading.tokens.set_files import SetFiles
from data_loading.user_cache import cache_folder
from experiment_utils import atomic_files

log = logging.getLogger("data_loading")

CHECKED = "highwater.checked.json"
"""Its name in the folder of a set that another program wrote."""


class Kept(Protocol):
    """Something whose findings have a place."""

    @property
    def checked(self) -> Path: ...


_known_here: dict[Path, dict[str, Any]] = {}
"""Of sets for which no folder can be written: known for the life of this process."""
_TOLD_AFTER_S = 1.0
_LOOK_EVERY_S = 0.2


def read_checked(files: Kept) -> dict[str, Any]:
    """What the latest reading found out; empty where there was none.

    Next to tokens that cannot be written there may be facts from before they were copied.
    """
    found = []
    for place in filter(None, (files.checked, _in_cache(files))):
        try:
            written_ns = place.stat().st_mtime_ns
            facts = json.loads(place.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(facts, dict):
            found.append((written_ns, facts))
    if not found:
        return _known_here.get(files.checked.absolute(), {})
    return max(found, key=lambda one: one[0])[1]


def write_checked(files: Kept, facts: dict[str, Any]) -> None:
    """Keep the facts next to the tokens, else in the user's cache, or at least in this process."""
    _known_here[files.checked.absolute()] = facts
    failures = []
    for place in filter(None, (files.checked, _in_cache(files))):
        try:
            if place is not files.checked:
                place.parent.mkdir(parents=True, exist_ok=True)
            atomic_files.write_json(place, facts)
            return
        except OSError as error:
            failures.append(f"{place} ({os.strerror(error.errno or 0)})")
    log.info("not kept: %s. The next process checks again", ", ".join(failures))


def _in_cache(files: Kept) -> Path | None:
    """Where the facts of a set are kept whose folder cannot be written."""
    cache = cache_folder()
    key = hashlib.sha256(str(files.checked.resolve()).encode()).hexdigest()[:16]
    return None if cache is None else cache / "checked" / f"{key}.json"


@contextmanager
def one_reads(files: Kept, what: str) -> Iterator[None]:
    """Hold this while a whole set is read: other processes of this node wait, and find what it noted.

    Without a cache folder, or on a file system without locks, nothing waits.

    Args:
        what: named in the log line of a process that waits.
    """
    place = _in_cache(files)
    with ExitStack() as stack:
        try:
            if place is not None:
                place.parent.mkdir(parents=True, exist_ok=True)
                name = f"{place.stem}.{socket.gethostname()}.lock"
                file = stack.enter_context(open(place.with_name(name), "ab"))
                _wait_for(file.fileno(), what)
        except OSError as error:
            log.debug("%s: read without a lock (%s)", what, error)
        yield


def _wait_for(descriptor: int, what: str) -> None:
    """Take the lock of an open file. Raises OSError where the file system has none."""
    started, told, wait = time.monotonic(), False, Wait()
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            wait.check()
        if not told and time.monotonic() - started > _TOLD_AFTER_S:
            told = True
            log.info("another process of this node reads %s; waiting for it", what)
        time.sleep(_LOOK_EVERY_S)


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
