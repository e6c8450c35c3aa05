"""The disk of a run is full at the fifth checkpoint: the oldest are removed, and the save is tried again."""

# /// case
# kind = "healthy"
# limit_mb = 160
# run_disk_mb = 36
# ///

import errno
import sys
from pathlib import Path

from kit import MB, RUN, grow, over

folder = RUN / "checkpoints"
folder.mkdir()
saved: list[Path] = []
removed: list[Path] = []
weights = grow(40, seconds=1.0)


def save(step: int) -> None:
    path = folder / f"step-{step:04d}.bin"
    while True:
        try:
            path.write_bytes(b"x" * (5 * MB))
            break
        except OSError as error:
            if error.errno != errno.ENOSPC or not saved:
                raise
            removed.append(saved.pop(0))
            removed[-1].unlink()  # before the line, which goes to the same disk
            print(f"{error}: removed {removed[-1].name}", file=sys.stderr, flush=True)
    saved.append(path)


over(4.0, 12, save)
assert removed
for path in saved:
    path.unlink()
