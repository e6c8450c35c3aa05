"""Five times the limit is written through a shared map of a file: dirty pages, which go to the disk."""

# /// case
# kind = "healthy"
# limit_mb = 80
# near_limit = false
# ///

import mmap
import os

from kit import FOLDER, MB

descriptor = os.open(FOLDER / "out.bin", os.O_RDWR | os.O_CREAT)
os.ftruncate(descriptor, 400 * MB)
held = mmap.mmap(descriptor, 400 * MB)
for number in range(0, 400, 4):
    held[number * MB : (number + 4) * MB] = b"y" * (4 * MB)
