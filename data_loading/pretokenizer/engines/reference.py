"""The engine of the package tokenizers. Its ids are the right ones: every other is compared with it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import metadata
from typing import Any

import numpy as np

from data_loading.pretokenizer.engines.base import Engine
from data_loading.tokenizers.tokenizer import DefinedTokenizer, reference_tokenizer


class ReferenceEngine(Engine):
    """Slow; needs about 200 bytes of memory for each byte of a call; takes every tokenizer.json."""

    name = "huggingface"
    block_bytes = 1 << 18
    parallel_from = 1 << 20
    most_bytes = 600 << 20

    @property
    def version(self) -> str:
        return metadata.version("tokenizers")

    def _load(self) -> Any:
        # Its own threads would make a later fork warn or hang; the threads are ours.
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        assert isinstance(self._source, DefinedTokenizer)
        return reference_tokenizer(self._source.json, "the tokenizer")

    def encode_batch(self, texts: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
        parts = [
            np.array(encoding.ids, np.uint32)
            for text in texts
            for encoding in self._tokenizer.encode_batch_fast([text.decode()], add_special_tokens=False)
        ]
        return joined(parts)


def joined(parts: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Result of `Engine.encode_batch` from the ids of each text."""
    lengths = np.array([len(part) for part in parts], np.int64)
    ids = parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, np.uint32), *parts])
    return ids, lengths
