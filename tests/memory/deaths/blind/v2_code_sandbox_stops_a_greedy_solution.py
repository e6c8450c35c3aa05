"""Generated programs are run in a cgroup of their own; the kernel kills a greedy one, as is meant."""

# /// case
# kind = "healthy"
# limit_mb = 200
# needs = ["v2"]
# ///

import os
import subprocess
import sys
import time
from pathlib import Path

from kit import MB, grow

own = Path("/proc/self/cgroup").read_text().strip().split("::")[1]
sandbox = Path("/sys/fs/cgroup") / own.lstrip("/") / ".." / "sandbox"
sandbox.mkdir()
(sandbox / "memory.max").write_text(str(30 * MB))
model = grow(60, seconds=1.5)
SOLUTIONS = (
    "print(sum(range(100)))",
    "held = [bytearray(b'x') * (1 << 20) for _ in range(90)]",
    "print(6 * 7)",
)


def enter() -> None:
    (sandbox / "cgroup.procs").write_text(str(os.getpid()))


passed = 0
for number, solution in enumerate(SOLUTIONS):
    done = subprocess.run([sys.executable, "-I", "-S", "-c", solution], preexec_fn=enter)
    print(f"solution {number} ended with {done.returncode}", flush=True)
    passed += done.returncode == 0
    time.sleep(0.5)
sandbox.rmdir()
assert passed == 2
