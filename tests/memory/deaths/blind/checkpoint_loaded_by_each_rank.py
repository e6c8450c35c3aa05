"""Four ranks each load the whole checkpoint to the CPU (accelerate#1210, vissl#470)."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# cause = ["workers", "growth", "whole_file_load"]
# victim = "child"
# limit_mb = 260
# ///

import subprocess
import sys
import time

from kit import written_file

RANK = """
import sys, time
state = {}
with open(sys.argv[1], "rb") as file:
    for name in range(35):
        state[name] = file.read(2 << 20)
        time.sleep(0.05)
time.sleep(20)
"""
path = written_file(70, "optimizer.pt")
ranks = []
for _ in range(4):
    ranks.append(subprocess.Popen([sys.executable, "-c", RANK, str(path)]))
    time.sleep(0.2)
codes = [rank.poll() for rank in ranks]
while all(code is None for code in codes):
    time.sleep(0.1)
    codes = [rank.poll() for rank in ranks]
for rank in ranks:
    rank.terminate()
sys.exit(f"ranks ended with {codes}")
