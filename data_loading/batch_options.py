"""What a batch is, as a user says it: options that are checked, counted and made into a kind of batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from conf.schema import Dataset
from data_loading.batches import Batches, Masked, Plain, Shifted, Streams, proper_divisors
from data_loading.documents import DocumentStarts, Separator, separator_of
from data_loading.orders import order_of
from data_loading.packing.index import Packing, packing_of
from data_loading.packing.packed import Packed
from data_loading.windows import Windows
from experiment_utils.errors import UserError

if TYPE_CHECKING:
    from data_loading.data import Data
    from data_loading.tokens import Tokens

KINDS = ("plain", "shifted", "streams")
DOCUMENTS = ("across", "masked", "separate")


@dataclass(frozen=True)
class BatchOptions:
    """What a batch is: its kind, and the windows that it is made of.

    stride: None: seq_len. step_windows: of all ranks and micro-batches of an optimizer step; kinds that
    are not plain need it. documents: across, masked or separate.
    """

    seq_len: int
    kind: str = "plain"
    stride: int | None = None
    shift: int = 1
    step_windows: int | None = None
    documents: str = "across"

    @classmethod
    def of(cls, dataset: Dataset, seq_len: int, step_windows: int) -> BatchOptions:
        """Those of a configuration."""
        return cls(seq_len, dataset.windows, dataset.stride, dataset.shift, step_windows, dataset.documents)

    @classmethod
    def held_out(cls, dataset: Dataset, seq_len: int) -> BatchOptions:
        """Those of val and test of a configuration: plain windows with the labels of the run."""
        return cls(seq_len, shift=dataset.shift, documents=dataset.documents)

    def check(self) -> None:
        """Raises UserError: a value out of range, or one that does not go with the kind."""
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
                "documents=separate are cut where they end, and have no stride. Take stride away",
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
                f"windows={self.kind} has stride and shift of its own. Take stride and shift away",
                code="stride-without-plain",
            )

    def windows(self, ranges: Sequence[range]) -> Windows:
        """All that lie in these ranges."""
        shift = proper_divisors(self.seq_len)[-1] if self.kind == "shifted" else self.shift
        return Windows(ranges, self.seq_len, self.stride, shift)

    def packing(self, data: Data, split: str, *, check: bool = False) -> Packing | None:
        """Of documents that are separate: its index is made here, where there is none. check: as packing_of.

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
        """Positions in an epoch."""
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
        """check: as packing_of. is_shared: as of `Plain`.

        Raises:
            UserError: windows of another number than the kind needs, or an unknown order.
        """
        token_set, ranges = data.ranges_of(split)
        packing = self.packing(data, split, check=check)
        if packing is not None:
            if order == "shuffled_shards":
                raise UserError(
                    "documents=separate are packed over the whole split, so that no file is read by itself. "
                    "Take order=shuffled, or documents=masked",
                    code="separate-needs-shuffled",
                )
            ordered = order_of(order, len(packing), seed, block_windows)
            is_before = _separator(data, split).is_before
            return Packed(packing, ordered, _pad_id(token_set, data.eot_id), is_before=is_before)
        windows = self.windows(ranges)
        if self.kind == "streams":
            if order in ("shuffled_blocks", "shuffled_shards"):
                raise UserError(
                    f"windows=streams are read in rows. Take order={order} away", code="order-with-streams"
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
    """What is held out may be a part of one document; what is trained on has several."""
    return separator_of(data.ranges_of(split)[0], data.eot_id, data.bos_id, required=split == "train")


def _pad_id(tokens: Tokens, eot_id: int | None) -> int:
    """What stands where no document does: an id that is always valid."""
    return eot_id if eot_id is not None and eot_id <= np.iinfo(tokens.tokens.dtype).max else 0


def too_short(data: Data, split: str, options: BatchOptions) -> str:
    """Why a split has not one window."""
    token_set, ranges = data.ranges_of(split)
    if options.documents == "separate":
        return (
            f"the {split} split of {token_set.name} has no document of {options.shift + 1} tokens, so that "
            "with documents=separate there is no label in it. Take documents=across"
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
        f"seq_len (at most {at_most:,})" if at_most > 0 else f"shift (labels stand {windows.shift:,} on)"
    )
    return (
        f"the {split} split of {token_set.name} has {data.tokens(split):,} tokens, one window of "
        f"{options.seq_len:,} needs {windows.width:,}. Set a smaller {smaller} or use more text"
    )
