"""The first attempt, by its own count the seventh, did well; the second, which counts as 1, did not."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# cause = ["growth", "leak"]
# victim = "main"
# limit_mb = 140
# before = "the one that did well"
# says = ["stage evaluate"]
# ///

import json
import sys
import time

from kit import RUN, grow

from memory import record_to, stage

FIRST = sys.argv[1:] == ["before"]

with record_to(RUN / "memory.jsonl", attempt=7 if FIRST else 1):
    with stage("load"):
        held = grow(30, seconds=0.5)
    with stage("train" if FIRST else "evaluate"):
        if not FIRST:
            grow(300, seconds=3)
        time.sleep(0.5)
if FIRST:
    ended = {"state": "done", "attempt": 7, "heartbeat_s": time.time(), "reason": None}
    (RUN / "status.json").write_text(json.dumps(ended))
