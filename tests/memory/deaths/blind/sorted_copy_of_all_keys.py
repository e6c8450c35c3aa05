"""All n-grams are counted, then sorted into a list of tuples."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# cause = ["growth"]
# victim = "main"
# limit_mb = 160
# ///

import time
from collections import Counter

counts: Counter[str] = Counter()
for part in range(30):
    counts.update(f"gram {n}" for n in range(part * 25_000, (part + 1) * 25_000))
    time.sleep(0.02)
time.sleep(0.5)
rows = []
for gram, number in sorted(counts.items()):
    rows.append((gram, number, number / len(counts), gram.encode()))
time.sleep(1)
