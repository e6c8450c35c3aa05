"""Hundreds of children come and go."""

# /// case
# kind = "healthy"
# limit_mb = 150
# ///

from kit import MB, forked, over, wait_for

over(3, 300, lambda _: wait_for(forked(lambda: bytearray(b"x") * (5 * MB))))
