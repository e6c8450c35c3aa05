"""SIGSEGV of a broken extension."""

# /// case
# kind = "death"
# verdict = ["failed"]
# limit_mb = 300
# ///

import ctypes
import time

time.sleep(1.2)
ctypes.string_at(0)
