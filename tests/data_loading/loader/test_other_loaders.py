"""StreamingDataset under loaders of others: torch's, torchdata's, Lightning's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, DistributedSampler, RandomSampler, SequentialSampler

from data_loading import StreamingDataset
from tests.golden_text import Golden

SEQ_LEN, BATCH = 16, 8


@pytest.fixture
def dataset(tmp_path: Path) -> StreamingDataset:
    """Each window begins with its own number."""
    numbers = np.arange(121 * SEQ_LEN + 1) // SEQ_LEN
    np.save(tmp_path / "x.npy", numbers.astype("<u2"))
    return StreamingDataset(tmp_path / "x.npy", seq_len=SEQ_LEN, val=SEQ_LEN * 21)


def first_ids(batches: Any) -> list[int]:
    return [int(window) for batch in batches for window in batch["input_ids"][:, 0]]


@pytest.mark.parametrize(
    ("sampler", "workers"), [("shuffle", 2), ("sequential", 0), ("random", 0), ("distributed", 2)]
)
def test_torch(dataset: StreamingDataset, sampler: str, workers: int) -> None:
    samplers: dict[str, Any] = {
        "sequential": SequentialSampler(dataset),
        "random": RandomSampler(dataset, generator=torch.Generator().manual_seed(0)),
    }
    how: list[dict[str, Any]] = [{"sampler": samplers.get(sampler)}]
    if sampler == "shuffle":
        how = [{"shuffle": True}]
    if sampler == "distributed":
        how = [{"sampler": DistributedSampler(dataset, 2, rank)} for rank in range(2)]
    found: list[int] = []
    for options in how:
        loader = DataLoader(
            dataset, BATCH, num_workers=workers, collate_fn=StreamingDataset.collate, **options
        )
        for batch in loader:
            assert batch["input_ids"].dtype == batch["labels"].dtype == torch.int64
            assert batch["input_ids"].shape[1:] == batch["labels"].shape[1:] == (SEQ_LEN,)
            found += first_ids([batch])
    assert sorted(found) == list(range(len(dataset)))


def test_torch_with_its_own_collate_function_is_told(dataset: StreamingDataset, golden: Golden) -> None:
    with golden.refused("collate-missing"):
        next(iter(DataLoader(dataset, BATCH)))
    with pytest.raises(KeyError, match="nothing"):
        dataset.__getitems__([0])["nothing"]


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_workers_that_persist_know_of_the_epoch(dataset: StreamingDataset, context: str) -> None:
    loader = DataLoader(
        dataset,
        BATCH,
        num_workers=1,
        persistent_workers=True,
        multiprocessing_context=context,
        collate_fn=StreamingDataset.collate,
    )
    for epoch in (0, 1, 5):
        dataset.set_epoch(epoch)
        assert first_ids(loader) == dataset.window_at(range(len(dataset)), epoch).tolist()


def test_torchdata(dataset: StreamingDataset) -> None:
    stateful = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader

    def loader() -> Any:
        return stateful(dataset, BATCH, num_workers=2, collate_fn=StreamingDataset.collate)

    expected = first_ids(loader())
    first = loader()
    batches = iter(first)
    read = first_ids([next(batches) for _ in range(5)])
    other = loader()
    other.load_state_dict(first.state_dict())
    assert read + first_ids(other) == expected


def test_lightning(dataset: StreamingDataset, tmp_path: Path) -> None:
    """It trains on our Loader, and keeps its place in its checkpoints."""
    lightning = pytest.importorskip("pytorch_lightning")

    class Counts(lightning.LightningModule):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(()))
            self.seen: list[int] = []

        def training_step(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
            self.seen += first_ids([batch])
            return self.weight * batch["labels"].float().mean()

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.0)

    def trained(steps: int, checkpoint: Path | None) -> Counts:
        model = Counts()
        trainer = lightning.Trainer(
            max_steps=steps,
            accelerator="cpu",
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=tmp_path,
            enable_checkpointing=False,
        )
        trainer.fit(model, dataset.loader(BATCH), ckpt_path=checkpoint, weights_only=False)
        trainer.save_checkpoint(tmp_path / f"{steps}.ckpt")
        return model

    expected = first_ids(dataset.loader(BATCH))
    begun = trained(5, None)
    assert begun.seen == expected[: 5 * BATCH]
    rest = trained(9, tmp_path / "5.ckpt")
    assert rest.seen == expected[5 * BATCH : 9 * BATCH]
