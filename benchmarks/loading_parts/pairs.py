"""Ours against the floor in one process: the same windows, in the same order and state of their pages.

python PAIRS.py TOKENS.npy SEQ_LEN BATCH ROUNDS SECONDS      # prints JSON
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.environment import summary

CASES = (("mmap", "mapped"), ("mmap", "cached"), ("mmap", "cold"), ("pread", "cached"), ("pread", "cold"))
"""Reader, state of the pages."""
_COLD_BATCHES = 400


def measure(path: Path, seq_len: int, batch_size: int, rounds: int, seconds: float) -> list[dict[str, Any]]:
    """A row for each case. seconds: of a round, about."""
    import torch

    from data_loading import StreamingDataset
    from data_loading.commands.against_floor import AgainstFloor

    torch.set_num_threads(1)
    rows = []
    for reader, state in CASES:
        against = AgainstFloor(StreamingDataset(path, seq_len=seq_len, reader=reader), batch_size)
        batches = _COLD_BATCHES if state == "cold" else against.batches_in(seconds)
        count = 1 if state == "cold" else rounds
        pairs = [against.round(state, batches, ours_first=number % 2 == 0) for number in range(count)]
        useful = against.batch_tokens * against.token_bytes
        rows.append(
            {
                "seq_len": seq_len,
                "batch_size": batch_size,
                "reader": reader,
                "pages": state,
                "batches": pairs[0].batches,
                "ours_us": summary([pair.ours_s / pair.batches * 1e6 for pair in pairs]),
                "floor_us": summary([(pair.floor_s or 0) / pair.batches * 1e6 for pair in pairs]),
                "share_of_floor": summary([pair.share or 0 for pair in pairs]),
                "share_of_floor_by_cpu": summary([pair.share_by_cpu or 0 for pair in pairs]),
                "ours_read_over_useful": _ratio(pairs[0].ours_read_bytes, pairs[0].batches * useful),
                "floor_read_over_useful": _ratio(pairs[0].floor_read_bytes, pairs[0].batches * useful),
            }
        )
    return rows


def _ratio(read: int | None, useful: int) -> float:
    return round((read or 0) / useful, 2)


if __name__ == "__main__":
    tokens, seq_len, batch_size, rounds, seconds = sys.argv[1:]
    print(json.dumps(measure(Path(tokens), int(seq_len), int(batch_size), int(rounds), float(seconds))))
