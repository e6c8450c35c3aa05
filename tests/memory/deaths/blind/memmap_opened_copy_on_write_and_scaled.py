"""A table of features is mapped with mode "c" and scaled in place: its pages become private."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# cause = ["private_writes"]
# victim = "main"
# limit_mb = 160
# ///

import numpy as np
from kit import MB, as_a_run, over, token_file

from memory import stage

path = token_file(320, "features.npy")
rows = 4 * MB // 4
with as_a_run():
    with stage("open_features"):
        features = np.memmap(path, dtype=np.float32, mode="c")

    def scale(block: int) -> None:
        with stage("scale", step=block):
            features[block * rows : (block + 1) * rows] *= 0.125

    over(6.0, 80, scale)
