"""No limit below the machine's memory: the machine itself runs out, and its kernel kills."""

# /// case
# kind = "death"
# verdict = ["oom_host"]
# victim = "main"
# limit_mb = 100000
# needs = ["v2", "guest"]
# ///

import ctypes

from kit import grow

# Pinned, as for a GPU: else a machine without swap takes minutes to give up, reading programs in again.
ctypes.CDLL(None).mlockall(3)
grow(2000, seconds=8)
