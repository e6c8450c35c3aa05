"""A spike to nine tenths of the limit, and afterwards an error of shapes."""

# /// case
# kind = "death"
# verdict = ["failed"]
# limit_mb = 200
# ///

import time

import numpy
from kit import grow

held = grow(140, seconds=2)
time.sleep(0.3)
del held
time.sleep(0.5)
numpy.ones((4, 3)) @ numpy.ones((4, 3))
