"""The floor: `view[starts]` of a strided view and astype(int64), the windows of ours in the order of ours."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from ours import prepare
from peer import TOKENS, Job, ids_of, main

_AHEAD = 500


def batches(folder: Path, job: Job) -> Iterator:
    import torch

    from data_loading.commands.reading_floor import Floor
    from data_loading.order import Permutation
    from data_loading.readers.extents import extents_of

    ids, width = ids_of(folder / TOKENS), job.seq_len + 1
    floor, windows = Floor(extents_of(ids), width), (len(ids) - 1) // job.seq_len
    size = _AHEAD * job.batch_size
    for epoch in itertools.count():
        order = Permutation(windows, 0, epoch)
        for first in range(0, windows, size):
            starts = order(np.arange(first, min(first + size, windows))) * job.seq_len
            for batch in range(0, len(starts) - job.batch_size + 1, job.batch_size):
                rows = torch.from_numpy(floor.read(starts[batch : batch + job.batch_size]))
                yield rows[:, :-1], rows[:, 1:]


if __name__ == "__main__":
    main(prepare, batches)
