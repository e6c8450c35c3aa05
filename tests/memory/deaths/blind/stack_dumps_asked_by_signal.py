"""An operator asks for the stacks of a run with SIGUSR1, again and again; it prints them and works on."""

# /// case
# kind = "healthy"
# limit_mb = 150
# beside = "outside"
# ///

import faulthandler
import os
import signal
import sys
import threading
import time

from kit import BESIDE, FOLDER, grow

if BESIDE:
    while not (FOLDER / "pid").exists():
        time.sleep(0.05)
    for _ in range(4):
        time.sleep(0.5)
        os.kill(int((FOLDER / "pid").read_text()), signal.SIGUSR1)
    (FOLDER / "asked").touch()
    time.sleep(30)
    sys.exit()

faulthandler.register(signal.SIGUSR1, all_threads=True)
waiting = threading.Event()
loader = threading.Thread(target=waiting.wait)
loader.start()
(FOLDER / "pid.part").write_text(str(os.getpid()))
(FOLDER / "pid.part").rename(FOLDER / "pid")
held = grow(90, seconds=3.0)
while not (FOLDER / "asked").exists():
    time.sleep(0.1)
waiting.set()
loader.join()
