"""The engine of the `bytes` tokenizer: the identity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np

from data_loading.pretokenizer.engines.base import Engine, Unsupported
from data_loading.tokenizers.tokenizer import BytesTokenizer, Tokenizer


class BytesEngine(Engine):
    """Each byte is its own id."""

    name = "bytes"
    block_bytes = 4 << 20
    parallel_from = None

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> Self:
        if not isinstance(tokenizer, BytesTokenizer):
            raise Unsupported("it encodes bytes only")
        return cls(tokenizer)

    @property
    def version(self) -> str:
        return "1"

    def _load(self) -> None:
        return None

    def encode_batch(self, texts: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
        for text in texts:
            text.decode()  # only to refuse what is not UTF-8
        ids = np.frombuffer(b"".join(texts), np.uint8).astype(np.uint32)
        return ids, np.array([len(text) for text in texts], np.int64)
