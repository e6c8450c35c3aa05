"""Documents of a large set that `verify --deep` encodes again."""

from __future__ import annotations

import numpy as np

from data_loading.audit.encode_again import MOST_DOCUMENTS, _chosen
from data_loading.tokens.shards import Shards


def test_first_last_and_longest_documents_are_chosen() -> None:
    lengths = np.full(5_000, 3)
    lengths[1234] = 900
    starts = np.cumsum(lengths) - lengths
    chosen = _chosen(Shards([starts]), int(lengths.sum()))
    assert {0, 1234, 4_999} <= set(chosen)
    assert chosen == sorted(set(chosen))
    assert len(chosen) <= MOST_DOCUMENTS
