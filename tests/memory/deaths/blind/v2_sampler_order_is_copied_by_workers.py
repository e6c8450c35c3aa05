"""Forked workers walk through a list of positions, whose reference counts they write: each copies it."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# cause = ["copy_on_write"]
# limit_mb = 180
# needs = ["v2"]
# ///

import os

from kit import forked, over

order = list(range(1000, 1_401_000))


def load() -> None:
    part = len(order) // 40
    held: list[int] = []

    def walk(number: int) -> None:
        held.append(max(order[number * part : (number + 1) * part]))

    over(6.0, 40, walk)


workers = [forked(load) for _ in range(5)]
for _ in workers:
    pid, status = os.wait()
    if status:
        raise RuntimeError(f"worker {pid} died: {os.waitstatus_to_exitcode(status)}")
