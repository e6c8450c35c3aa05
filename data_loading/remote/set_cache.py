"""The files of one stored set on this machine: downloaded when a reader needs them, or before."""

from __future__ import annotations

import logging
import os
import time
import weakref
from collections.abc import Hashable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from data_loading.interruptible_wait import Wait
from data_loading.remote.address import Address
from data_loading.remote.disk_budget import Cache, Hold, NoRoom, alone, hold
from data_loading.remote.download import Check, DownloadOptions, download, is_whole, part_of, read_blocks
from data_loading.remote.prefetcher import Prefetcher
from data_loading.remote.store import open_store
from data_loading.remote.stored_files import Head, SetGeometry, StoredFile
from data_loading.tokens.npy import HEADER_BYTES, open_npy
from experiment_utils.errors import UserError

log = logging.getLogger("data_loading")

_POLL_S = 0.02
_ROOM_POLL_S = 0.5
_LOG_AFTER_S = 1.0
_PATIENCE_S = 600.0
"""Longest wait for room that other processes hold."""


class _Waiting:
    """A wait for a file: logged when it is long, ended when the run wants to stop."""

    def __init__(self, name: str) -> None:
        self._name, self._wait = name, Wait()
        self._since, self._is_logged = time.monotonic(), False

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._since

    def check(self, reason: str = "") -> None:
        """Raises what the run's own checks raise (`checked_while_waiting`)."""
        self._wait.check()
        if not self._is_logged and self.seconds > _LOG_AFTER_S:
            self._is_logged = True
            log.info("waiting for %s%s", self._name, reason)

    def end(self) -> None:
        if self._is_logged:
            log.info("%s came after %.1f s", self._name, self.seconds)


class SetCache:
    """Files of the set at `address` in `folder` of the cache."""

    def __init__(
        self,
        address: Address,
        geometry: SetGeometry,
        folder: Path,
        budget_bytes: int | None,
        options: DownloadOptions,
    ) -> None:
        self._geometry, self._folder, self._options = geometry, folder, options
        self._cache, self._store = Cache(folder.parent, budget_bytes), open_store(address)
        self._prefetcher = Prefetcher(self._fetch)
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
        found = self._held(file)
        if found is None:
            with self._prefetcher.paused(file):
                waiting = _Waiting(self._store.address.of(file.source))
                while (found := self._held(file)) is None:
                    self._make(file, waiting)
                waiting.end()
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
        if head not in self._heads:
            waiting = _Waiting(self._store.address.of(self._geometry.head_file(head).source))
            while self._prefetcher.is_doing(head):
                waiting.check()
                time.sleep(_POLL_S)
            if head not in self._heads:
                self._read_head(head, waiting.check)
            waiting.end()
        return self._heads[head]

    def prefetch(self, reader: object, tasks: Sequence[StoredFile | Head]) -> None:
        """Download these in their order while the process does something else.

        They replace what the same reader wanted before. Others may remove them before they are used.
        """
        self._prefetcher.want(reader, tasks)

    def close(self) -> None:
        """End downloads and locks; files stay in the cache."""
        self._prefetcher.close()
        for found in list(self._holds):
            found.close()

    def _held(self, file: StoredFile) -> Hold | None:
        found = hold(self.path(file))
        if found is not None and not (self.path(file).exists() and self._is_right(file)):
            found.close()
            return None
        return found

    def _is_right(self, file: StoredFile) -> bool:
        if not self.is_verifying or file.name in self._verified:
            return True
        if is_right := is_whole(self.path(file), file):
            self._verified.add(file.name)
        return is_right

    def _make(self, file: StoredFile, waiting: _Waiting) -> None:
        """Download a file, or wait a moment if another process does or there is no room."""
        reason, pause_s = "", _POLL_S
        with alone(self.path(file)) as is_mine:
            try:
                if is_mine:
                    self._download(file, waiting.check)
                    return
            except NoRoom as error:
                pause_s = _ROOM_POLL_S
                reason = (
                    f": {error.needed_bytes:,} bytes are needed in {self._cache.root}, {error.held_bytes:,} "
                    f"of dataset.disk_budget={self._cache.budget_bytes:,} are in use on this machine"
                )
        if reason and waiting.seconds > _PATIENCE_S:
            raise UserError(
                f"{file.name}{reason}, for {waiting.seconds:,.0f} s. Set a larger dataset.disk_budget",
                code="disk-budget-in-use",
            )
        waiting.check(reason)
        time.sleep(pause_s)

    def _download(self, file: StoredFile, check: Check, *, is_ahead: bool = False) -> None:
        path = self.path(file)
        if path.exists():
            if self._is_right(file):
                return
            log.warning("%s was changed or damaged: downloading it again", path)
            os.replace(path, part_of(path))
        reserve = partial(self._cache.reserve, is_ahead=is_ahead)
        download(self._store, file, path, self._options, reserve, check)
        self._verified.add(file.name)

    def _fetch(self, task: Hashable, check: Check) -> None:
        """Do a task of `prefetch`."""
        if isinstance(task, Head):
            if task not in self._heads:
                self._read_head(task, check)
            return
        assert isinstance(task, StoredFile)
        while not self.path(task).exists():
            with alone(self.path(task)) as is_mine:
                if is_mine:
                    self._download(task, check, is_ahead=True)
            check()
            time.sleep(_POLL_S)

    def _read_head(self, head: Head, check: Check) -> None:
        whole = self._geometry.tokens_file(head.part)
        found = self._held(whole)
        if found is not None:
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
