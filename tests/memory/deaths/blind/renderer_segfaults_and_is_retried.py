"""A renderer in a child segfaults on one frame; the next attempt does it, and the run ends well."""

# /// case
# kind = "healthy"
# limit_mb = 150
# ///

import os
import signal
import sys
import time

from kit import forked, grow, wait_for


def render(attempt: int) -> None:
    held = grow(30, seconds=1)
    if attempt == 0:
        os.kill(os.getpid(), signal.SIGSEGV)
    time.sleep(0.5)
    del held


frames = grow(40, seconds=1)
for attempt in range(3):
    status = wait_for(forked(lambda attempt=attempt: render(attempt)))
    if status == 0:
        break
    print(
        f"Segmentation fault (core dumped): renderer ended with {status}, attempt {attempt}", file=sys.stderr
    )
