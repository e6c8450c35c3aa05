"""Arrays in several files read like one."""

from __future__ import annotations

import pickle
import resource
from bisect import bisect_left
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_loading.pretokenizer.job import pretokenize
from data_loading.pretokenizer.options import Options
from data_loading.text_io.text_file import TextFile
from data_loading.tokenizers.tokenizer import BytesTokenizer
from data_loading.tokens import shards
from data_loading.tokens.lazy_array import take
from data_loading.tokens.shards import Shards
from data_loading.tokens.token_set import open_token_set
from tests.golden_text import Golden


@given(
    lengths=st.lists(st.integers(0, 6), min_size=1, max_size=8).filter(any),
    added=st.booleans(),
    start=st.integers(-50, 50),
    stop=st.integers(-50, 50),
    data=st.data(),
)
def test_like_one_array(lengths: list[int], added: bool, start: int, stop: int, data: st.DataObject) -> None:
    parts = [np.arange(length, dtype="<u8") * 3 for length in lengths]
    more = [100 * number for number in range(len(parts))] if added else None
    one = np.concatenate([part + 100 * number * added for number, part in enumerate(parts)]).astype("<u8")
    several = Shards(parts, more)
    assert len(several) == len(one)
    assert several[start:stop].tolist() == one[start:stop].tolist()
    assert several[start:stop].dtype == one.dtype
    place = data.draw(st.integers(-len(one), len(one) - 1))
    assert several[place] == one[place]
    places = np.array(data.draw(st.lists(st.integers(0, len(one) - 1), max_size=9)), np.int64)
    assert take(several, places).tolist() == take(one, places).tolist() == one[places].tolist()
    if added:
        wanted = data.draw(st.integers(0, 900))
        ascending = sorted(one.tolist())
        if ascending == one.tolist():
            assert bisect_left(several, wanted) == bisect_left(ascending, wanted)
    with pytest.raises(IndexError):
        several[len(one)]
    with pytest.raises(ValueError, match="step 1"):
        several[::2]


def test_never_read_whole_by_accident() -> None:
    several = Shards([np.arange(3), np.arange(4)])
    with pytest.raises(TypeError, match="slices"):
        np.asarray(several)


def test_a_set_of_many_files_asks_for_descriptors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    (tmp_path / "a.txt").write_text("water " * 100)
    pretokenize(TextFile(tmp_path / "a.txt"), BytesTokenizer(), tmp_path / "a", Options(shard_tokens=2))
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    monkeypatch.setattr(shards, "_SPARE_FILES", before[0])
    if before[1] > 2 * before[0]:
        assert open_token_set(tmp_path / "a").n_tokens == 601
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == before[0] + 602
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    monkeypatch.setattr(shards, "_SPARE_FILES", before[1])
    with golden.refused("too-many-shards"):
        open_token_set(tmp_path / "a")


def test_an_open_set_of_shards_goes_to_another_process(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("water " * 100)
    pretokenize(TextFile(tmp_path / "a.txt"), BytesTokenizer(), tmp_path / "a", Options(shard_tokens=100))
    found = open_token_set(tmp_path / "a")
    sent = pickle.dumps(found)
    assert len(sent) < 4000
    again = pickle.loads(sent)
    assert again.tokens[:601].tolist() == found.tokens[:601].tolist()
    assert again.documents is not None
    assert again.documents[0] == 0
