"""A suite of tests on a cluster provokes every error that it must survive, prints them, and passes."""

# /// case
# kind = "healthy"
# limit_mb = 150
# ///

import sys

from kit import grow, over

LINES = (
    "tests/test_limits.py::test_batch_is_halved XFAIL",
    "E   torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total "
    "capacity of 79.10 GiB of which 3.06 GiB is free.",
    "tests/test_limits.py::test_array_is_refused XFAIL",
    "E   numpy._core._exceptions._ArrayMemoryError: Unable to allocate 7.28 TiB for an array with shape "
    "(1000000, 1000000) and data type float64",
    "tests/test_loader.py::test_bus_error_is_reported PASSED",
    "E   RuntimeError: DataLoader worker (pid 4121) is killed by signal: Bus error. It is possible that "
    "dataloader's workers are out of shared memory. Please try to raise your shared memory limit.",
    "tests/test_launch.py::test_rank_is_lost PASSED",
    "E   Signal 9 (SIGKILL) received by PID 4177",
    "======= 2 passed, 2 xfailed in 3.41s =======",
)
fixtures = grow(50, seconds=1.0)
over(3.0, len(LINES), lambda number: print(LINES[number], file=sys.stderr, flush=True))
