"""Windows of a stream of documents, against ten lines of lists; going on from any state."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_loading.hub_stream.stream_windows import WindowCut, WindowStream
from data_loading.tokenizers.tokenizer import BytesTokenizer
from tests.golden_text import Golden


class Texts:
    """StreamDocuments of a list; the place is the index of the last one."""

    def __init__(self, texts: list[str], place: dict[str, Any] | None = None) -> None:
        self.texts, self.number, self.place = texts, place["number"] if place else 0, None

    def next(self) -> str | None:
        if self.number == len(self.texts):
            return None
        self.place: dict[str, Any] | None = {"number": self.number}
        self.number += 1
        return self.texts[self.number - 1]


some_texts = st.lists(st.text("abcé", min_size=1, max_size=9), max_size=12)
cuts = st.builds(
    lambda seq_len, shift, buffer, seed: WindowCut(seq_len + shift, seq_len, buffer, (seed, 0, 0)),
    st.integers(1, 6), st.integers(1, 3), st.integers(1, 5), st.integers(0, 3),
)  # fmt: skip


def expected(texts: list[str], cut: WindowCut) -> list[list[int]]:
    """As they lie."""
    tokens = [i for text in texts for i in [*text.encode(), 256]]
    starts = range(0, len(tokens) - cut.width + 1, cut.step)
    return [tokens[start : start + cut.width] for start in starts]


def read(stream: WindowStream) -> list[list[int]]:
    found = []
    while (window := stream.next()) is not None:
        found.append(window.tolist())
    return found


@given(texts=some_texts, cut=cuts)
def test_each_window_once(texts: list[str], cut: WindowCut) -> None:
    stream = WindowStream(Texts(texts), BytesTokenizer(), cut)
    found = read(stream)
    wanted = expected(texts, cut)
    if cut.buffer == 1:
        assert found == wanted
    assert Counter(map(tuple, found)) == Counter(map(tuple, wanted))
    assert stream.next() is None
    tokens = sum(len(text.encode()) + 1 for text in texts)
    assert stream.left_tokens == tokens - cut.step * len(wanted)


@given(texts=some_texts, cut=cuts, data=st.data())
def test_any_state_resumes_exactly(texts: list[str], cut: WindowCut, data: st.DataObject) -> None:
    whole = read(WindowStream(Texts(texts), BytesTokenizer(), cut))
    stream, found = WindowStream(Texts(texts), BytesTokenizer(), cut), list[list[int]]()
    while len(found) < len(whole):
        for _ in range(data.draw(st.integers(0, 3))):
            window = stream.next()
            found += [] if window is None else [window.tolist()]
        if not data.draw(st.booleans()):
            window = stream.next()
            found += [] if window is None else [window.tolist()]
        state = json.loads(json.dumps(stream.state()))
        stream = WindowStream(Texts(texts, state["place"]), BytesTokenizer(), cut, state)
        assert stream.state() == state
    assert found == whole
    assert stream.next() is None


def test_windows_are_drawn_from_the_buffer() -> None:
    texts = [f"{number:05}" for number in range(4000)]

    def starts(seed: int, buffer: int = 256) -> list[int]:
        cut = WindowCut(7, 6, buffer, (seed, 0, 0))
        return [int(bytes(window[:5])) for window in read(WindowStream(Texts(texts), BytesTokenizer(), cut))]

    shuffled, other = np.array(starts(0)), np.array(starts(1))
    assert sorted(shuffled.tolist()) == list(range(3999))
    assert (shuffled != other).mean() > 0.9
    moved = np.abs(shuffled - np.arange(3999))
    assert 80 < np.median(moved) < 400, "far, but not farther than a few buffers"
    assert starts(0, buffer=1) == list(range(3999))


def test_wide_ids() -> None:
    class Wide(BytesTokenizer):
        vocab_size = 100_000
        eot_id = 99_999  # type: ignore[assignment]

    cut = WindowCut(4, 3, 2, (0,))
    stream = WindowStream(Texts(["abc", "def"]), Wide(), cut)
    stream.next()
    state = json.loads(json.dumps(stream.state()))
    again = WindowStream(Texts(["abc", "def"], state["place"]), Wide(), cut, state)
    assert read(again) == read(stream)
    whole = read(WindowStream(Texts(["abc", "def"]), Wide(), WindowCut(4, 4, 1, (0,))))
    assert whole == [[97, 98, 99, 99_999], [100, 101, 102, 99_999]]


@pytest.mark.parametrize("texts", [["abcd", "other"], []])
def test_a_dataset_that_changed(texts: list[str], golden: Golden) -> None:
    cut = WindowCut(3, 2, 1, (0,))
    stream = WindowStream(Texts(["some text"]), BytesTokenizer(), cut)
    stream.next()
    with golden.refused("stream-changed"):
        WindowStream(Texts(texts), BytesTokenizer(), cut, stream.state())
