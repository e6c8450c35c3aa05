"""templar's SharedShardedDataset, out of a checkout of github.com/tplr-ai/templar that TEMPLAR names.

Its file alone is loaded, with a logger in place of the package around it, which needs a blockchain. As its
trainer does: int64 and labels are made of a whole batch; samples are seq_len tokens, uint32, with an id each.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from peer import Job, blocks, forever, ids_of, main

FILE = "src/tplr/sharded_dataset.py"


def prepare(tokens: Path, folder: Path, seq_len: int) -> None:
    samples = len(ids_of(tokens)) // seq_len
    written = np.lib.format.open_memmap(folder / "train_000000.npy", "w+", np.uint32, (samples * seq_len,))
    done = 0
    for block in blocks(tokens):
        part = block[: len(written) - done]
        written[done : done + len(part)] = part
        done += len(part)
    written.flush()
    np.arange(samples, dtype="<u8").tofile(folder / "sample_ids_000000.bin")


def shared_sharded_dataset(checkout: Path) -> type:
    """The class, as it is there."""
    names = types.SimpleNamespace(Comms=object, Bucket=object)
    package = types.ModuleType("tplr")
    vars(package).update(logger=logging.getLogger("tplr"), comms=names, schemas=names)
    sys.modules["tplr"] = package
    spec = importlib.util.spec_from_file_location("tplr.sharded_dataset", checkout / FILE)
    if spec is None or spec.loader is None:
        raise ImportError(f"{checkout / FILE} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.SharedShardedDataset


def batches(folder: Path, job: Job) -> Iterator:
    import torch
    from torch.utils.data import DataLoader

    os.environ["DATASET_BINS_PATH"] = str(folder)
    dataset = shared_sharded_dataset(Path(os.environ["TEMPLAR"]))(0, job.seq_len, 0, 1)
    loader = DataLoader(dataset, job.batch_size, shuffle=True, num_workers=job.workers, drop_last=True)
    for batch in forever(lambda: iter(loader)):
        inputs = batch.to(dtype=torch.long)
        labels = inputs.clone()
        labels[:, :-1] = inputs[:, 1:]
        yield inputs, labels


if __name__ == "__main__":
    main(prepare, batches)
