"""The process that fetches for another one: `python -m data_loading.remote.helper`.

A process of its own, since the client library cannot be used after a fork, as workers of a loader are made;
and since hashing and copying would take turns with training. It reads what is wanted from its standard
input, a line of JSON each, tells on its standard output what is there, and ends with its input, so that
nothing stays of it whatever kills the other.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from data_loading.npy import header
from data_loading.remote.address import parse
from data_loading.remote.cache import Cache, NoRoom, Use
from data_loading.remote.credentials import redacted
from data_loading.remote.download import DownloadOptions, Stopped, download
from data_loading.remote.items import Item
from data_loading.remote.mirror import verified
from data_loading.remote.store import open_store
from data_loading.set_files import MANIFEST
from data_loading.shards import parts_of
from data_loading.token_set import parse_manifest
from experiment_utils.errors import UserError

_POLL_S = 0.05
_AGAIN_S = 1.0
"""After which what had no room, or failed, is tried again ahead of its use."""
_TOLD_S, _PATIENCE_S = 10.0, 600.0
"""Of waiting for room that other processes hold."""


_sending = threading.Lock()
_NOT_HEEDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""Sent to all processes of a job: the other process decides, which may want a shard for its last step."""


def send(message: dict[str, Any]) -> None:
    """One line to the other process, which may be gone."""
    with suppress(BrokenPipeError), _sending:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()


class _Lines(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        send({"log": redacted(record.getMessage()), "level": record.levelno})


class Helper:
    """Items are required, or wanted ahead, in the order of their use. What is required, or being fetched, is
    held for now; the rest of what is wanted, ahead: it may go for what another process requires.
    """

    def __init__(self, setup: dict[str, Any]) -> None:
        address = parse(setup["uri"])
        self._folder = Path(setup["folder"])
        data = (self._folder / MANIFEST).read_bytes()
        self._manifest = parse_manifest(data, address.uri, is_folder=address.files.is_folder)
        self._parts = parts_of(address.files, self._manifest)
        self._cache = Cache(self._folder.parent, setup["budget_bytes"])
        self._options = DownloadOptions(setup["workers"], setup["part_bytes"])
        self._verify_again = setup["verify"] == "blocks"
        self._store = open_store(address)
        self._changed = threading.Condition()
        self._required: list[Item] = []
        self._ahead: list[Item] = []
        self._since: dict[Item, int] = {}
        self._uses: dict[Item, Use] = {}
        self._ready: set[Item] = set()
        self._later: dict[Item, float] = {}
        self._looked_s = 0.0
        self._waiting_since: dict[Item, float] = {}

    def want(self, message: dict[str, Any]) -> None:
        """Called by the thread that reads the input."""
        with self._changed:
            before = set(self._required)
            self._required = [Item.of(word) for word in message["required"]]
            self._ahead = [Item.of(word) for word in message["ahead"]]
            # What becomes required is told of once more: ahead of that it might have been removed again.
            self._ready -= {item for item in self._required if item not in before}
            since = {item: self._since.get(item, message["number"]) for item in self._ahead}
            since |= {
                item: self._since[item] if item in before else message["number"] for item in self._required
            }
            self._since = since
            # What was tried ahead without success is tried at once where it is required.
            self._later = {item: at for item, at in self._later.items() if item in self._ahead}
            self._changed.notify()

    def run(self) -> None:
        while True:
            with self._changed:
                self._release()
                self._notice_what_went()
                item = self._next()
                if item is None:
                    self._changed.wait(_POLL_S if self._required or self._ahead else None)
                    continue
                number = self._since[item]
            self._serve(item, number)

    def _release(self) -> None:
        for item in [item for item in self._uses if item not in self._since]:
            self._uses.pop(item).close()
            self._ready.discard(item)
        for item, use in self._uses.items():
            if use.is_for_now and item not in self._required:
                use.for_later()
        self._waiting_since = {
            item: since for item, since in self._waiting_since.items() if item in self._required
        }
        self._cache.set_short(bool(self._waiting_since))

    def _notice_what_went(self) -> None:
        """Of what is ahead, for what another process required: it is fetched again where there is room."""
        now = time.monotonic()
        if now < self._looked_s + _AGAIN_S:
            return
        self._looked_s = now
        for item in self._ahead:
            if item in self._ready and not self._target(item).exists():
                self._ready.discard(item)
                self._later[item] = now + _AGAIN_S

    def _next(self) -> Item | None:
        now = time.monotonic()
        wanted = (item for item in (*self._required, *self._ahead) if item not in self._ready)
        return next((item for item in wanted if self._later.get(item, 0) <= now), None)

    def _serve(self, item: Item, number: int) -> None:
        try:
            is_there = self._is_there(item)
            with self._changed:
                if not is_there:
                    self._later[item] = time.monotonic() + _POLL_S
                elif self._since.get(item) == number:
                    self._waiting_since.pop(item, None)
                    self._ready.add(item)
                    send({"ready": item.word, "number": number})
        except Stopped:
            pass
        except NoRoom as error:
            self._no_room(item, error)
        except UserError as error:
            self._put_off(item)
            if item in self._required:
                send({"error": redacted(str(error)), "item": item.word})

    def _put_off(self, item: Item) -> None:
        self._later[item] = time.monotonic() + _AGAIN_S
        if item in self._uses and item not in self._required:
            self._uses.pop(item).close()

    def _no_room(self, item: Item, error: NoRoom) -> None:
        self._put_off(item)
        if item not in self._required:
            return
        since = self._waiting_since.setdefault(item, time.monotonic())
        waited = time.monotonic() - since
        self._cache.set_short(True)
        told = (
            f"{self._cache.root}: {error.needed:,} bytes are needed for {self._target(item).name}, and "
            f"{error.held:,} of dataset.disk_budget={self._cache.budget_bytes:,} are in use by processes on "
            "this machine"
        )
        if waited > _PATIENCE_S:
            send(
                {"error": f"{told}, for {waited:,.0f} s. Set a larger dataset.disk_budget", "item": item.word}
            )
        elif waited > _TOLD_S and waited % _TOLD_S < _AGAIN_S:
            send({"log": f"{told}; waiting for them", "level": logging.WARNING})

    def _target(self, item: Item) -> Path:
        return item.target(self._folder, self._parts, self._manifest)

    def _is_there(self, item: Item) -> bool:
        """Fetch the item unless it is there; False: another process fetches it now."""
        target = self._target(item)
        if item in self._uses:
            self._uses[item].for_now()
        else:
            self._uses[item] = Use(target)
        if target.exists() and self._is_right(item, target):
            return True
        with self._uses[item].fetching() as mine:
            if not mine:
                return False
            if not target.exists():  # another process may have just ended
                self._fetch(item, target)
            return True

    def _is_right(self, item: Item, target: Path) -> bool:
        if not self._verify_again or item.kind != "tokens":
            return True
        from data_loading.remote.check import file_is_right

        if file_is_right(target, item.piece(self._parts, self._manifest)):
            return True
        send({"log": f"{target} was changed or damaged: it is fetched again", "level": logging.WARNING})
        target.unlink(missing_ok=True)
        return False

    def _fetch(self, item: Item, target: Path) -> None:
        piece = item.piece(self._parts, self._manifest)
        if item.kind == "head":
            self._cache.write(target, self._head(item, piece), is_ahead=item not in self._required)
            return
        started = time.monotonic()

        def should_stop() -> bool:
            if item not in self._since:
                return True
            if item in self._required:
                return False
            return any(one not in self._ready for one in self._required) or self._cache.someone_is_short()

        reserve = partial(self._cache.reserve, is_ahead=item not in self._required)
        fetched = download(self._store, piece, target, self._options, reserve, should_stop)
        spent = time.monotonic() - started
        told = f"{self._store.address.of(piece.source)}: {fetched / 1e6:,.1f} MB fetched in {spent:.1f} s"
        send({"log": told, "level": logging.DEBUG})

    def _head(self, item: Item, piece: Any) -> bytes:
        """The first tokens of a file as an .npy, out of verified blocks, here or in the store."""
        dtype = np.dtype(self._manifest["dtype"])
        size = item.stop * dtype.itemsize
        local = self._folder / self._parts[item.part].tokens_path.name
        try:
            with open(local, "rb") as file:
                file.seek(len(piece.header))
                content = file.read(size)
        except FileNotFoundError:
            _, *blocks = verified(self._store, piece, self._options)
            content = b"".join(blocks)[:size]
        return header(dtype, item.stop) + content


def _listen(helper: Helper) -> None:
    for line in sys.stdin:
        helper.want(json.loads(line))
    os._exit(0)  # requests that are under way would keep it


def main() -> None:
    for number in _NOT_HEEDED:
        signal.signal(number, signal.SIG_IGN)
    log = logging.getLogger("data_loading")
    log.setLevel(logging.INFO)
    log.addHandler(_Lines())
    log.propagate = False
    try:
        helper = Helper(json.loads(sys.stdin.readline()))
        threading.Thread(target=_listen, args=(helper,), name="listen", daemon=True).start()
        helper.run()
    except UserError as error:
        send({"error": redacted(str(error)), "item": None})
    except Exception as error:
        send(
            {
                "error": redacted(f"the process that fetches failed: {type(error).__name__}: {error}"),
                "item": None,
            }
        )


if __name__ == "__main__":
    main()
