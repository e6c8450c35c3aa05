"""Page cache of written files keeps usage at the limit for seconds."""

# /// case
# kind = "healthy"
# limit_mb = 80
# ///

import time

from kit import written_file

written_file(200)
time.sleep(2)
