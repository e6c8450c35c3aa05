"""Workers leak with each task, and the pool replaces them after eight: a sawtooth that does no harm."""

# /// case
# kind = "healthy"
# limit_mb = 160
# ///

import multiprocessing
import time

from kit import MB

leaked: list[bytearray] = []


def extract(number: int) -> int:
    leaked.append(bytearray(b"x") * (6 * MB))
    time.sleep(0.08)
    return number


if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool(2, maxtasksperchild=8) as pool:
        assert sum(pool.imap_unordered(extract, range(96))) == 4560
        pool.close()
        pool.join()
