"""Batches refer to themselves, so that only the collector of cycles frees them: memory goes up and down."""

# /// case
# kind = "healthy"
# limit_mb = 150
# ///

import gc

from kit import MB, over


class Batch:
    def __init__(self) -> None:
        self.tokens = bytearray(b"t") * MB
        self.itself = self


def step(number: int) -> None:
    Batch()
    if number % 80 == 79:
        gc.collect()


gc.disable()
over(6, 400, step)
