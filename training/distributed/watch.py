"""Report the first failing rank to all others, so that none of them waits for it forever.

A rank that raises writes its rank and reason into the store; the first one to do so is the first failing
rank. A rank that is killed writes nothing: its connection to rank 0 closes (`connections`), or its heartbeats
stop. If the backend does not notice that a peer is gone (NCCL), a thread ends this process seconds later.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from training.distributed.connections import Connections
from training.distributed.place import Place
from training.distributed.rendezvous import ranks_in_words

if TYPE_CHECKING:
    from torch.distributed import Store


BEAT_S = 0.5
LOST_AFTER_S = 60.0
"""Time without a heartbeat after which a rank counts as gone."""
SETTLES_S = 4.0
"""Time to find out which rank closed its connection."""
LINGERS_S = 20.0
"""Time from a known failure to the end of a process that is still inside a collective."""

_FAILED = "failed"


def left_key(rank: int) -> str:
    """Key of the store that a rank sets before it ends normally."""
    return f"left/{rank}"


@dataclass(frozen=True)
class Failure:
    """End of a rank before the others."""

    rank: int
    kind: str
    """failed, interrupted (with `signal_number`), or lost: killed, or its node went down."""
    reason: str
    host: str = ""
    signal_number: int | None = None

    def __str__(self) -> str:
        where = f" ({self.host})" if self.host else ""
        if self.kind == "lost":
            return f"rank {self.rank}{where} is gone: {self.reason}"
        verb = "was stopped" if self.kind == "interrupted" else "failed"
        return f"rank {self.rank}{where} {verb} first: {self.reason}"


class Watch:
    """Watches the other ranks, from their meeting until `close`.

    hosts: hosts of all ranks. on_stuck: called with the failure before this process, which did not end, is
    ended.
    """

    def __init__(
        self, store: Store, place: Place, hosts: list[str], on_stuck: Callable[[Failure], None]
    ) -> None:
        self._store, self._place, self._hosts, self._on_stuck = store, place, hosts, on_stuck
        self._others = [rank for rank in range(place.world_size) if rank != place.rank]
        self._closing = threading.Event()
        self.failure: Failure | None = None
        self._beats: dict[int, tuple[bytes, float]] = {}
        self._connections = Connections(store, place)
        self._thread = threading.Thread(target=self._run, name="ranks", daemon=True)
        self._thread.start()

    def report(self, kind: str, reason: str, signal_number: int | None = None) -> Failure:
        """Report that this rank ends without the others; returns the first failure."""
        mine = Failure(self._place.rank, kind, reason, socket.gethostname(), signal_number)
        return self._first(mine)

    def first_failure(self) -> Failure | None:
        """Failure that broke a collective, if another rank knows it or is gone; waits some seconds for it."""
        seen = self._read_beats()
        until = time.monotonic() + SETTLES_S
        while time.monotonic() < until and self.failure is None:
            try:
                found = self._known()
            except Exception:  # rank 0 keeps the store
                return self._lost([0], is_shared=False)
            if found is not None:
                return found
            time.sleep(0.1)
        if self.failure is not None:
            return self.failure
        now = self._read_beats()
        if now is None or seen is None:
            return self._lost([0], is_shared=False)
        still = [rank for rank in self._others if now.get(rank) == seen.get(rank)]
        return self._lost(still) if still else None

    def close(self) -> None:
        """Stop watching."""
        self._closing.set()
        self._hear()
        self._thread.join(timeout=2 * BEAT_S)
        self._connections.close()

    def linger(self) -> None:
        """Wait until the others know, or some seconds: the store ends with this process."""
        until = time.monotonic() + SETTLES_S
        keys = [f"heard/{rank}" for rank in self._others]
        with suppress(Exception):
            while time.monotonic() < until and not self._store.check(keys):
                time.sleep(0.05)

    def _run(self) -> None:
        since, count = None, 0
        while not self._closing.wait(BEAT_S):
            count += 1
            try:
                self._store.set(f"beat/{self._place.rank}", str(count))
                self.failure = self.failure or self._known() or self._silent()
            except Exception:  # network; rank 0 keeps the store
                self.failure = self.failure or (
                    None if self._place.is_first else self._lost([0], is_shared=False)
                )
            if self.failure is None or self._closing.is_set():
                continue
            if since is None:
                since = time.monotonic()
                self._hear()
            if self.failure.rank != self._place.rank and time.monotonic() - since > LINGERS_S:
                with suppress(Exception):
                    self._on_stuck(self.failure)
                os._exit(1)

    def _hear(self) -> None:
        with suppress(Exception):
            self._store.set(f"heard/{self._place.rank}", "1")

    def _known(self) -> Failure | None:
        if not self._store.check([_FAILED]):
            return None
        return Failure(**json.loads(self._store.get(_FAILED)))

    def _first(self, mine: Failure) -> Failure:
        try:
            first: Any = self._store.compare_set(_FAILED, "", json.dumps(asdict(mine)))
            return Failure(**json.loads(first))
        except Exception:
            return mine if self._place.is_first else (self.failure or mine)

    def _read_beats(self) -> dict[int, bytes] | None:
        """Heartbeats of the others; None if the store is gone."""
        try:
            known = [rank for rank in self._others if self._store.check([f"beat/{rank}"])]
            return {rank: self._store.get(f"beat/{rank}") for rank in known}
        except Exception:
            return None

    def _silent(self) -> Failure | None:
        """Failure of a rank with a closed connection or without a heartbeat; rank 0 looks for all."""
        if not self._place.is_first:
            return None
        now_s = time.monotonic()
        for rank, beat in (self._read_beats() or {}).items():
            if self._beats.get(rank, (None, 0.0))[0] != beat:
                self._beats[rank] = beat, now_s
        silent = {rank for rank, (_, at_s) in self._beats.items() if now_s - at_s > LOST_AFTER_S}
        gone = [
            rank
            for rank in sorted(silent.union(self._connections.closed()))
            if not self._store.check([left_key(rank)])
        ]
        # One that failed has written so before its connection closed.
        return (self._known() or self._lost(gone)) if gone else None

    def _lost(self, ranks: list[int], *, is_shared: bool = True) -> Failure:
        first = ranks[0]
        reason = "killed from outside or by the kernel, or its node went down"
        if len(ranks) > 1:
            reason += f"; so are {ranks_in_words(ranks[1:])}"
        lost = Failure(first, "lost", reason, self._hosts[first])
        return self._first(lost) if is_shared else lost
