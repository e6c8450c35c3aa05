"""The first steps take more and more (buffers, an allocator's pools), later ones nothing."""

# /// case
# kind = "healthy"
# limit_mb = 150
# ///

import time

from kit import MB, as_a_run

from memory import stage

held = []
with as_a_run():
    for step in range(120):
        with stage("train", step=step):
            if step < 60:
                held.append(bytearray(b"x") * MB)
            time.sleep(0.02)
