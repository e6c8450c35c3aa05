"""A hundred children have ended and nobody waits for them, beside sixty threads; little memory in all."""

# /// case
# kind = "healthy"
# limit_mb = 120
# ///

import os
import signal
import threading
import time

from kit import MB, forked, over, wait_for

stop = threading.Event()
buffers: list[bytearray] = []


def prefetch() -> None:
    buffers.append(bytearray(b"x") * (MB // 2))
    stop.wait()


ended: list[int] = []
over(2, 100, lambda number: ended.append(forked(lambda: None)))
# a few were ended by a signal, by the run itself: helpers that were not needed any more
for _ in range(3):
    helper = forked(signal.pause)
    os.kill(helper, signal.SIGTERM)
    ended.append(helper)
threads = [threading.Thread(target=prefetch) for _ in range(60)]
for thread in threads:
    thread.start()
time.sleep(1.5)
stop.set()
for thread in threads:
    thread.join()
print("statuses", sorted({wait_for(pid) for pid in ended}), "buffers", len(buffers))
