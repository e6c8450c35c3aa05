"""HubStream: windows of a dataset of the hub that is tokenized as it comes."""

from __future__ import annotations

import copy
import hashlib
from functools import cached_property
from typing import TYPE_CHECKING, Any

from data_loading.dataset.epochs import EpochDataset, shared_epoch
from data_loading.dataset.split_data import Data
from data_loading.hub.client import HUB, asked, check_package, check_reachable, revision_of, splits_of
from data_loading.hub.hub_uri import parse
from data_loading.hub_stream.encode import SAMPLE_BYTES, Encode, encoder_of
from data_loading.hub_stream.stream_documents import RankPart, StreamDocuments
from data_loading.hub_stream.stream_held_out import HELD_OUT_TOKENS, HeldOut, read_held_out
from data_loading.hub_stream.stream_windows import WindowCut, WindowStream
from data_loading.tokenizers.load import load_tokenizer, tokenizer_spec
from data_loading.tokenizers.tokenizer import Tokenizer
from experiment_utils.errors import UserError

if TYPE_CHECKING:
    from data_loading.hub_stream.stream_loader import StreamLoader


BUFFER_WINDOWS = 1024
VAL_SPLITS = ("validation", "val", "valid", "dev", "test")
"""The first of these that a dataset has is its val."""
ORDERS = ("shuffled", "sequential")


class HubStream(EpochDataset["StreamLoader"]):
    """Windows of a dataset of the hub, in epochs whose number of windows is known at their end.

    Open one with `open_stream`, which documents the options.
    """

    fingerprint: str
    """Identity of the dataset (repository, commit, configuration, split, field), the tokenizer, what is held
    out, and all that cuts and orders windows."""
    tokenizer: Tokenizer
    contiguous: bool = True
    """False: input_ids and labels can be views of one tensor."""

    def __init__(
        self,
        source: str,
        seq_len: int = 1024,
        seed: int = 0,
        *,
        tokenizer: str | Tokenizer = "gpt2",
        split: str = "train",
        text_field: str | None = None,
        val_tokens: int | None = None,
        order: str = "shuffled",
        shift: int = 1,
        buffer_windows: int = BUFFER_WINDOWS,
        revision: str | None = None,
        shift_labels: bool = True,
    ) -> None:
        """Ask the hub for the dataset; its rows are read when batches are.

        Args are those of `open_stream`. source: `hf://...`. val_tokens: its `val`. revision: the commit, if
        it is known already.

        Raises:
            UserError: the hub cannot be reached, or has no such dataset, configuration or split.
        """
        if not shift_labels and shift != 1:
            raise UserError(
                "shift_labels=False: models of transformers shift labels by one token. Use shift=1",
                code="labels-not-shifted",
            )
        self.shift_labels = shift_labels
        self.name = parse(source)
        check_package(source)
        if isinstance(tokenizer, str):
            tokenizer = load_tokenizer(tokenizer_spec(tokenizer))
        self.tokenizer = tokenizer
        if revision is not None and not self.name.is_folder:
            check_reachable(str(self.name))
            self.revision = revision
        else:
            self.revision = asked(str(self.name), lambda: revision_of(self.name))
        self.field, self.split = text_field or self.name.text_field, split
        self.val_tokens = HELD_OUT_TOKENS if val_tokens is None else val_tokens
        there = asked(str(self.name), lambda: splits_of(self.name, self._revision))
        if split not in there:
            raise UserError(
                f"{self.name} has no split {split!r}; splits: {', '.join(there)}", code="hub-split-missing"
            )
        self.val_split = next((own for own in VAL_SPLITS if own in there and own != split), None)
        facts = [
            "folder" if self.name.is_folder else self.name.repository, self.revision, self.name.config, split,
            self.val_split, self.val_tokens, self.field, self.tokenizer.content_hash,
        ]  # fmt: skip
        self.data_fingerprint = hashlib.sha256(repr(facts).encode()).hexdigest()
        self._cut(seq_len, seed, order, shift, buffer_windows)

    def _cut(self, seq_len: int, seed: int, order: str, shift: int, buffer_windows: int) -> None:
        if order not in ORDERS:
            raise UserError(
                f"order {order!r}: choices for a stream are {', '.join(ORDERS)}", code="streamed-order"
            )
        for name, value in (("seq_len", seq_len), ("shift", shift), ("buffer_windows", buffer_windows)):
            if value < 1:
                raise UserError(f"{name} {value}: expected 1 or more", code="count-invalid")
        self.seq_len, self.seed, self.shift = seq_len, seed, shift
        self.order, self.buffer_windows, self._epoch = order, buffer_windows, shared_epoch()
        self.fingerprint = (
            f"{self.data_fingerprint[:16]} {self.split} streamed, windows of {seq_len} shift {shift}, "
            f"{order} seed {seed} buffer {buffer_windows}"
        )

    def cut(
        self,
        seq_len: int,
        seed: int,
        *,
        order: str = "shuffled",
        shift: int = 1,
        buffer_windows: int = BUFFER_WINDOWS,
    ) -> HubStream:
        """Return the same dataset in other windows, or in another order."""
        other = copy.copy(self)
        other._cut(seq_len, seed, order, shift, buffer_windows)
        return other

    @property
    def _revision(self) -> str | None:
        return None if self.name.is_folder else self.revision

    def _documents(self, split: str, *more: Any) -> StreamDocuments:
        def rows() -> Any:
            return HUB.rows(self.name.repository, self.name.config, split, self._revision)

        return StreamDocuments(rows, f"{self.name} {split}", self.field, *more)

    @cached_property
    def held_out(self) -> HeldOut:
        """Tokens of val: the dataset's own split, else its first documents, which training leaves out.

        Read once, into memory; the same tokens in every run, whatever its budget.

        Raises:
            UserError: there is no text, the dataset is too small for this number of tokens, or nothing is
                held out.
        """
        if not self.val_tokens:
            raise UserError(f"{self.name}: nothing is held out as val (val=0)", code="no-val-split")
        return read_held_out(self._documents(self.val_split or self.split), self)

    def held_out_data(self) -> Data:
        """Return the held-out tokens as data for `StreamingDataset(data, "val")`."""
        held = self.held_out
        whole = (range(held.n_tokens),)
        return Data(
            train=held,
            train_ranges=whole,
            val=held,
            val_ranges=whole,
            vocab_size=held.vocab_size,
            eot_id=held.eot_id,
            tokenizer_name=held.tokenizer_name,
            fingerprint=hashlib.sha256(held.fingerprint.encode()).hexdigest(),
        )

    def open(
        self, epoch: int, rank: int, world_size: int, state: dict[str, Any] | None = None
    ) -> WindowStream:
        """Return the windows of a rank in an epoch, from the beginning or from a state."""
        key = 0 if self.order == "sequential" else _key(self.seed, epoch)
        is_own = self.val_split is not None or not self.val_tokens
        left_out = frozenset() if is_own else self.held_out.digests
        place = state["place"] if state else None
        texts = self._documents(self.split, RankPart(rank, world_size, key), left_out, place)
        buffer = 1 if self.order == "sequential" else self.buffer_windows
        cut = WindowCut(self.seq_len + self.shift, self.seq_len, buffer, (self.seed, epoch, rank, world_size))
        return WindowStream(texts, self.tokenizer, cut, state, self._encode)

    @cached_property
    def _encode(self) -> Encode:
        return encoder_of(self.tokenizer, self._samples)

    def _samples(self) -> list[bytes]:
        """Return the first documents, for the choice of an engine."""
        texts = self._documents(self.split)
        found: list[bytes] = []
        while sum(map(len, found)) < SAMPLE_BYTES and (text := texts.next()) is not None:
            found.append(text.encode()[:SAMPLE_BYTES])
        return [text.decode(errors="ignore").encode() for text in found]

    def _loader_kind(self) -> type[StreamLoader]:
        from data_loading import StreamLoader

        return StreamLoader


def _key(seed: int, epoch: int) -> int:
    """Return the key of the order of files; never 0, the order in which they are stored."""
    found = hashlib.blake2b(f"{seed} {epoch}".encode(), digest_size=8).digest()
    return int.from_bytes(found, "big") % 2**62 + 1
