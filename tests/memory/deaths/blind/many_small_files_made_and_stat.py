"""Tens of thousands of small files are written and looked at: the kernel caches their names."""

# /// case
# kind = "healthy"
# cause = ["none", "cache"]
# limit_mb = 80
# ///

import contextlib
import time

from kit import FOLDER

folder = FOLDER / "shards"
folder.mkdir()
for n in range(12_000):
    (folder / f"sample_{n:06d}.txt").write_text("x" * 200)
for n in range(200_000):
    with contextlib.suppress(FileNotFoundError):
        (folder / f"absent_{n:06d}.txt").stat()
time.sleep(1)
