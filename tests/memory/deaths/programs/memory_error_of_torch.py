"""torch's own words for a CPU allocation that malloc refused."""

# /// case
# kind = "death"
# verdict = ["memory_error"]
# limit_mb = 300
# ///

import time

time.sleep(1.2)
raise RuntimeError(
    "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: "
    "you tried to allocate 105553116266496 bytes. Error code 12 (Cannot allocate memory)"
)
