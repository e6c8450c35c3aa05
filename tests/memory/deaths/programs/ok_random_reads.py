"""Random reads of a file larger than the limit: slow, refaults, but alive and done."""

# /// case
# kind = "healthy"
# limit_mb = 80
# ///

import mmap
import random

from kit import PAGE, over, written_file

with open(written_file(250), "rb") as file:
    tokens = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
over(3, 300, lambda _: tokens[random.randrange(len(tokens) // PAGE) * PAGE])
