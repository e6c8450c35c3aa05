"""A solver that hangs is killed by its own `timeout`; it looks like a kill by the kernel."""

# /// case
# kind = "death"
# verdict = ["failed", "killed_from_outside", "timeout"]
# limit_mb = 200
# ///

import subprocess
import sys

from kit import grow, token_file

held = grow(90, seconds=1.5)
corpus = token_file(150)
with open(corpus, "rb") as file:
    while file.read(1 << 20):
        pass
subprocess.run(
    ["timeout", "--signal=KILL", "2", sys.executable, "-c", "import time; time.sleep(60)"],
    check=True,
)
