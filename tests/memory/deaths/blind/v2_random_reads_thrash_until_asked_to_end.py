"""Weights leave the page cache too little room for the data, which is read from disk again and again."""

# /// case
# kind = "death"
# verdict = ["terminated"]
# cause = ["thrash", "cache"]
# limit_mb = 110
# beside = "outside"
# needs = ["v2"]
# ///

import mmap
import os
import random
import signal
import sys
import time

from kit import BESIDE, FOLDER, PAGE, grow, written_file

if BESIDE:
    while not (FOLDER / "pid").exists():
        time.sleep(0.1)
    time.sleep(12)
    os.kill(int((FOLDER / "pid").read_text()), signal.SIGTERM)
    time.sleep(60)
    sys.exit()

path = written_file(160)
weights = grow(60, seconds=1.0)
with open(path, "rb") as file:
    data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
(FOLDER / "pid.part").write_text(str(os.getpid()))
(FOLDER / "pid.part").rename(FOLDER / "pid")
chance = random.Random(1)
total = 0
while True:
    total += data[chance.randrange(len(data) // PAGE) * PAGE]
