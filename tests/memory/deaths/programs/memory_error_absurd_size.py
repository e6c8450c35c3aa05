"""One array of a petabyte: a wrong shape, not a lack of memory."""

# /// case
# kind = "death"
# verdict = ["memory_error"]
# limit_mb = 300
# ///

import time

time.sleep(1.2)
held = bytearray(1 << 50)
