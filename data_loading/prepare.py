"""prepare_data: tokens ready to read, in one call, from a configuration or from a text in memory."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, overload

from conf import schema
from data_loading.data import Data, split_data
from data_loading.data import prepare_data as prepare_dataset
from data_loading.memory_set import tokens_of_text
from data_loading.splits import Share
from data_loading.tokenizer import Tokenizer


@overload
def prepare_data(source: schema.Dataset, tokenizer: schema.Tokenizer, **how: Any) -> Data: ...
@overload
def prepare_data(
    source: str | Iterable[str],
    tokenizer: str | Path | Tokenizer = ...,
    *,
    val: Share | None = ...,
    test: Share = ...,
) -> Data: ...
def prepare_data(source: Any, tokenizer: Any = "bytes", **how: Any) -> Data:
    """Tokens, split, for `StreamingDataset`.

    source: the text itself (str), or documents (list of str), never a path: tokenized here, held in memory.
    Or the dataset of a configuration: found on disk or elsewhere, tokenized where needed, verified; then the
    rest is as in `data.prepare_data`.

    tokenizer: of a text: its name, its folder, or what `load_tokenizer` gave. val, test: what is held out, as
    a fraction (float) or in tokens (int); val: None: a tenth.

    Raises:
        UserError: no text, a path instead, not enough of it to be split; no such tokenizer.
    """
    if isinstance(source, schema.Dataset):
        return prepare_dataset(source, tokenizer, **how)
    return _of_text(source, tokenizer, **how)


def _of_text(
    text: str | Iterable[str], tokenizer: str | Path | Tokenizer, *, val: Share | None = None, test: Share = 0
) -> Data:
    return split_data(tokens_of_text(text, tokenizer), None, None, val, test)
