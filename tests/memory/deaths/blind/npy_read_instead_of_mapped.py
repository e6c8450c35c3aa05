"""np.load without mmap_mode: all features come into memory at once, and then once more as float64."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# cause = ["whole_file_load"]
# victim = "main"
# limit_mb = 210
# ///

import time

import numpy as np
from kit import FOLDER

PATH = FOLDER / "features.npy"
ROWS, COLUMNS = 60_000, 1024  # of float16: 117 MB

with open(PATH, "wb") as file:
    np.lib.format.write_array_header_1_0(
        file, {"descr": "<f2", "fortran_order": False, "shape": (ROWS, COLUMNS)}
    )
    file.truncate(file.tell() + ROWS * COLUMNS * 2)

looked_at = np.load(PATH, mmap_mode="r")
print("mean of the first rows", float(looked_at[:100].mean()), flush=True)
time.sleep(1)
features = np.load(PATH)
print("loaded", features.shape, flush=True)
time.sleep(0.8)
features = features.astype(np.float64)
print("mean", float(features.mean()))
