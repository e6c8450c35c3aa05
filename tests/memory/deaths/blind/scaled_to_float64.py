"""uint8 images are read, then converted to float64, which takes eight times as much (webCamEmocognizer#3)."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# cause = ["growth", "whole_file_load"]
# victim = "main"
# limit_mb = 220
# ///

import time

import numpy
from kit import written_file

path = written_file(40, "images.u8")
images = numpy.fromfile(path, dtype=numpy.uint8).reshape(-1, 64, 64)
time.sleep(1)
parts = []
for part in numpy.array_split(images, 40):
    parts.append(part.astype("float64") / 255)
    time.sleep(0.05)
scaled = numpy.concatenate(parts)
