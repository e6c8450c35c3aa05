"""A helper process fails with a traceback, is started again, and the run is done."""

# /// case
# kind = "healthy"
# limit_mb = 150
# ///

import subprocess
import sys
import time

subprocess.run([sys.executable, "-c", "raise MemoryError('first try')"])
time.sleep(1.5)
subprocess.run([sys.executable, "-c", "print('second try')"], check=True)
