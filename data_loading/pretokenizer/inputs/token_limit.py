"""The end of a set by tokens: its last document is the one in which the last token falls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from data_loading.pretokenizer.blocks import EncodedBlock
from data_loading.pretokenizer.journal import Progress


def until_token(
    blocks: Iterable[EncodedBlock], before: Progress, max_tokens: int | None
) -> Iterator[EncodedBlock]:
    """The blocks up to the end of the document that holds token number `max_tokens`, counted from 1.

    The last block is cut there. Its `after` is the place before it, from which the source can find how far
    it was used.

    Args:
        before: Tokens that the set holds already.
        max_tokens: None: all blocks.
    """
    if max_tokens is None:
        yield from blocks
        return
    tokens, place = before.written.tokens, before.place
    if tokens >= max_tokens and before.written.document_start == tokens:
        return  # an earlier attempt has reached the end
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
