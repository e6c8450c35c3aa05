"""Meeting of all ranks at one store, kept by rank 0; an error names those that did not come."""

from __future__ import annotations

import json
import logging
import os
import socket
import time
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from experiment_utils.errors import UserError
from training.distributed.place import Place

if TYPE_CHECKING:
    from torch.distributed import Store

log = logging.getLogger("training")

TIMEOUT_VARIABLE = "HIGHWATER_RANKS_TIMEOUT_S"
MEET_S = 300.0
"""Nodes of one job start minutes apart where their file systems are slow to show the code."""
COLLECTIVE_S = 7200.0
"""Timeout of a collective for a rank that lives and does not come; `watch` finds dead ones. While one rank
writes a checkpoint, the rest wait in their next collective.
"""
_POLL_S = 0.05
_RETRY_S = 0.2
_LATER_S = 5.0
"""Extra time of the other ranks, so that rank 0 reports first: its message names all missing ranks."""


class RanksMissing(Exception):
    """Some ranks did not come to the rendezvous in time."""


def meet_within_s() -> float:
    """Seconds that a rank waits for the others."""
    text = os.environ.get(TIMEOUT_VARIABLE, "")
    try:
        return float(text) if text else MEET_S
    except ValueError:
        raise UserError(f"{TIMEOUT_VARIABLE}={text}: expected a number of seconds") from None


def open_store(place: Place, check: Callable[[], None]) -> Store:
    """Store of this run's ranks, made by rank 0. check: raises if this process is to stop.

    Raises:
        RanksMissing: rank 0 did not come.
        UserError: its port is taken.
    """
    from torch.distributed import DistNetworkError, PrefixStore, TCPStore

    assert place.address is not None
    keeps = place.is_first and not place.is_hosted
    until = time.monotonic() + meet_within_s() + (0.0 if place.is_first else _LATER_S)
    if not keeps:
        _wait_for_rank_0(place, until, check)
    try:
        store = TCPStore(
            # Bound to all of this host's addresses; what others call it may not be what it calls itself.
            "localhost" if keeps and place.source == "slurm" else place.address,
            place.port,
            place.world_size,
            is_master=keeps,
            timeout=timedelta(seconds=max(1.0, until - time.monotonic())),
            wait_for_workers=False,
        )
    except DistNetworkError as error:
        if keeps and "EADDRINUSE" in str(error):
            raise UserError(
                f"port {place.port} of {socket.gethostname()}, where the ranks of this run meet, is used by "
                "another program. Choose one with MASTER_PORT=NUMBER in the environment of all ranks"
            ) from error
        raise RanksMissing(f"rank 0 cannot be reached at {place.address}:{place.port}: {error}") from error
    return PrefixStore(place.key, store) if place.is_hosted else store


def _wait_for_rank_0(place: Place, until: float, check: Callable[[], None]) -> None:
    assert place.address is not None
    while True:
        check()
        try:
            socket.create_connection((place.address, place.port), timeout=5).close()
            return
        except OSError as error:
            if time.monotonic() > until:
                raise RanksMissing(
                    f"rank 0 did not come to {place.address}:{place.port} within {meet_within_s():g} s "
                    f"({error.strerror or error}). Check that it runs, and its log.txt. If this node does "
                    "not know that name, set MASTER_ADDR"
                ) from error
        time.sleep(_RETRY_S)


def meet(
    store: Store, place: Place, facts: dict[str, Any], check: Callable[[], None]
) -> list[dict[str, Any]]:
    """Publish facts of this rank; returns the facts of all ranks, in their order.

    Raises:
        RanksMissing: some did not come; names them, and the hosts of the others.
    """
    store.set(f"here/{place.rank}", json.dumps({"host": socket.gethostname(), "pid": os.getpid(), **facts}))
    keys = [f"here/{rank}" for rank in range(place.world_size)]
    until = time.monotonic() + meet_within_s() + (0.0 if place.is_first else _LATER_S)
    while not store.check(keys):
        check()
        if time.monotonic() > until:
            here = {rank: json.loads(store.get(key)) for rank, key in enumerate(keys) if store.check([key])}
            missing = [rank for rank in range(place.world_size) if rank not in here]
            came = ", ".join(f"{rank} on {facts['host']}" for rank, facts in here.items())
            raise RanksMissing(
                f"{ranks_in_words(missing)} of {place.world_size} did not come to {place.address}:"
                f"{place.port} within {meet_within_s():g} s; those that came: {came}. Check that they were "
                f"started, and log.rank{missing[0]}.txt. To wait longer: {TIMEOUT_VARIABLE}=SECONDS"
            )
        time.sleep(_POLL_S)
    return [json.loads(store.get(key)) for key in keys]


def ranks_in_words(ranks: list[int]) -> str:
    """`rank 3`, `ranks 1, 2 and 5`."""
    words = [str(rank) for rank in ranks[:12]] + (["more"] if len(ranks) > 12 else [])
    if len(words) == 1:
        return f"rank {words[0]}"
    return f"ranks {', '.join(words[:-1])} and {words[-1]}"
