"""Workers put batches into a small /dev/shm until one dies of SIGBUS (yolov3#1151)."""

# /// case
# kind = "death"
# verdict = ["shm_full"]
# cause = ["shmem", "prefetch"]
# victim = "child"
# limit_mb = 300
# shm_mb = 48
# ///

import os
import sys
import time
from multiprocessing import Process, shared_memory

from kit import MB


def load(worker: int) -> None:
    batches = []
    for _ in range(40):
        batch = shared_memory.SharedMemory(create=True, size=4 * MB)
        batch.buf[:] = b"x" * (4 * MB)
        batches.append(batch)
        time.sleep(0.15)


if __name__ == "__main__":
    workers = [Process(target=load, args=(n,)) for n in range(2)]
    for worker in workers:
        worker.start()
    while all(worker.is_alive() for worker in workers):
        time.sleep(0.1)
    dead = next(worker for worker in workers if not worker.is_alive())
    for worker in workers:
        worker.kill()
    os.write(
        2,
        b"ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient "
        b"shared memory (shm).\n",
    )
    sys.exit(1 if dead.exitcode else 0)
