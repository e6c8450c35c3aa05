"""The program ends itself with status 3."""

# /// case
# kind = "death"
# verdict = ["failed"]
# limit_mb = 300
# ///

import sys
import time

time.sleep(1.2)
sys.exit(3)
