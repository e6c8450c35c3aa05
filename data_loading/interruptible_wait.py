"""Long waits of a loader, which the program around it can end."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PATIENCE_S = 5.0
"""A shorter wait is not ended, so that a run stops at the end of a step."""

_checks: list[tuple[int, Callable[[], None]]] = []


@contextmanager
def checked_while_waiting(check: Callable[[], None]) -> Iterator[None]:
    """Within the block, call `check` repeatedly in each long wait of this process; it ends it by raising.

    Forks do not call it.
    """
    _checks.append((os.getpid(), check))
    try:
        yield
    finally:
        _checks.pop()


class Wait:
    """One wait, which begins when it is made."""

    def __init__(self) -> None:
        self._until = time.monotonic() + PATIENCE_S

    def check(self) -> None:
        """Call the checks if the wait is a long one. Raises what a check raises."""
        if time.monotonic() < self._until:
            return
        for process, check in _checks:
            if process == os.getpid():
                check()
