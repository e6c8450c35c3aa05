"""A rank ends with status 3, the launcher starts it again, and all ends well."""

# /// case
# kind = "healthy"
# cause = ["none"]
# limit_mb = 180
# ///

import subprocess
import sys

RANK = """
import sys, time
held = [bytes(1 << 20).replace(b"\\0", b"w") for _ in range(70)]
time.sleep(1)
if sys.argv[1] == "first":
    print("RuntimeError: CUDA error: an illegal memory access was encountered", file=sys.stderr)
    sys.exit(3)
time.sleep(1)
"""
for name in ("first", "second"):
    code = subprocess.run([sys.executable, "-c", RANK, name]).returncode
    print(f"rank ended with {code}", flush=True)
assert code == 0
