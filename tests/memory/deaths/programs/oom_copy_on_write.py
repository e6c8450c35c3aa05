"""Forked workers read a list of Python objects: each count of a reference copies a page."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# cause = ["copy_on_write"]
# limit_mb = 230
# ///

from kit import forked, over, wait_for

samples = [float(number) for number in range(1_600_000)]  # about 52 MB


def read_all() -> None:
    step = len(samples) // 100
    over(4, 100, lambda at: sum(1 for sample in samples[at * step : (at + 1) * step] if sample < 0))


for worker in [forked(read_all) for _ in range(6)]:
    if status := wait_for(worker):
        raise RuntimeError(f"worker (pid {worker}) is killed by signal {-status}")
