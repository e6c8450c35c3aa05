"""A store forks children that write it out, while it changes itself: copies come and go."""

# /// case
# kind = "healthy"
# limit_mb = 200
# ///

import time

from kit import FOLDER, MB, PAGE, forked, wait_for

store = bytearray(b"x") * (70 * MB)


def save() -> None:
    (FOLDER / "dump").write_bytes(store)
    time.sleep(0.3)


for turn in range(8):
    pid = forked(save)
    for at in range(0, 40 * MB, PAGE):
        store[at] = turn
    wait_for(pid)
