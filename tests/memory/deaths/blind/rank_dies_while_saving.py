"""A launcher reports `exitcode: -9` of a rank that doubled its memory to save (Open-Sora-Plan#512)."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# cause = ["growth"]
# victim = "child"
# limit_mb = 230
# ///

import subprocess
import sys
import time

RANK = """
import sys, time
def block(): return bytes(1 << 20).replace(b"\\0", b"w")
weights = [block() for _ in range(50)]
time.sleep(1.5)
if sys.argv[1] == "0":
    copy = []
    for part in range(200):
        copy.append(block())
        time.sleep(0.012)
time.sleep(20)
"""
ranks = [subprocess.Popen([sys.executable, "-c", RANK, str(n)]) for n in range(2)]
while all(rank.poll() is None for rank in ranks):
    time.sleep(0.1)
for n, rank in enumerate(ranks):
    if rank.poll() is None:
        print(f"[WARNING] Sending process {rank.pid} closing signal SIGTERM", file=sys.stderr)
        rank.terminate()
    else:
        print(
            f"[ERROR] failed (exitcode: {rank.returncode}) local_rank: {n} (pid: {rank.pid}) of binary: "
            f"{sys.executable}",
            file=sys.stderr,
        )
sys.exit(1)
