"""Six workers that each import and hold what the main process does: no one of them is large."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# cause = ["workers"]
# limit_mb = 200
# ///

import subprocess
import sys
import time

WORKER = "import time; held = bytearray(b'x') * (36 << 20); time.sleep(60)"
workers = []
for _ in range(6):
    workers.append(subprocess.Popen([sys.executable, "-c", WORKER]))
    time.sleep(0.6)
while all(worker.poll() is None for worker in workers):
    time.sleep(0.1)
dead = [worker for worker in workers if worker.poll() is not None]
for worker in workers:
    worker.kill()
raise RuntimeError(f"worker (pid {dead[0].pid}) exited unexpectedly: {dead[0].returncode}")
