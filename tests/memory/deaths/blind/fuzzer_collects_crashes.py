"""A fuzzer counts the inputs that crash a parser: its children die of signals, which is what it looks for."""

# /// case
# kind = "healthy"
# limit_mb = 150
# ///

import ctypes
import os
import sys
from collections.abc import Callable

from kit import forked, grow, over, wait_for

corpus = grow(60, seconds=1.0)
inputs: tuple[Callable[[], object], ...] = (lambda: ctypes.string_at(0), os.abort, lambda: len(corpus))
crashes: list[int] = []


def attempt(number: int) -> None:
    status = wait_for(forked(inputs[number % 3]))
    if status:
        print(f"input {number}: crash by signal {-status}", file=sys.stderr, flush=True)
        crashes.append(status)


over(4.0, 18, attempt)
assert len(crashes) == 12
