"""Values that are computed, read like an array."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_loading.tokens.lazy_array import LazyValues, search, take


class Computed(LazyValues):
    """The first n odd numbers, each twice."""

    dtype = np.dtype("<u8")

    def __init__(self, n: int) -> None:
        self._n = n

    def __len__(self) -> int:
        return self._n

    def _slice(self, start: int, stop: int) -> np.ndarray:
        assert 0 <= start <= stop <= self._n
        return (np.arange(start, stop, dtype="<u8") // 2) * 2 + 1


@given(
    n=st.integers(0, 40),
    start=st.integers(-50, 50),
    stop=st.integers(-50, 50),
    wanted=st.lists(st.integers(0, 60), max_size=9),
    data=st.data(),
)
def test_like_an_array(n: int, start: int, stop: int, wanted: list[int], data: st.DataObject) -> None:
    values = Computed(n)
    array = values[:]
    assert values[start:stop].tolist() == array[start:stop].tolist()
    assert search(values, np.array(wanted, np.int64)).tolist() == np.searchsorted(array, wanted).tolist()
    places = np.array(data.draw(st.lists(st.integers(0, n - 1), max_size=9)) if n else [], np.int64)
    assert take(values, places).tolist() == array[places].tolist()
    assert take(values, places).dtype == array.dtype
    for place in (n, -n - 1):
        with pytest.raises(IndexError, match=f"of {n} values"):
            values[place]


def test_not_read_whole_by_accident() -> None:
    with pytest.raises(TypeError):
        np.asarray(Computed(3))
    with pytest.raises(ValueError, match="step 1"):
        Computed(3)[::2]
