"""Loaders of tokens that loading.py compares.

python loading_peers.py NAME prepare TOKENS.npy FOLDER SEQ_LEN    # writes the loader's own format of these
tokens python loading_peers.py NAME measure FOLDER JOB                   # JOB: a Job as JSON; prints one
line of JSON
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import logging
import os
import sys
import types
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from benchmarks.loading_measure import Job, measure, tensor

if TYPE_CHECKING:
    import torch

TOKENS = "tokens.npy"
EOT_ID, VOCABULARY = 50_256, 50_257


class Loader:
    """A loader: its files, and batches from them. package: that it comes with, if the project lacks it.

    by_window: its files are cut into windows, and are made for each length.
    """

    package = ""
    by_window = False

    def prepare(self, tokens: Path, folder: Path, seq_len: int) -> None:
        """Write the files of these tokens into an empty folder."""
        os.link(tokens, folder / TOKENS)

    def batches(self, folder: Path, job: Job) -> Iterator[Any]:
        """Inputs and labels, int64 (batch, seq_len), shuffled, without end; or rows of seq_len + 1 tokens."""
        raise NotImplementedError


class Ours(Loader):
    """This project's loader, with the reader and `max_resident_bytes` of the job."""

    def prepare(self, tokens: Path, folder: Path, seq_len: int) -> None:
        from data_loading import open_token_set

        super().prepare(tokens, folder, seq_len)
        open_token_set(folder / TOKENS, VOCABULARY)  # a lone file is read once, to know its largest id

    def batches(self, folder: Path, job: Job) -> Iterator[Any]:
        from data_loading import StreamingDataset, open_token_set

        tokens = open_token_set(folder / TOKENS, VOCABULARY)
        dataset = StreamingDataset(tokens, seq_len=job.seq_len, val=1, **(job.options or {}))
        for batch in dataset.loader(job.batch_size, repeat=True):
            yield batch["input_ids"], batch["labels"]


class Floor(Ours):
    """`view[starts]` of a strided view and astype(int64), the windows of ours in the order of ours."""

    def batches(self, folder: Path, job: Job) -> Iterator[Any]:
        from benchmarks.loading_floor import Floor as Reader
        from data_loading.dataset.permutation import Permutation

        windows = (len(ids_of(folder / TOKENS)) - 1) // job.seq_len
        floor = Reader(folder / TOKENS, job.seq_len + 1)
        size = 500 * job.batch_size
        for epoch in itertools.count():
            order = Permutation(windows, 0, epoch)
            for first in range(0, windows, size):
                starts = order(np.arange(first, min(first + size, windows))) * job.seq_len
                for batch in range(0, len(starts) - job.batch_size + 1, job.batch_size):
                    yield tensor(floor.read(starts[batch : batch + job.batch_size]))


class Windows:
    """Windows of the mapped tokens by index: a dataset of torch, and a source of Grain."""

    def __init__(self, path: Path, seq_len: int) -> None:
        self._ids, self._seq_len = ids_of(path), seq_len

    def __len__(self) -> int:
        return (len(self._ids) - 1) // self._seq_len

    def __getitem__(self, index: int) -> np.ndarray:
        start = index * self._seq_len
        return np.array(self._ids[start : start + self._seq_len + 1])


class Replaced(Loader):
    """The usual dataset of tokens, which ours replaced: a sample a call, put together by default_collate."""

    class Samples(Windows):
        """Pairs of inputs and labels."""

        def __getitem__(self, index: int) -> Any:
            import torch

            window = super().__getitem__(index).astype(np.int64)
            return torch.tensor(window[:-1]), torch.tensor(window[1:])

    def batches(self, folder: Path, job: Job) -> Iterator[Any]:
        return torch_loader(self.Samples(folder / TOKENS, job.seq_len), job, shuffle=True)


class NanoGpt(Loader):
    """nanoGPT's get_batch, written again from what it does (github.com/karpathy/nanoGPT, train.py).

    A raw .bin of uint16, mapped again for every batch (which bounds its memory); starts are drawn with
    replacement; each window is converted and stacked on its own, inputs and labels apart.
    """

    def prepare(self, tokens: Path, folder: Path, seq_len: int) -> None:
        write_raw(tokens, folder / "train.bin")

    def batches(self, folder: Path, job: Job) -> Iterator[Any]:
        import torch

        while True:
            ids = np.memmap(folder / "train.bin", dtype=np.uint16, mode="r")
            starts = torch.randint(len(ids) - job.seq_len, (job.batch_size,))

            def rows(shift: int, ids: np.ndarray = ids, starts: Any = starts) -> torch.Tensor:
                spans = (ids[int(start) + shift : int(start) + shift + job.seq_len] for start in starts)
                return torch.stack([torch.from_numpy(span.astype(np.int64)) for span in spans])

            yield rows(0), rows(1)


class Templar(Loader):
    """templar's SharedShardedDataset, out of a checkout of github.com/tplr-ai/templar that TEMPLAR names.

    Its file alone is loaded, with a logger for the package around it, which needs a blockchain. As in its
    trainer, int64 and labels are made of a whole batch; samples are seq_len tokens, uint32, with an id each.
    """

    def prepare(self, tokens: Path, folder: Path, seq_len: int) -> None:
        samples = len(ids_of(tokens)) // seq_len
        path = folder / "train_000000.npy"
        written = np.lib.format.open_memmap(path, "w+", np.uint32, (samples * seq_len,))
        for start in range(0, len(written), 1 << 22):
            written[start : start + (1 << 22)] = ids_of(tokens)[start : min(start + (1 << 22), len(written))]
        written.flush()
        np.arange(samples, dtype="<u8").tofile(folder / "sample_ids_000000.bin")

    def batches(self, folder: Path, job: Job) -> Iterator[Any]:
        os.environ["DATASET_BINS_PATH"] = str(folder)
        names = types.SimpleNamespace(Comms=object, Bucket=object)
        package = types.ModuleType("tplr")
        vars(package).update(logger=logging.getLogger("tplr"), comms=names, schemas=names)
        sys.modules["tplr"] = package
        path = Path(os.environ["TEMPLAR"]) / "src/tplr/sharded_dataset.py"
        spec = importlib.util.spec_from_file_location("tplr.sharded_dataset", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        dataset = module.SharedShardedDataset(0, job.seq_len, 0, 1)
        for batch in torch_loader(dataset, job, shuffle=True):
            inputs = batch.long()
            labels = inputs.clone()
            labels[:, :-1] = inputs[:, 1:]
            yield inputs, labels


class Litdata(Loader):
    """litdata's StreamingDataset with its loader of tokens: chunks of 64 MB of uint16, shuffled."""

    package = "litdata"

    def prepare(self, tokens: Path, folder: Path, seq_len: int) -> None:
        import litdata

        litdata.optimize(
            fn=partial(litdata_block, tokens=tokens), inputs=list(range(0, len(ids_of(tokens)), 1 << 22)),
            output_dir=str(folder / "data"), chunk_bytes="64MB", num_workers=1,
            item_loader=litdata.TokensLoader(),
        )  # fmt: skip

    def batches(self, folder: Path, job: Job) -> Iterator[Any]:
        import litdata

        tokens = litdata.TokensLoader(block_size=job.seq_len + 1)
        how = {"item_loader": tokens, "shuffle": True, "drop_last": True}
        dataset = litdata.StreamingDataset(str(folder / "data"), **how)
        loader = litdata.StreamingDataLoader(dataset, batch_size=job.batch_size)
        return forever(lambda: iter(loader))


def litdata_block(start: int, tokens: Path) -> Iterator[Any]:
    yield tensor(ids_of(tokens)[start : start + (1 << 22)], np.uint16)


class Mosaic(Loader):
    """mosaicml-streaming: a local MDS of samples of seq_len + 1 tokens, with torch's DataLoader."""

    package = "mosaicml-streaming"
    by_window = True

    def _streaming(self) -> types.ModuleType:
        """The package, without its datasets of pictures and videos, which need torchvision."""
        for name in ("streaming.vision", "streaming.multimodal"):
            sys.modules.setdefault(name, types.ModuleType(name))
        import streaming

        return streaming

    def prepare(self, tokens: Path, folder: Path, seq_len: int) -> None:
        windows, columns = Windows(tokens, seq_len), {"tokens": f"ndarray:uint16:{seq_len + 1}"}
        with self._streaming().MDSWriter(out=str(folder / "data"), columns=columns) as out:
            for number in range(len(windows)):
                out.write({"tokens": windows[number]})

    def batches(self, folder: Path, job: Job) -> Iterator[Any]:
        streaming = self._streaming()
        streaming.base.util.clean_stale_shared_memory()
        local = str(folder / "data")
        dataset = streaming.StreamingDataset(local=local, shuffle=True, batch_size=job.batch_size)
        return (batch["tokens"] for batch in torch_loader(dataset, job))


class Grain(Loader):
    """Grain: a random-access source over the mapped .npy, shuffled and batched, without own threads."""

    package = "grain"

    def batches(self, folder: Path, job: Job) -> Iterator[Any]:
        import grain.python as grain

        source = grain.MapDataset.source(Windows(folder / TOKENS, job.seq_len))
        made = source.shuffle(seed=0).repeat(None).batch(job.batch_size, drop_remainder=True)
        dataset = made.to_iter_dataset(grain.ReadOptions(num_threads=0, prefetch_buffer_size=0))
        return iter(dataset)


class MegatronCore(Loader):
    """Megatron-core's GPTDataset over an indexed .bin, with torch's DataLoader; indices cached on disk."""

    package = "megatron-core"

    class Tokenizer:
        """Attributes that the configuration reads."""

        eod, pad, vocab_size, unique_identifiers = EOT_ID, -1, VOCABULARY, {"class": "none"}

    def prepare(self, tokens: Path, folder: Path, seq_len: int) -> None:
        from megatron.core.datasets.indexed_dataset import _IndexWriter

        total, each = len(ids_of(tokens)), 1 << 20
        lengths = [min(each, total - start) for start in range(0, total, each)]
        write_raw(tokens, folder / "data.bin")
        with _IndexWriter(str(folder / "data.idx"), np.uint16) as index:
            index.write(lengths, None, list(range(len(lengths) + 1)))

    def batches(self, folder: Path, job: Job) -> Iterator[Any]:
        from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
        from megatron.core.datasets.indexed_dataset import IndexedDataset
        from megatron.core.datasets.utils import Split

        names = ("reset_position_ids", "reset_attention_mask", "eod_mask_loss", "create_attention_mask")
        config = GPTDatasetConfig(
            random_seed=0, sequence_length=job.seq_len, split="1,0,0", path_to_cache=str(folder / "cache"),
            tokenizer=self.Tokenizer(), **dict.fromkeys(names, False),
        )  # fmt: skip
        path = str(folder / "data")
        indexed = IndexedDataset(path, multimodal=False, mmap=True)
        documents = np.arange(len(indexed.sequence_lengths), dtype=np.int32)
        dataset = GPTDataset(indexed, path, documents, None, Split.train, config)
        return ((batch["tokens"], batch["labels"]) for batch in torch_loader(dataset, job))


class Olmo(Loader):
    """OLMo-core's NumpyFSLDataset and its data loader, over raw ids (its .npy has no header)."""

    package = "ai2-olmo-core"

    def prepare(self, tokens: Path, folder: Path, seq_len: int) -> None:
        write_raw(tokens, folder / "data.npy")

    def batches(self, folder: Path, job: Job) -> Iterator[Any]:
        from olmo_core.data import DataCollator, NumpyFSLDataLoader, NumpyFSLDataset
        from olmo_core.data.utils import get_labels

        dataset = NumpyFSLDataset(
            str(folder / "data.npy"), sequence_length=job.seq_len, pad_token_id=EOT_ID, eos_token_id=EOT_ID,
            vocab_size=VOCABULARY, dtype=np.uint16,
        )  # fmt: skip
        loader = NumpyFSLDataLoader(
            dataset, collator=DataCollator(pad_token_id=EOT_ID), seed=0, num_workers=0,
            global_batch_size=job.seq_len * job.batch_size, work_dir=folder / "work",
        )  # fmt: skip
        for epoch in itertools.count(1):
            loader.reshuffle(epoch)
            for batch in loader:
                yield batch["input_ids"], get_labels(batch)
            loader.reset()


LOADERS: dict[str, Loader] = {
    loader.__class__.__name__: loader
    for loader in (
        Ours(), Floor(), Replaced(), Templar(), NanoGpt(), Litdata(), Mosaic(), Grain(), MegatronCore(),
        Olmo()
    )
}  # fmt: skip


def torch_loader(dataset: Any, job: Job, shuffle: bool | None = None) -> Iterator[Any]:
    """Batches of torch's DataLoader without end."""
    from torch.utils.data import DataLoader

    how = {"num_workers": 0, "drop_last": True, "shuffle": shuffle}
    loader = DataLoader(dataset, job.batch_size, **how)
    return forever(lambda: iter(loader))


def forever(epoch: Callable[[], Iterator[Any]]) -> Iterator[Any]:
    """One epoch after the other."""
    return itertools.chain.from_iterable(epoch() for _ in itertools.repeat(None))


def ids_of(path: Path) -> np.ndarray:
    """The tokens, mapped."""
    found: np.ndarray = np.load(path, mmap_mode="r")
    return found


def write_raw(path: Path, raw: Path) -> None:
    """The ids without a header, uint16. Formats that begin like this share one file."""
    shared = path.with_suffix(".raw")
    if not shared.exists():
        partial_path = shared.with_suffix(".partial")
        ids_of(path).tofile(partial_path)
        partial_path.rename(shared)
    os.link(shared, raw)


def main() -> None:
    loader, folder = LOADERS[sys.argv[1]], Path(sys.argv[3])
    if sys.argv[2] == "prepare":
        loader.prepare(folder, Path(sys.argv[4]), int(sys.argv[5]))
        return
    job = Job(**json.loads(sys.argv[4]))
    print(json.dumps(measure(lambda: loader.batches(folder, job), job)), flush=True)
    os._exit(0)  # peers leave threads and workers behind that would be waited for


if __name__ == "__main__":
    main()
