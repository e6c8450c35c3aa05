"""Four workers of a Pool look up records in a list of dicts of the main process (tier4/autoware-ml#78)."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# cause = ["copy_on_write"]
# limit_mb = 330
# ///

import multiprocessing
import random
import time

ANNOTATIONS: list[dict[str, object]] = []


def read(seed: int) -> int:
    chosen, total = random.Random(seed), 0
    until = time.monotonic() + 4
    while time.monotonic() < until:
        for _ in range(2000):
            record = ANNOTATIONS[chosen.randrange(len(ANNOTATIONS))]
            total += len(record) + len(str(record["image"]))
        time.sleep(0.02)
    return total


if __name__ == "__main__":
    ANNOTATIONS += [{"image": f"{n:09d}.jpg", "box": (n, n + 1), "label": n % 80} for n in range(350_000)]
    time.sleep(0.5)
    with multiprocessing.get_context("fork").Pool(4) as pool:
        pool.map_async(read, range(4)).get(30)
