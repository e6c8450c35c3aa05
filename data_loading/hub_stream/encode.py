"""Text to ids for a stream: document by document, with the fastest engine that gives the reference's ids."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import numpy as np

from data_loading.pretokenizer.engines.registry import choose_engine
from data_loading.tokenizers.tokenizer import DefinedTokenizer, Tokenizer

log = logging.getLogger("data_loading")

SAMPLE_BYTES = 256 << 10
"""Size of the samples on which an engine is compared with the reference."""
Encode = Callable[[str], np.ndarray]
"""Ids of a document encoded whole, `(n,)`, without an end-of-text id."""


def encoder_of(tokenizer: Tokenizer, samples: Callable[[], Sequence[bytes]]) -> Encode:
    """Return the encoder. samples: returns texts of the stream (UTF-8), called if engines can be chosen."""
    if not isinstance(tokenizer, DefinedTokenizer):
        return tokenizer.encode
    engine = choose_engine(tokenizer, samples(), log.info).engine
    return lambda text: engine.encode_batch([text.encode()])[0]
