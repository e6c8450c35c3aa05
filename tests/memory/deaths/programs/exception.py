"""A plain bug."""

# /// case
# kind = "death"
# verdict = ["failed"]
# limit_mb = 300
# ///

import time

time.sleep(1.2)
raise ValueError("shape mismatch: (32, 128) against (32, 129)")
