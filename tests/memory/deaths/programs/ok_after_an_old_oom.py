"""An earlier command of the same job was killed for memory: the counter stands at 1 from the start."""

# /// case
# kind = "healthy"
# limit_mb = 120
# before = "job"
# ///

import sys

from kit import grow

grow(300 if sys.argv[1:] == ["before"] else 40, seconds=1.5)
