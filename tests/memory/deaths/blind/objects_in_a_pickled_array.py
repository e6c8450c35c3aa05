"""An array of Python objects is four times as large in memory as its file (numpy#17461)."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# cause = ["whole_file_load", "growth"]
# victim = "main"
# limit_mb = 190
# ///

import pickle
import subprocess
import sys
import time

from kit import FOLDER

path = FOLDER / "rows.pkl"
MAKE = """
import pickle, sys
with open(sys.argv[1], "wb") as file:
    for part in range(12):
        pickle.dump([(n, float(n), str(n)) for n in range(part * 100_000, (part + 1) * 100_000)], file)
"""
subprocess.run([sys.executable, "-c", MAKE, str(path)], check=True)
time.sleep(0.5)
rows = []
with open(path, "rb") as file:
    for _ in range(12):
        rows.append(pickle.load(file))
        time.sleep(0.1)
