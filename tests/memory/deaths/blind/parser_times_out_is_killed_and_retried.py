"""A parser hangs on one document; its parent kills it with SIGKILL, logs that, and starts it again."""

# /// case
# kind = "healthy"
# limit_mb = 150
# ///

import subprocess
import sys
import time

from kit import grow

if sys.argv[1:]:
    held = grow(20, seconds=0.3)
    time.sleep(60 if sys.argv[1] == "0" else 0.5)
    sys.exit(0)
corpus = grow(50, seconds=1)
for attempt in range(2):
    parser = subprocess.Popen([sys.executable, __file__, str(attempt)])
    try:
        parser.wait(timeout=4)
        break
    except subprocess.TimeoutExpired as error:
        print(f"ERROR parser killed (signal 9): {error}; will retry", file=sys.stderr)
        parser.kill()
        parser.wait()
sys.exit(parser.returncode)
