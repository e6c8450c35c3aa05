"""Facts found by reading whole files, stored next to the tokens so that they are read once."""

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
from data_loading.user_cache import cache_folder
from experiment_utils import atomic_files

log = logging.getLogger("data_loading")

CHECKED = "highwater.checked.json"
"""Name of the facts in the folder of a set that another program wrote."""
_LOG_AFTER_S = 1.0
_POLL_S = 0.2
_in_process: dict[Path, dict[str, Any]] = {}
"""Facts of sets whose folder cannot be written, kept for the life of this process."""


class Cached(Protocol):
    """A set with a place for its facts."""

    @property
    def checked(self) -> Path: ...


def read_checked(files: Cached) -> dict[str, Any]:
    """Return the newest facts, empty if there are none.

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
        return _in_process.get(files.checked.absolute(), {})
    return max(found, key=lambda one: one[0])[1]


def write_checked(files: Cached, facts: dict[str, Any]) -> None:
    """Store the facts next to the tokens, else in the user's cache, else in this process."""
    _in_process[files.checked.absolute()] = facts
    failures = []
    for place in filter(None, (files.checked, _in_cache(files))):
        try:
            if place is not files.checked:
                place.parent.mkdir(parents=True, exist_ok=True)
            atomic_files.write_json(place, facts)
            return
        except OSError as error:
            failures.append(f"{place} ({os.strerror(error.errno or 0)})")
    log.info("not stored: %s. The next process checks again", ", ".join(failures))


def _in_cache(files: Cached) -> Path | None:
    """Return the place in the user's cache for a set whose folder cannot be written."""
    cache = cache_folder()
    key = hashlib.sha256(str(files.checked.resolve()).encode()).hexdigest()[:16]
    return None if cache is None else cache / "checked" / f"{key}.json"


@contextmanager
def one_reads(files: Cached, what: str) -> Iterator[None]:
    """Hold a lock while a whole set is read: other processes of this node wait, then find its facts.

    Without a cache folder, or on a file system without locks, no process waits.

    Args:
        files: The set.
        what: Its name in the log line of a process that waits.
    """
    place = _in_cache(files)
    with ExitStack() as stack:
        try:
            if place is not None:
                place.parent.mkdir(parents=True, exist_ok=True)
                name = f"{place.stem}.{socket.gethostname()}.lock"
                file = stack.enter_context(open(place.with_name(name), "ab"))
                _lock(file.fileno(), what)
        except OSError as error:
            log.debug("%s: read without a lock (%s)", what, error)
        yield


def _lock(descriptor: int, what: str) -> None:
    """Lock an open file. Raises OSError if the file system has no locks."""
    log_at, wait = time.monotonic() + _LOG_AFTER_S, Wait()
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            wait.check()
        if time.monotonic() > log_at:
            log_at = float("inf")
            log.info("another process of this node reads %s; waiting for it", what)
        time.sleep(_POLL_S)
