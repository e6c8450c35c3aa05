"""mosaicml-streaming: an MDS of samples of seq_len + 1 tokens, local, shuffled, with torch's DataLoader."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from peer import Job, forever, ids_of, main


def _streaming() -> types.ModuleType:
    """The package, without its datasets of pictures and videos, which want torchvision."""
    for name in ("streaming.vision", "streaming.multimodal"):
        sys.modules.setdefault(name, types.ModuleType(name))
    import streaming

    return streaming


def prepare(tokens: Path, folder: Path, seq_len: int) -> None:
    ids, columns = ids_of(tokens), {"tokens": f"ndarray:uint16:{seq_len + 1}"}
    with _streaming().MDSWriter(out=str(folder / "data"), columns=columns) as out:
        for start in range(0, len(ids) - seq_len, seq_len):
            out.write({"tokens": np.array(ids[start : start + seq_len + 1])})


def batches(folder: Path, job: Job) -> Iterator:
    import torch
    from torch.utils.data import DataLoader

    streaming = _streaming()
    streaming.base.util.clean_stale_shared_memory()
    dataset = streaming.StreamingDataset(local=str(folder / "data"), shuffle=True, batch_size=job.batch_size)
    loader = DataLoader(dataset, job.batch_size, num_workers=job.workers, drop_last=True)
    for batch in forever(lambda: iter(loader)):
        rows = batch["tokens"].to(torch.int64)
        yield rows[:, :-1], rows[:, 1:]


if __name__ == "__main__":
    main(prepare, batches)
