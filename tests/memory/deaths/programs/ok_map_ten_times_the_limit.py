"""A file of ten times the limit is mapped and read to its end: RSS far above what the run needs."""

# /// case
# kind = "healthy"
# limit_mb = 80
# ///

import mmap

from kit import MB, over, token_file, touch_all

with open(token_file(800), "rb") as file:
    tokens = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
over(2.5, 50, lambda at: touch_all(tokens, begin=at * 16 * MB, end=(at + 1) * 16 * MB))
