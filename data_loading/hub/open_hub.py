"""hf:// where tokens are asked for: streamed, held out, or the set that was made of it."""

from __future__ import annotations

import hashlib
from typing import Any

from conf import AUTO
from data_loading.find.prepared_data import Data
from data_loading.hub.hub_uri import parse
from data_loading.hub.materializing import usual_place
from data_loading.hub.stream import BUFFER_WINDOWS, HubStream
from data_loading.tokenizers.tokenizer import Tokenizer
from data_loading.tokens.set_files import SetFiles
from data_loading.tokens.token_set import open_token_set
from data_loading.tokens.tokens import Tokens
from experiment_utils.errors import UserError

_ONLY_OF_SETS: dict[str, Any] = {
    "windows": "plain", "documents": "across", "stride": None, "step_windows": None, "test": 0,
    "reader": AUTO, "max_resident_bytes": None, "verify": "set", "ranks": "distinct",
    "contiguous": True,
}  # fmt: skip
"""Options of StreamingDataset that need tokens in files, and their defaults, which say nothing."""


def open_stream(
    source: str,
    split: str = "train",
    seq_len: int = 1024,
    seed: int = 0,
    *,
    val: float | None = None,
    order: str = "shuffled",
    shift: int = 1,
    tokenizer: str | Tokenizer | None = None,
    block_windows: int | None = None,
    text_field: str | None = None,
    shift_labels: bool = True,
    **of_sets: Any,
) -> HubStream:
    """What `StreamingDataset("hf://...")` is. val: in tokens. block_windows: that are shuffled together.
    text_field: that holds the text.

    Raises:
        UserError: an option that a stream does not have, or the dataset cannot be read.
    """
    for name, value in of_sets.items():
        if name not in _ONLY_OF_SETS:
            raise TypeError(f"StreamingDataset has no option {name!r}")
        if value != _ONLY_OF_SETS[name] and name != "step_windows":
            raise UserError(
                f"{source}: {name}={value!r} is not for a stream: {MATERIALIZE.format(source=source)}",
                code="streamed-has-no-option",
            )
    if val is not None and (isinstance(val, float) or val < 1):
        raise UserError(
            f"{source}: val={val}: how long a stream is is not known: say how many tokens",
            code="stream-val-share",
        )
    if split not in ("train", "val"):
        raise UserError(
            f"{source}: split {split!r}: a stream has the choices train, val", code="streamed-split-unknown"
        )
    return HubStream(
        source,
        seq_len,
        seed,
        tokenizer="gpt2" if tokenizer is None else tokenizer,
        text_field=text_field,
        val_tokens=None if val is None else int(val),
        order=order,
        shift=shift,
        buffer_windows=BUFFER_WINDOWS if block_windows is None else block_windows,
        shift_labels=shift_labels,
    )


MATERIALIZE = "make a token set of it first (python -m data_loading materialize {source})"


def held_out_data(stream: HubStream) -> Data:
    """What a stream holds out, as data of which it is val."""
    held = stream.held_out
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


def open_uri(uri: str, vocab_size: int | None = None) -> Tokens:
    """The token set that was made of `hf://...`.

    Raises:
        UserError: none was made.
    """
    place = usual_place(parse(uri))
    if not SetFiles(place).exists:
        raise UserError(
            f"{uri}: how many tokens it has is not known, and no set was made of it yet (looked for "
            f"{place}). Make one: python -m data_loading materialize {uri}; or read it as it comes: "
            f'StreamingDataset("{uri}", tokenizer=...)',
            code="hub-not-materialized",
        )
    return open_token_set(place, vocab_size)
