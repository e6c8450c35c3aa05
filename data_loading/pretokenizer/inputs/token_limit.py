"""The end of a set by tokens: the document in which the last one falls is its last."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from data_loading.pretokenizer.blocks import EncodedBlock
from data_loading.pretokenizer.journal import Progress


def until_token(
    blocks: Iterable[EncodedBlock], before: Progress, max_tokens: int | None
) -> Iterator[EncodedBlock]:
    """The blocks up to the end of the document that holds token number `max_tokens`, counted from 1.

    max_tokens: None: all of them. before: what the set holds already. The last block is cut there, and
    its `after` is the place before it, from where the source can be told how far it was used.
    """
    if max_tokens is None:
        yield from blocks
        return
    tokens, place = before.written.tokens, before.place
    if tokens >= max_tokens and before.written.document_start == tokens:
        return  # an earlier attempt has come to the end
    for block in blocks:
        reached = np.flatnonzero(block.document_ends + tokens >= max_tokens)
        if len(reached):
            last = int(reached[0])
            end = int(block.document_ends[last])
            yield EncodedBlock(block.index, block.ids[:end], block.document_ends[: last + 1], place)
            return
        tokens += len(block.ids)
        assert block.after is not None
        place = block.after
        yield block
