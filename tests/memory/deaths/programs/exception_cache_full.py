"""A plain bug, while page cache fills the limit and the limit was hit thousands of times."""

# /// case
# kind = "death"
# verdict = ["failed"]
# limit_mb = 100
# ///

import time

from kit import written_file

written_file(400)
time.sleep(1.2)
raise KeyError("dataset.path")
