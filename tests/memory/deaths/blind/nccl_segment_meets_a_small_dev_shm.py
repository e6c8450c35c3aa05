"""NCCL asks for one more segment of shared memory than /dev/shm of the container has room for."""

# /// case
# kind = "death"
# verdict = ["shm_full"]
# limit_mb = 150
# shm_mb = 24
# ///

import os
import sys
import time

from kit import grow

SIZE = 9637888
model = grow(30, seconds=1)
for peer in range(4):
    name = f"/dev/shm/nccl-{peer:06d}"
    segment = os.open(name, os.O_CREAT | os.O_RDWR)
    try:
        os.posix_fallocate(segment, 0, SIZE)
    except OSError as error:
        print(
            f"gpu01:311:402 [0] misc/shmutils.cc:72 NCCL WARN Error: failed to extend {name} to {SIZE} bytes"
            f", error: {error.strerror} ({error.errno})\n"
            f"gpu01:311:402 [0] misc/shmutils.cc:113 NCCL WARN Error while creating shared memory segment "
            f"{name} (size {SIZE}), error: {error.strerror} ({error.errno})",
            file=sys.stderr,
        )
        raise RuntimeError(
            "NCCL error in: ProcessGroupNCCL.cpp:1275, unhandled system error (run with NCCL_DEBUG=INFO "
            "for details), NCCL version 2.21.5\nncclSystemError: System call (e.g. socket, malloc) or "
            "external library call failed or device error."
        ) from None
    time.sleep(0.5)
