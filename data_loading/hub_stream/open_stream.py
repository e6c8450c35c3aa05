"""open_stream: a dataset of the hub, read and tokenized as it comes."""

from __future__ import annotations

from data_loading.hub.hub_uri import hub_source, parse
from data_loading.hub_stream.hub_stream import BUFFER_WINDOWS, HubStream
from data_loading.hub_stream.materializing import usual_place
from data_loading.tokenizers.tokenizer import Tokenizer
from data_loading.tokens.set_files import SetFiles
from data_loading.tokens.token_set import open_token_set
from data_loading.tokens.tokens import Tokens
from experiment_utils.errors import UserError


def open_stream(
    name: str,
    seq_len: int = 1024,
    seed: int = 0,
    *,
    tokenizer: str | Tokenizer = "gpt2",
    split: str = "train",
    text_field: str | None = None,
    val: int | None = None,
    order: str = "shuffled",
    buffer_windows: int = BUFFER_WINDOWS,
    shift: int = 1,
    shift_labels: bool = True,
) -> HubStream:
    """Open a stream of windows over a dataset of the hub. Nothing of it is kept on this machine.

    Batches, states and loaders are those of `StreamingDataset`; the number of windows is known at the end of
    an epoch only.

    Args:
        name: `hf://ORG/NAME[:CONFIG][@REVISION]`, `hf:///FOLDER`, or a name of `list_datasets`.
        seq_len: Inputs of a window.
        seed: Seed of the order.
        tokenizer: Name, folder, or what `load_tokenizer` returned.
        split: Split of the dataset there that is trained on.
        text_field: Field of its rows with the text; None: as the registry says, else `text`.
        val: Tokens held out as val, of a split that the dataset has for that, else of its first documents; 0:
            nothing. None: a million.
        order: shuffled: files in an order of the seed and the epoch, and each window drawn from a buffer; or
            sequential.
        buffer_windows: Windows in that buffer.
        shift: Tokens from an input to its label.
        shift_labels: As in `StreamingDataset`.

    Raises:
        UserError: an invalid option, or the dataset cannot be read.
    """
    source = hub_source(name)
    if val is not None and (type(val) is not int or val < 0):
        raise UserError(
            f"{source}: val={val}: the length of a stream is unknown, expected a number of tokens",
            code="stream-val-share",
        )
    return HubStream(
        source, seq_len, seed, tokenizer=tokenizer, split=split, text_field=text_field, val_tokens=val,
        order=order, buffer_windows=buffer_windows, shift=shift, shift_labels=shift_labels,
    )  # fmt: skip


def open_uri(uri: str, vocab_size: int | None = None) -> Tokens:
    """Open the token set that was made of `hf://...`.

    Raises:
        UserError: none was made.
    """
    place = usual_place(parse(uri))
    if not SetFiles(place).exists:
        raise UserError(
            f"{uri}: its number of tokens is unknown, and no set was made of it yet (looked for {place}). "
            f"Make one: python -m data_loading materialize {uri}; or stream it: "
            f"open_stream({uri!r}, tokenizer=...)",
            code="hub-not-materialized",
        )
    return open_token_set(place, vocab_size)
