"""StreamingDataset under loaders of others: torch's, torchdata's, Lightning's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, DistributedSampler, RandomSampler, SequentialSampler

from data_loading import StreamingDataset

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
        loader = DataLoader(dataset, BATCH, num_workers=workers, **options)
        for batch in loader:
            assert batch["input_ids"].dtype == batch["labels"].dtype == torch.int64
            assert batch["input_ids"].shape[1:] == batch["labels"].shape[1:] == (SEQ_LEN,)
            found += first_ids([batch])
    assert sorted(found) == list(range(len(dataset)))


@pytest.mark.parametrize("how", [{}, {"num_workers": 1, "multiprocessing_context": "spawn"}])
def test_default_collate_function_keeps_batches(dataset: StreamingDataset, how: dict[str, Any]) -> None:
    expected = dataset.__getitems__(range(BATCH))
    for collate in (None, StreamingDataset.collate):
        batch = next(iter(DataLoader(dataset, BATCH, collate_fn=collate, **how)))
        assert type(batch) is dict
        assert batch.keys() == expected.keys()
        assert all(torch.equal(batch[name], expected[name]) for name in expected)
    with pytest.raises(KeyError, match="nothing"):
        expected["nothing"]


def test_samples_one_by_one_are_joined(dataset: StreamingDataset) -> None:
    samples = [dataset[i] for i in range(3)]
    joined = torch.utils.data.default_collate(samples)
    assert torch.equal(joined["input_ids"], dataset.__getitems__(range(3))["input_ids"])


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_workers_that_persist_know_of_the_epoch(dataset: StreamingDataset, context: str) -> None:
    loader = DataLoader(
        dataset,
        BATCH,
        num_workers=1,
        persistent_workers=True,
        multiprocessing_context=context,
    )
    for epoch in (0, 1, 5):
        dataset.set_epoch(epoch)
        assert first_ids(loader) == dataset.window_at(range(len(dataset)), epoch).tolist()


def test_torchdata(dataset: StreamingDataset) -> None:
    stateful = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader

    def loader() -> Any:
        return stateful(dataset, BATCH, num_workers=2)

    expected = first_ids(loader())
    first = loader()
    batches = iter(first)
    read = first_ids([next(batches) for _ in range(5)])
    other = loader()
    other.load_state_dict(first.state_dict())
    assert read + first_ids(other) == expected


def lightning_model() -> Any:
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

    return Counts()


def trainer(folder: Path, steps: int) -> Any:
    return pytest.importorskip("pytorch_lightning").Trainer(
        max_steps=steps,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
        enable_checkpointing=False,
    )


def test_lightning_resumes_our_loader(dataset: StreamingDataset, tmp_path: Path) -> None:
    """It keeps the place of the loader in its checkpoints."""

    def trained(steps: int, checkpoint: Path | None) -> Any:
        model, training = lightning_model(), trainer(tmp_path, steps)
        training.fit(model, dataset.loader(BATCH), ckpt_path=checkpoint, weights_only=False)
        training.save_checkpoint(tmp_path / f"{steps}.ckpt")
        return model

    expected = first_ids(dataset.loader(BATCH))
    begun = trained(5, None)
    assert begun.seen == expected[: 5 * BATCH]
    rest = trained(9, tmp_path / "5.ckpt")
    assert rest.seen == expected[5 * BATCH : 9 * BATCH]


def test_lightning_reads_a_dataloader(dataset: StreamingDataset, tmp_path: Path) -> None:
    model = lightning_model()
    trainer(tmp_path, 5).fit(model, DataLoader(dataset, BATCH))
    assert model.seen == first_ids(DataLoader(dataset, BATCH))[: 5 * BATCH]


@pytest.mark.parametrize("processes", [1, 2])
def test_accelerate_divides_a_dataloader(dataset: StreamingDataset, processes: int) -> None:
    """Each window is read by one process, or again to fill the last batch."""
    data_loader = pytest.importorskip("accelerate.data_loader")
    found = [
        first_ids(
            data_loader.prepare_data_loader(
                DataLoader(dataset, BATCH), num_processes=processes, process_index=rank, put_on_device=False
            )
        )
        for rank in range(processes)
    ]
    assert {window for part in found for window in part} == set(range(len(dataset)))
    assert sum(map(len, found)) - len(dataset) < BATCH * processes
