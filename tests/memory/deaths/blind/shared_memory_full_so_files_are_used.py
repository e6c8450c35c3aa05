"""The store does not fit into /dev/shm, says so, and goes to files as it is made to do."""

# /// case
# kind = "healthy"
# limit_mb = 150
# shm_mb = 12
# ///

import os
import sys

from kit import FOLDER, MB, over

place = "/dev/shm"


def put(number: int) -> None:
    global place
    for _ in range(2):
        try:
            with open(f"{place}/object_{number}", "wb", buffering=0) as file:
                os.posix_fallocate(file.fileno(), 0, MB)
            return
        except OSError as error:
            print(
                f"WARNING plasma: {error.strerror} in {place} (OSError: [Errno {error.errno}]): /dev/shm has "
                "no room left, falling back to disk, this will hurt performance",
                file=sys.stderr,
            )
            place = str(FOLDER)


over(4, 40, put)
