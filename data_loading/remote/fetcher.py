"""This process's side of the helper: what its readers want, and waiting for it."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import subprocess
import sys
import threading
import time
import weakref
from collections import deque
from pathlib import Path
from typing import Any

from data_loading.loader.interruptible_wait import Wait
from data_loading.remote.items import Item
from experiment_utils.errors import UserError

log = logging.getLogger("data_loading")

_TOLD_AFTER_S = 1.0
_ENDS_WITHIN_S = 5.0
_here: weakref.WeakSet[Fetcher] = weakref.WeakSet()


class Fetcher:
    """Starts the helper when something is first wanted; a fork starts one of its own. It ends with this.

    setup: what the helper is told first: uri, folder, budget_bytes, workers, part_bytes, verify.
    """

    def __init__(self, setup: dict[str, Any]) -> None:
        self._setup = setup
        self._wanted: dict[int, tuple[list[Item], list[Item]]] = {}
        self._since: dict[Item, int] = {}
        self._ready: dict[Item, int] = {}
        self._error: dict[str | None, str] = {}
        self._dropped: deque[int] = deque()
        self._patient: set[int] = set()
        self._number = 0
        self._told = threading.Condition()
        self._process: subprocess.Popen[str] | None = None
        self._of_the_parent: list[subprocess.Popen[str]] = []
        _here.add(self)

    def want(self, owner: int, required: list[Item], ahead: list[Item], *, urgent: bool = True) -> None:
        """What a reader uses now, and what it will use, in this order, in place of what it wanted before.

        What is no longer wanted may be removed. urgent: False: nobody waits for it yet.
        """
        with self._told:
            while self._dropped:
                self._wanted.pop(self._dropped.popleft(), None)
            if self._wanted.get(owner) == (required, ahead):
                return
            self._wanted[owner] = (required, ahead)
            if not urgent:
                self._patient.add(owner)
            self._send()

    def drop(self, owner: int) -> None:
        """A reader is gone; the helper knows of it with what is wanted next. May be called at any moment."""
        self._dropped.append(owner)

    def wait_for(self, items: list[Item], what: str) -> None:
        """Return when all of these, which are required, are there. what: for messages.

        Raises:
            UserError: one cannot be had; names it.
        """
        started, said, wait = time.monotonic(), False, Wait()
        with self._told:
            while not all(self._ready.get(item, -1) >= self._since[item] for item in items):
                found = next((self._error[item.word] for item in items if item.word in self._error), None)
                if found is None and None in self._error:
                    found = self._error[None]
                if found is not None:
                    self._error.clear()
                    raise UserError(found, code="fetch-failed")
                self._told.wait(0.5)
                wait.check()
                if not said and time.monotonic() - started > _TOLD_AFTER_S:
                    said = True
                    log.info("waiting for %s", what)
        if said:
            log.info("%s came after %.1f s", what, time.monotonic() - started)

    def close(self) -> None:
        """End the helper; what it has fetched stays."""
        process, self._process = self._process, None
        if process is not None:
            _end(process, os.getpid())

    def _send(self) -> None:
        self._number += 1
        owners = sorted(self._wanted, key=lambda owner: owner in self._patient)
        required = _without_doubles(item for owner in owners for item in self._wanted[owner][0])
        ahead = _without_doubles(item for _, more in self._wanted.values() for item in more)
        ahead = [item for item in ahead if item not in required]
        self._since = {item: self._since.get(item, self._number) for item in required}
        message = {
            "number": self._number,
            "required": [item.word for item in required],
            "ahead": [item.word for item in ahead],
        }
        if self._process is None:
            self._start()
        assert self._process is not None
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # what it told before it ended says why
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()

    def _start(self) -> None:
        package = str(Path(__file__).resolve().parents[2])
        paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "data_loading.remote.helper"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        )
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(self._setup) + "\n")
        weakref.finalize(self, _end, self._process, os.getpid())
        listener = threading.Thread(
            target=_listen, args=(weakref.ref(self), self._process), name="fetcher", daemon=True
        )
        listener.start()

    def _heard(self, message: dict[str, Any]) -> None:
        if "log" in message:
            log.log(message["level"], "%s", message["log"])
            return
        with self._told:
            if "ready" in message:
                self._ready[Item.of(message["ready"])] = message["number"]
                self._error.pop(message["ready"], None)
            else:
                self._error[message["item"]] = message["error"]
            self._told.notify_all()

    def _ended(self, process: subprocess.Popen[str]) -> None:
        with self._told:
            if self._process is process:
                code = process.wait()
                told = (
                    f"the process that fetches the tokens ended (status {code}). Type the same command again"
                )
                self._error.setdefault(None, told)
                self._told.notify_all()

    def _leave_to_the_parent(self) -> None:
        """In a fork: the helper is the parent's, and must see the end of its input when the parent ends."""
        process, self._process = self._process, None
        if process is not None:
            self._of_the_parent.append(process)
            nothing = os.open(os.devnull, os.O_RDWR)
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                with contextlib.suppress(OSError, ValueError):
                    os.dup2(nothing, pipe.fileno(), inheritable=False)
            os.close(nothing)
        self._told = threading.Condition()
        self._wanted, self._since, self._ready, self._error = {}, {}, {}, {}


def _listen(to: weakref.ref[Fetcher], process: subprocess.Popen[str]) -> None:
    """Without holding the fetcher: it goes when nobody else does, and the helper with it."""
    assert process.stdout is not None
    for line in process.stdout:
        if (fetcher := to()) is not None:
            fetcher._heard(json.loads(line))
        del fetcher
    if (fetcher := to()) is not None:
        fetcher._ended(process)


def _end(process: subprocess.Popen[str], of_process: int) -> None:
    """Close the helper's input, at which it ends. of_process: that started it; in a fork it is left alone."""
    if process.stdin is None or os.getpid() != of_process:
        return
    with contextlib.suppress(OSError, ValueError):
        process.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_ENDS_WITHIN_S)


def _without_doubles(items: Any) -> list[Item]:
    return list(dict.fromkeys(items))


def _after_fork() -> None:
    for fetcher in list(_here):
        fetcher._leave_to_the_parent()


os.register_at_fork(after_in_child=_after_fork)
