"""Blocks are bounded by documents as well as by bytes."""

from __future__ import annotations

from data_loading.pretokenizer.blocks import MOST_CHUNKS, make_blocks
from data_loading.text_io.chunks import Chunk
from data_loading.tokenizers.cutting.cuts import EVERY_CHARACTER


def test_very_short_documents_make_more_blocks() -> None:
    """A million of two bytes would be one block of 2 MB, and hundreds of MB of objects."""
    count = 3 * MOST_CHUNKS + 5
    chunks = (Chunk(b"ab", "a.jsonl", 9 * number, True) for number in range(count))
    sizes = [len(block.chunks) for block in make_blocks(chunks, EVERY_CHARACTER, 1 << 20)]
    assert sizes == [MOST_CHUNKS] * 3 + [5]
