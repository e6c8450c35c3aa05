"""A dataset of the hub that is read as it comes: tokenized on the fly, nothing of it kept here."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from data_loading.hub.client import HUB, asked, check_package, check_reachable, revision_of, splits_of
from data_loading.hub.encode import SAMPLE_BYTES, Encode, encoder_of
from data_loading.hub.hub_uri import parse
from data_loading.hub.stream_documents import Documents, Part
from data_loading.hub.stream_held_out import HELD_OUT_TOKENS, HeldOut, read_held_out
from data_loading.hub.stream_windows import Cut, WindowStream
from data_loading.loader.epochs import EpochDataset, shared_epoch
from data_loading.tokenizers.load import load_tokenizer, tokenizer_spec
from data_loading.tokenizers.tokenizer import Tokenizer
from experiment_utils.errors import UserError

if TYPE_CHECKING:
    from data_loading.hub.stream_loader import StreamLoader


BUFFER_WINDOWS = 1024
VAL_SPLITS = ("validation", "val", "valid", "dev", "test")
"""The first of these that a dataset has is its val."""
ORDERS = ("shuffled", "sequential")


class HubStream(EpochDataset["StreamLoader"]):
    """The training stream of a dataset on the hub. How many windows it has is known at its end.

    fingerprint: of the dataset (repository, commit,
    configuration, split, field), the tokenizer, what is held out, and all that cuts and orders windows.
    """

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
        """source: `hf://...`. revision: the commit, where it is known already. split: of the dataset there,
        that is trained on. val_tokens: how many tokens are held out, of a split that the dataset itself has
        for that, or of its first documents; None: a million. order: shuffled: the files in an order of the
        seed and the epoch, and each window drawn from `buffer_windows`; or sequential. shift_labels: as of
        StreamingDataset.

        Raises:
            UserError: the hub cannot be reached, or has no such dataset, configuration or split.
        """
        if not shift_labels and shift != 1:
            raise UserError(
                "shift_labels=False: models of transformers shift labels by one. Take shift=1",
                code="labels-not-shifted",
            )
        self.shift_labels, self.contiguous = shift_labels, True
        self.name = parse(source)
        check_package(source)
        self.tokenizer = tokenizer if isinstance(tokenizer, Tokenizer) else _tokenizer(tokenizer)
        if revision is not None and not self.name.is_folder:
            check_reachable(str(self.name))
            self.revision = revision
        else:
            self.revision = asked(str(self.name), lambda: revision_of(self.name))
        self.field, self.split = text_field or self.name.text_field, split
        self.val_tokens = val_tokens or HELD_OUT_TOKENS
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
                f"order {order!r}: a stream has the choices {', '.join(ORDERS)}", code="streamed-order"
            )
        for what, value in (("seq_len", seq_len), ("shift", shift), ("buffer_windows", buffer_windows)):
            if value < 1:
                raise UserError(f"{what} {value}: expected 1 or more", code="count-invalid")
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
        """The same dataset in other windows, or in another order."""
        other = copy.copy(self)
        other._cut(seq_len, seed, order, shift, buffer_windows)
        return other

    @property
    def _revision(self) -> str | None:
        return None if self.name.is_folder else self.revision

    def _rows(self, split: str) -> Callable[[], Any]:
        return lambda: HUB.rows(self.name.repository, self.name.config, split, self._revision)

    @cached_property
    def held_out(self) -> HeldOut:
        """What is val: the dataset's own, else its first documents, which training then passes over.

        Read once, into memory; the same tokens in every run, whatever its budget.

        Raises:
            UserError: it is no text, or the dataset is too small for as many tokens.
        """
        split = self.val_split or self.split
        texts = Documents(self._rows(split), f"{self.name} {split}", self.field)
        return read_held_out(texts, self)

    def open(
        self, epoch: int, rank: int, world_size: int, state: dict[str, Any] | None = None
    ) -> WindowStream:
        """The windows of a rank in an epoch, from the beginning or from a state."""
        key = 0 if self.order == "sequential" else _key(self.seed, epoch)
        left_out = self.held_out.digests if self.val_split is None else frozenset()
        place = state["place"] if state else None
        what = f"{self.name} {self.split}"
        texts = Documents(
            self._rows(self.split), what, self.field, Part(rank, world_size, key), left_out, place
        )
        buffer = 1 if self.order == "sequential" else self.buffer_windows
        cut = Cut(self.seq_len + self.shift, self.seq_len, buffer, (self.seed, epoch, rank, world_size))
        return WindowStream(texts, self.tokenizer, cut, state, self._encode)

    @cached_property
    def _encode(self) -> Encode:
        return encoder_of(self.tokenizer, self._samples)

    def _samples(self) -> list[bytes]:
        """The first documents."""
        texts = Documents(self._rows(self.split), f"{self.name} {self.split}", self.field)
        found: list[bytes] = []
        while sum(map(len, found)) < SAMPLE_BYTES and (text := texts.next()) is not None:
            found.append(text.encode()[:SAMPLE_BYTES])
        return [text.decode(errors="ignore").encode() for text in found]

    def _loader_kind(self) -> type[StreamLoader]:
        from data_loading.hub.stream_loader import StreamLoader

        return StreamLoader


def _tokenizer(name: str) -> Tokenizer:
    return load_tokenizer(tokenizer_spec(name))


def _key(seed: int, epoch: int) -> int:
    """Of the order of files; never 0, which is that in which they lie."""
    found = hashlib.blake2b(f"{seed} {epoch}".encode(), digest_size=8).digest()
    return int.from_bytes(found, "big") % 2**62 + 1
