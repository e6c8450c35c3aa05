"""The run ends; a child that it did not wait for lives on for a moment."""

# /// case
# kind = "healthy"
# limit_mb = 150
# ///

import subprocess
import sys
import time

subprocess.Popen([sys.executable, "-c", "import time; time.sleep(2)"], start_new_session=True)
time.sleep(1.5)
