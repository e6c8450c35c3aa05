"""Options of batches: they are checked, counted and made into a kind of batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from conf.schema import Dataset
from data_loading.dataset.batch_kinds import Batches, Masked, Plain, Shifted, Streams, proper_divisors
from data_loading.dataset.document_starts import DocumentStarts, Separator, separator_of
from data_loading.dataset.orders import order_of
from data_loading.dataset.packing.index import Packing, packing_of
from data_loading.dataset.packing.packed import Packed
from data_loading.dataset.windows import Windows
from experiment_utils.errors import UserError

if TYPE_CHECKING:
    from data_loading.dataset.split_data import Data
    from data_loading.tokens.tokens import Tokens

KINDS = ("plain", "shifted", "streams")
DOCUMENTS = ("across", "masked", "separate")


@dataclass(frozen=True)
class BatchOptions:
    """The kind of a batch, and the windows that it is made of."""

    seq_len: int
    kind: str = "plain"
    stride: int | None = None
    """Tokens from one window to the next; None: seq_len."""
    shift: int = 1
    """Tokens from an input to its label."""
    step_windows: int | None = None
    """Windows of all ranks and micro-batches of an optimizer step; kinds that are not plain need it."""
    documents: str = "across"
    """across, masked or separate."""

    @classmethod
    def of(cls, dataset: Dataset, seq_len: int, step_windows: int) -> BatchOptions:
        """Return the options of a configuration."""
        return cls(seq_len, dataset.windows, dataset.stride, dataset.shift, step_windows, dataset.documents)

    @classmethod
    def held_out(cls, dataset: Dataset, seq_len: int) -> BatchOptions:
        """Return the options of val and test of a configuration: plain windows with the labels of the run."""
        return cls(seq_len, shift=dataset.shift, documents=dataset.documents)

    def check(self) -> None:
        """Check the options. Raises UserError: a value is out of range, or does not go with the kind."""
        if self.kind not in KINDS:
            raise UserError(f"windows {self.kind!r}: choices are {', '.join(KINDS)}", code="windows-unknown")
        if self.documents not in DOCUMENTS:
            raise UserError(
                f"documents {self.documents!r}: choices are {', '.join(DOCUMENTS)}", code="documents-unknown"
            )
        for name in ("seq_len", "stride", "shift", "step_windows"):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < 1):
                raise UserError(f"{name} {value}: expected a whole number, at least 1", code="count-invalid")
        if self.documents == "separate" and self.stride is not None:
            raise UserError(
                "documents=separate are cut at their ends, and have no stride. Remove stride",
                code="stride-with-separate",
            )
        if self.kind == "plain":
            return
        if self.step_windows is None:
            raise UserError(
                f"windows={self.kind} needs step_windows, the windows of a step over all ranks",
                code="step-windows-missing",
            )
        if self.documents != "across":
            raise UserError(
                f"documents={self.documents} goes with windows=plain, not {self.kind}",
                code="documents-need-plain-windows",
            )
        if self.stride not in (None, self.seq_len) or self.shift != 1:
            raise UserError(
                f"windows={self.kind} has stride and shift of its own. Remove stride and shift",
                code="stride-without-plain",
            )

    def windows(self, ranges: Sequence[range]) -> Windows:
        """Return all windows of these ranges."""
        shift = proper_divisors(self.seq_len)[-1] if self.kind == "shifted" else self.shift
        return Windows(ranges, self.seq_len, self.stride, shift)

    def packing(self, data: Data, split: str, *, check: bool = False) -> Packing | None:
        """Return the packing of separate documents; make its index if it is missing. check: as packing_of.

        Raises:
            UserError: nothing says where documents begin, or the index can be kept nowhere.
        """
        if self.documents != "separate":
            return None
        tokens, ranges = data.ranges_of(split)
        between = _separator(data, split)
        return packing_of(
            tokens, ranges, self.seq_len, self.shift, between.id, is_before=between.is_before, check=check
        )

    def count(self, data: Data, split: str) -> int:
        """Return the positions in an epoch."""
        packing = self.packing(data, split)
        if packing is not None:
            return len(packing)
        if self.documents == "masked":
            _separator(data, split)
        windows = len(self.windows(data.ranges_of(split)[1]))
        if self.kind != "plain" and self.step_windows is not None:
            return windows // self.step_windows * self.step_windows
        return windows

    def batches(
        self,
        data: Data,
        split: str,
        order: str,
        seed: int,
        block_windows: int,
        *,
        shard_windows: int | None = None,
        check: bool = False,
        is_shared: bool = False,
    ) -> Batches:
        """Return the kind of batches. check: as packing_of. is_shared: as of `Plain`.

        Raises:
            UserError: windows of another number than the kind needs, or an unknown order.
        """
        token_set, ranges = data.ranges_of(split)
        packing = self.packing(data, split, check=check)
        if packing is not None:
            if order == "shuffled_shards":
                raise UserError(
                    "documents=separate are packed over the whole split, so that no file is read by itself. "
                    "Use order=shuffled, or documents=masked",
                    code="separate-needs-shuffled",
                )
            ordered = order_of(order, len(packing), seed, block_windows)
            is_before = _separator(data, split).is_before
            return Packed(packing, ordered, _pad_id(token_set, data.eot_id), is_before=is_before)
        windows = self.windows(ranges)
        if self.kind == "streams":
            if order in ("shuffled_blocks", "shuffled_shards"):
                raise UserError(
                    f"windows=streams are read in rows. Remove order={order}", code="order-with-streams"
                )
            streams = Streams(windows, self.step_windows or 1)
            streams.is_shared = is_shared
            return streams
        borders = windows.before(np.array(token_set.file_borders))
        ordered = order_of(order, len(windows), seed, block_windows, borders, shard_windows)
        if self.kind == "shifted":
            return Shifted(windows, ordered, self.step_windows or 1, seed)
        if self.documents == "masked":
            between = _separator(data, split)
            starts = DocumentStarts(token_set, between)
            return Masked(windows, ordered, starts, is_before=between.is_before)
        plain = Plain(windows, ordered)
        plain.is_shared = is_shared
        return plain


def _separator(data: Data, split: str) -> Separator:
    """Return the id between documents. Held-out tokens can be a part of one document; train has several."""
    return separator_of(data.ranges_of(split)[0], data.eot_id, data.bos_id, required=split == "train")


def _pad_id(tokens: Tokens, eot_id: int | None) -> int:
    """Return the id of padding, which is always valid."""
    return eot_id if eot_id is not None and eot_id <= np.iinfo(tokens.tokens.dtype).max else 0


def too_short(data: Data, split: str, options: BatchOptions) -> str:
    """Return the reason why a split has no window."""
    token_set, ranges = data.ranges_of(split)
    if options.documents == "separate":
        return (
            f"the {split} split of {token_set.name} has no document of {options.shift + 1} tokens, so that "
            "with documents=separate there is no label in it. Use documents=across"
        )
    windows = options.windows(ranges)
    if len(windows):
        return (
            f"the {split} split of {token_set.name} has {len(windows):,} windows of {options.seq_len:,} "
            f"tokens, and windows={options.kind} are read in whole steps of {options.step_windows:,}. Set a "
            "smaller batch or seq_len"
        )
    at_most = max(map(len, ranges)) - windows.shift
    smaller = (
        f"seq_len (at most {at_most:,})" if at_most > 0 else f"shift (labels are {windows.shift:,} tokens on)"
    )
    return (
        f"the {split} split of {token_set.name} has {data.tokens(split):,} tokens, one window of "
        f"{options.seq_len:,} needs {windows.width:,}. Set a smaller {smaller} or use more text"
    )
