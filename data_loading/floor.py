"""The least loss that there can be: known where tokens are drawn from a law that is known."""

from __future__ import annotations

import numpy as np

from data_loading.data import Data
from data_loading.windows import Windows


def floor_loss(
    data: Data, *, eval_tokens: int, seq_len: int, shift: int = 1, masked: bool = False
) -> float | None:
    """Nats a label that no model's expected val loss is below; None where it is not known, as of all text.

    Of the very windows that an evaluation reads: the first ceil(eval_tokens / seq_len) of val, in order. What
    is measured on so many labels scatters about its expectation, and so may lie a little below. masked: as
    with `documents=masked`.
    """
    windows = Windows(data.val_ranges, seq_len, shift=shift)
    count = min(len(windows), -(-eval_tokens // seq_len))
    return data.val.floor_loss(windows.starts(np.arange(count)), seq_len, shift, masked=masked)
