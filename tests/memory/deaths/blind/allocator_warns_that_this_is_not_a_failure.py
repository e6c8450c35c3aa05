"""The allocator of a device runs short and uses a slower path; it says itself that this is not a failure."""

# /// case
# kind = "healthy"
# limit_mb = 150
# ///

import sys

from kit import grow, over

WARNING = (
    "2024-06-11 09:14:5{}.481920: W external/local_tsl/tsl/framework/bfc_allocator.cc:296] "
    "Allocator (GPU_0_bfc) ran out of memory trying to allocate 4.13GiB with freed_by_count=0. "
    "The caller indicates that this is not a failure, but this may mean that there could be "
    "performance gains if more memory were available."
)
weights = grow(70, seconds=1.0)
over(3.0, 6, lambda number: print(WARNING.format(number), file=sys.stderr, flush=True))
print("epoch 1: loss 2.31")
