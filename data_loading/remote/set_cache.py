"""The files of one stored set on this machine: downloaded when a reader needs them, or before."""

from __future__ import annotations

import logging
import os
import time
import weakref
from collections.abc import Hashable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np

from data_loading.interruptible_wait import Wait
from data_loading.remote.address import Address
from data_loading.remote.disk_budget import Cache, Hold, NoRoom, alone, hold
from data_loading.remote.download import Check, RemoteOptions, download, is_whole, part_of, read_blocks
from data_loading.remote.download_thread import DownloadThread
from data_loading.remote.store import open_store
from data_loading.remote.stored_files import Head, SetGeometry, StoredFile
from data_loading.tokens.npy import HEADER_BYTES, open_npy
from experiment_utils.errors import UserError

log = logging.getLogger("data_loading")

_POLL_S = 0.02
_ROOM_POLL_S = 0.5
_PATIENCE_S = 600.0
"""Longest wait for room that other processes hold."""


class SetCache:
    """Files of the set at `address` in `folder` of the cache."""

    def __init__(self, address: Address, geometry: SetGeometry, folder: Path, options: RemoteOptions) -> None:
        self._geometry, self._folder, self._options = geometry, folder, options
        self._cache, self._store = Cache(folder.parent, options.budget_bytes), open_store(address)
        self._thread = DownloadThread(self._fetch)
        self._heads: dict[Head, np.ndarray] = {}
        self._holds: weakref.WeakSet[Hold] = weakref.WeakSet()
        self._verified: set[str] = set()
        self.is_verifying = False
        """Compare each file with its checksums before its first use in this process."""

    def path(self, file: StoredFile) -> Path:
        """Path of a file in the cache, whether it exists or not."""
        return self._folder / file.name

    def hold(self, file: StoredFile) -> Hold:
        """Return when the file is in the cache, locked against removal.

        Raises:
            UserError: it cannot be downloaded, or there is no room for it.
        """
        while (found := self._held(file)) is None:
            self._thread.wait_for(file, self._store.address.of(file.source))
        self._holds.add(found)
        return found

    def array(self, file: StoredFile) -> np.ndarray:
        """Copy of the values of an .npy file."""
        found = self.hold(file)
        try:
            return np.array(open_npy(self.path(file), may_be_empty=True))
        finally:
            found.close()

    def head(self, head: Head) -> np.ndarray:
        """The first tokens of a token file: from the cache, else out of verified blocks of the store."""
        if self._thread.current == head:
            self._thread.wait_for(head, self._geometry.head_file(head).source)
        if head not in self._heads:  # read here, so that a download ahead continues
            self._read_head(head, Wait().check)
        return self._heads[head]

    def prefetch(self, reader: object, tasks: Sequence[StoredFile | Head]) -> None:
        """Download these in their order while the process does something else.

        They replace what the same reader wanted before. Others can remove them before they are used.
        """
        self._thread.want(reader, tasks)

    def close(self) -> None:
        """End downloads and locks; files stay in the cache."""
        self._thread.close()
        for found in list(self._holds):
            found.close()

    def _held(self, file: StoredFile) -> Hold | None:
        found = hold(self.path(file))
        if found is not None and not self._is_right(file):
            found.close()
            return None
        return found

    def _is_right(self, file: StoredFile) -> bool:
        path = self.path(file)
        if not self.is_verifying or file.name in self._verified:
            return path.exists()
        with suppress(FileNotFoundError):
            if is_whole(path, file):
                self._verified.add(file.name)
        return file.name in self._verified

    def _fetch(self, task: Hashable, check: Check, *, is_ahead: bool) -> None:
        """Do a task of the thread: a file, or a head."""
        if isinstance(task, Head):
            if task not in self._heads:
                self._read_head(task, check)
            return
        assert isinstance(task, StoredFile)
        path, started, is_logged = self.path(task), time.monotonic(), False
        while not self._is_right(task):  # before the lock, which would stop readers of a file that is there
            pause_s = _POLL_S
            with alone(path) as is_mine:
                try:
                    if is_mine:
                        self._download(task, check, is_ahead=is_ahead)
                        return
                except NoRoom as error:
                    if is_ahead:
                        raise
                    pause_s, spent_s = _ROOM_POLL_S, time.monotonic() - started
                    reason = (
                        f"{error.needed_bytes:,} bytes are needed in {self._cache.root}, "
                        f"{error.held_bytes:,} of dataset.disk_budget={self._cache.budget_bytes:,} are in "
                        "use on this machine"
                    )
                    if spent_s > _PATIENCE_S:
                        raise UserError(
                            f"{task.name}: {reason}, for {spent_s:,.0f} s. Set a larger dataset.disk_budget",
                            code="disk-budget-in-use",
                        ) from None
                    if not is_logged:
                        log.info("%s waits for room: %s", task.name, reason)
                        is_logged = True
            check()
            time.sleep(pause_s)

    def _download(self, file: StoredFile, check: Check, *, is_ahead: bool) -> None:
        path = self.path(file)
        if self._is_right(file):
            return
        if path.exists():
            log.warning("%s was changed or damaged: downloading it again", path)
            os.replace(path, part_of(path))
        reserve = partial(self._cache.reserve, is_ahead=is_ahead)
        download(self._store, file, path, self._options, reserve, check)
        self._verified.add(file.name)

    def _read_head(self, head: Head, check: Check) -> None:
        whole = self._geometry.tokens_file(head.part)
        if (found := self._held(whole)) is not None:
            self._heads[head] = np.array(open_npy(self.path(whole))[: head.tokens])
            found.close()
            return
        file, size = self._geometry.head_file(head), head.tokens * self._geometry.dtype.itemsize
        content = bytearray(size)

        def keep(start: int, data: bytes) -> None:
            if (at := start - HEADER_BYTES) < size:
                content[at : at + len(data)] = memoryview(data)[: size - at]

        read_blocks(self._store, file, file.blocks, self._options, keep, check)
        self._heads[head] = np.frombuffer(content, self._geometry.dtype)
