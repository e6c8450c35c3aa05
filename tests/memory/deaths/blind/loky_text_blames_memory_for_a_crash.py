"""A worker segfaults in a library; joblib guesses at too much memory, of which there was plenty."""

# /// case
# kind = "death"
# verdict = ["failed"]
# cause = ["none"]
# limit_mb = 200
# ///

import os
import signal
import sys
import time

from kit import forked, grow, wait_for


def work() -> None:
    held = grow(15, seconds=1.5)
    time.sleep(1)
    os.kill(os.getpid(), signal.SIGSEGV)
    del held


status = wait_for(forked(work))
print(
    "joblib.externals.loky.process_executor.TerminatedWorkerError: A worker process managed by the executor "
    "was unexpectedly terminated. This could be caused by a segmentation fault while calling the function or "
    "by an excessive memory usage causing the Operating System to kill the worker.\n\n"
    f"The exit codes are {{{status}}}",
    file=sys.stderr,
)
sys.exit(1)
