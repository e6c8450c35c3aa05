"""Batches as others take them: contiguous, and with labels that a model of transformers shifts itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from data_loading import StreamingDataset, StreamingMixture
from data_loading.dataset.protocol import IGNORED_LABEL
from data_loading.dataset.split_data import split_data
from data_loading.tokens.token_set import TokenSet
from tests.golden_text import Golden

KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "shift": {"shift": 3},
    "stride": {"stride": 5},
    "masked": {"documents": "masked"},
    "separate": {"documents": "separate"},
    "shifted": {"windows": "shifted", "step_windows": 4},
    "streams": {"windows": "streams", "step_windows": 4},
}
SEQ_LEN = 12


def dataset(tmp_path: Path, **options: Any) -> StreamingDataset:
    """Documents of 7 tokens."""
    path = tmp_path / "x.npy"
    if not path.exists():
        np.save(path, np.arange(700, dtype="<u2") % 97)
    documents = np.arange(0, 700, 7).astype(np.uint64)
    tokens = TokenSet(path, np.load(path, mmap_mode="r"), documents, None, 97, "f")
    return StreamingDataset(split_data(tokens, None, None, 100), seq_len=SEQ_LEN, **options)


@pytest.mark.parametrize("kind", KINDS)
def test_batches_are_contiguous(kind: str, tmp_path: Path) -> None:
    found = dataset(tmp_path, **KINDS[kind])
    for batch in [found.__getitems__([0, 1, 2]), next(iter(found.loader(4)))]:
        assert all(tensor.is_contiguous() for tensor in batch.values())
        assert batch["labels"].view(-1).shape == batch["input_ids"].view(-1).shape


def test_batches_of_a_mixture_are_contiguous(tmp_path: Path, golden: Golden) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    ids = {name: np.arange(700, dtype="<u2") % prime for name, prime in (("a", 97), ("b", 89))}
    for name, values in ids.items():
        np.save(tmp_path / name / "x.npy", values)
    sources = [StreamingDataset(str(tmp_path / name / "x.npy"), seq_len=SEQ_LEN) for name in ids]
    with golden.refused("mixture-vocabularies-differ"):  # another vocabulary: not what is tested here
        StreamingMixture(sources, [0.5, 0.5])
    np.save(tmp_path / "b" / "x.npy", ids["a"][::-1].copy())
    sources[1] = StreamingDataset(str(tmp_path / "b" / "x.npy"), seq_len=SEQ_LEN)
    batch = StreamingMixture(sources, [0.5, 0.5]).__getitems__(range(8))
    assert all(tensor.is_contiguous() for tensor in batch.values())


def test_run_reads_views_of_one_tensor(tmp_path: Path) -> None:
    """A GPU is sent one copy of it (training.devices.device_batches)."""
    plain, shared = dataset(tmp_path), dataset(tmp_path, contiguous=False)
    one, other = plain.__getitems__([0, 1]), shared.__getitems__([0, 1])
    assert all(torch.equal(one[name], other[name]) for name in one)
    storages = {tensor.untyped_storage().data_ptr() for tensor in other.values()}
    assert len(storages) == 1
    assert shared.fingerprint == plain.fingerprint


@pytest.mark.parametrize("kind", ["plain", "stride", "masked", "separate", "streams"])
def test_labels_that_are_not_shifted_give_the_same_pairs(kind: str, tmp_path: Path) -> None:
    """(position, target) pairs are those of shifted labels, without the last of a window."""
    ours = dataset(tmp_path, **KINDS[kind]).__getitems__([0, 1, 2])
    theirs = dataset(tmp_path, **KINDS[kind], shift_labels=False).__getitems__([0, 1, 2])
    assert torch.equal(theirs["input_ids"], ours["input_ids"])
    assert torch.equal(theirs["labels"][:, 1:], ours["labels"][:, :-1])
    assert (theirs["labels"][:, 0] == IGNORED_LABEL).all()
    counted = theirs["labels"] != IGNORED_LABEL
    assert torch.equal(theirs["labels"][counted], theirs["input_ids"][counted])


def test_labels_of_loaders_are_not_shifted_either(tmp_path: Path) -> None:
    found = dataset(tmp_path, shift_labels=False)
    for batch in found.loader(4, num_batches=3):
        assert torch.equal(batch["labels"][:, 1:], batch["input_ids"][:, 1:])


@pytest.mark.parametrize("options", [{"shift": 2}, {"windows": "shifted", "step_windows": 4}])
def test_other_shifts_are_refused(options: dict[str, Any], tmp_path: Path, golden: Golden) -> None:
    with golden.refused("labels-not-shifted"):
        dataset(tmp_path, **options, shift_labels=False)


class ShiftsItself(torch.nn.Module):
    """As models of transformers: logits at t are compared with labels at t + 1 (ForCausalLMLoss)."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(vocab_size, vocab_size)

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        logits = self.table(input_ids)[:, :-1]
        return torch.nn.functional.cross_entropy(
            logits.reshape(-1, logits.shape[-1]), labels[:, 1:].reshape(-1), ignore_index=IGNORED_LABEL
        )


def test_model_that_shifts_labels_learns_the_next_token(tmp_path: Path) -> None:
    """In 0, 1, ... 96, 0, 1 ... the token after the next is known as well, and must not be learned."""
    torch.manual_seed(0)
    model = ShiftsItself(97)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.3)
    loader = dataset(tmp_path, shift_labels=False).loader(8, repeat=True, num_batches=60)
    for batch in loader:
        loss = model(**batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert loss < 0.1
    assert model.table.weight.argmax(1).tolist() == [(token + 1) % 97 for token in range(97)]


def test_model_of_transformers_learns_the_next_token(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=97, n_positions=SEQ_LEN, n_embd=32, n_layer=1, n_head=2, resid_pdrop=0, embd_pdrop=0,
        attn_pdrop=0, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    model = transformers.GPT2LMHeadModel(config)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for batch in dataset(tmp_path, shift_labels=False).loader(8, repeat=True, num_batches=80):
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    asked = torch.arange(5, 5 + SEQ_LEN)[None]
    assert loss < 1
    assert model(asked).logits.argmax(-1)[0, 4:].tolist() == [(int(token) + 1) for token in asked[0, 4:]]
