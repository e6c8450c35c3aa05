"""A tool runs in the folder of a training run whose fifth attempt had failed, and does well."""

# /// case
# kind = "healthy"
# limit_mb = 120
# before = "the training run"
# near_limit = false
# ///

import json
import sys
import time

from kit import RUN, grow

if sys.argv[1:] == ["before"]:
    failed = {"state": "failed", "attempt": 5, "heartbeat_s": time.time(), "reason": "MemoryError: 8 GiB"}
    (RUN / "status.json").write_text(json.dumps(failed))
else:
    held = grow(40, seconds=2)
