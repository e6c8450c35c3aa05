"""A deep recursion overflows the stack."""

# /// case
# kind = "death"
# verdict = ["failed"]
# victim = "main"
# limit_mb = 250
# ///

import ctypes
import sys
import time

from kit import grow

held = grow(80, seconds=1.5)
time.sleep(0.5)
CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)


@CALLBACK
def visit(depth: int) -> int:
    return visit(depth + 1)


sys.setrecursionlimit(1 << 30)
visit(0)
