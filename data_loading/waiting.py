"""Long waits for what is read: who runs this process may want to end them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PATIENCE_S = 5.0
"""A shorter wait is waited out, so that a run stops where its steps end."""

_checks: list[tuple[int, Callable[[], None]]] = []


@contextmanager
def checked_while_waiting(check: Callable[[], None]) -> Iterator[None]:
    """Within the block `check` is asked again and again in each long wait of this process, which ends with
    what it raises. Forks are not asked.
    """
    _checks.append((os.getpid(), check))
    try:
        yield
    finally:
        _checks.pop()


class Wait:
    """One wait, from where it is made."""

    def __init__(self) -> None:
        self._until = time.monotonic() + PATIENCE_S

    def check(self) -> None:
        """Raises what a check raises, where the wait is a long one."""
        if time.monotonic() < self._until:
            return
        for process, check in _checks:
            if process == os.getpid():
                check()
