"""The forecast is about what comes out."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from data_loading.pretokenizer import token_forecast as forecast_room
from data_loading.pretokenizer.engines.base import Engine
from data_loading.pretokenizer.engines.bytes import BytesEngine
from data_loading.pretokenizer.engines.fastokens import FastokensEngine
from data_loading.pretokenizer.inputs.discover import InputOptions, open_inputs
from data_loading.pretokenizer.job import pretokenize
from data_loading.pretokenizer.sources.stdlib import StdlibSource
from data_loading.pretokenizer.token_forecast import Forecast, forecast, samples
from data_loading.text_io.text_file import TextFile
from data_loading.tokenizers.read_files import read_tokenizer
from data_loading.tokenizers.tokenizer import BytesTokenizer, Tokenizer
from tests.data_loading.conftest import training_text, zstd_bytes

Folder = Callable[[str], Path]
WORDS = ["the", "water", "rose", "and", "a", "mark", "stayed", "high", "over", "all", "of", "it"]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples of 48 KB together."""
    monkeypatch.setattr(forecast_room, "PLACES", 48)
    monkeypatch.setattr(forecast_room, "WINDOW_BYTES", 1024)
    monkeypatch.setattr(forecast_room, "_ENTERED_BYTES", 100 << 10)


@pytest.fixture
def gpt2_like(tokenizer_folder: Folder) -> tuple[Tokenizer, Engine]:
    tokenizer = read_tokenizer(tokenizer_folder("gpt2"), "gpt2")
    return tokenizer, FastokensEngine.of(tokenizer)


def stretches(draw: random.Random, size: int) -> Iterator[str]:
    """A text of parts as unlike each other as English, source code, numbers, Chinese and blank lines."""
    code = "".join(training_text()[:300])
    while size > 0:
        length = int(draw.lognormvariate(7, 1.2))
        kind = draw.randrange(5)
        if kind == 0:
            part = " ".join(draw.choices(WORDS, k=length // 5))
        elif kind == 1:
            start = draw.randrange(len(code))
            part = code[start : start + length]
        elif kind == 2:
            part = "".join(draw.choices("0123456789abcdef \n", k=length))
        elif kind == 3:
            part = "".join(draw.choices("水文字的一是日本語 ", k=length))
        else:
            part = "\n  " * (length // 3)
        size -= len(part.encode())
        yield part + " "


def true_tokens(text: str, engine: Engine) -> int:
    return int(engine.encode_batch([text.encode()])[1].sum())


def test_tokens_of_unlike_parts_are_about_right(
    small: None, tmp_path: Path, gpt2_like: tuple[Tokenizer, Engine]
) -> None:
    tokenizer, engine = gpt2_like
    off = []
    for seed in range(20):
        text = "".join(stretches(random.Random(seed), 300_000))
        (tmp_path / "a.txt").write_bytes(text.encode())
        found = forecast(TextFile(tmp_path / "a.txt"), tokenizer, engine)
        assert found.tokens is not None
        off.append(abs(found.tokens / (true_tokens(text, engine) + 1) - 1))
        assert found.text_bytes == pytest.approx(len(text.encode()))
        assert (found.documents, found.is_complete) == (1, False)
    assert sorted(off)[10] < 0.1
    assert max(off) < 0.35


def documents_of(draw: random.Random, count: int) -> list[str]:
    return [
        "".join(stretches(draw, draw.randrange(1, 400)))[: draw.randrange(10, 5000)] for _ in range(count)
    ]


def write_lines(path: Path, documents: list[str]) -> None:
    data = "".join(json.dumps({"text": text, "meta": "x" * 20}) + "\n" for text in documents).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


class TestInputs:
    """Each kind of input, compared with the tokens of all of it."""

    def check(
        self,
        names: list[Path],
        documents: list[str],
        gpt2_like: tuple[Tokenizer, Engine],
        within: float,
        **options: Any,
    ) -> Forecast:
        tokenizer, engine = gpt2_like
        source = open_inputs([str(name) for name in names], InputOptions(**options))
        found = forecast(source, tokenizer, engine)
        counts = engine.encode_batch([text.encode() for text in documents])[1]
        assert found.tokens == pytest.approx(int(counts.sum()) + len(documents), rel=within)
        return found

    def test_lines_of_json(self, small: None, tmp_path: Path, gpt2_like: tuple[Tokenizer, Engine]) -> None:
        counts = list[float]()
        for seed in range(8):
            documents = documents_of(random.Random(seed), 400)
            write_lines(tmp_path / "a.jsonl", documents)
            counts.append(self.check([tmp_path / "a.jsonl"], documents, gpt2_like, 0.3).documents or 0)
        assert sum(counts) / len(counts) == pytest.approx(400, rel=0.25), "long lines count as short ones"

    def test_texts_with_separators(
        self, small: None, tmp_path: Path, gpt2_like: tuple[Tokenizer, Engine]
    ) -> None:
        documents = [text.replace("=", "") for text in documents_of(random.Random(3), 400)]
        (tmp_path / "a.txt").write_bytes("\n=\n".join(documents).encode())
        found = self.check([tmp_path / "a.txt"], documents, gpt2_like, 0.3, document_separator="=")
        assert found.documents == pytest.approx(400, rel=0.5)

    def test_many_small_files(self, small: None, tmp_path: Path, gpt2_like: tuple[Tokenizer, Engine]) -> None:
        documents = documents_of(random.Random(4), 200)
        for number, text in enumerate(documents):
            (tmp_path / f"{number:03}.txt").write_bytes(text.encode())
        assert self.check([tmp_path], documents, gpt2_like, 0.3).documents == 200

    @pytest.mark.parametrize("suffix", [".gz", ".zst"])
    def test_one_compressed_file_is_sampled_at_its_start(
        self, suffix: str, small: None, tmp_path: Path, gpt2_like: tuple[Tokenizer, Engine]
    ) -> None:
        text = "".join(stretches(random.Random(5), 400_000))
        data = text.encode()
        packed = gzip.compress(data) if suffix == ".gz" else zstd_bytes(data)
        (tmp_path / f"a.txt{suffix}").write_bytes(packed)
        found = self.check([tmp_path / f"a.txt{suffix}"], [text], gpt2_like, 0.5)
        assert found.text_bytes == pytest.approx(len(data), rel=0.5)
        assert not found.is_complete

    def test_parquet_by_row_groups(
        self, small: None, tmp_path: Path, gpt2_like: tuple[Tokenizer, Engine]
    ) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        documents = documents_of(random.Random(7), 400)
        for rows in (10, 60, 400):
            pq.write_table(pa.table({"text": documents}), tmp_path / "a.parquet", row_group_size=rows)
            found = self.check([tmp_path / "a.parquet"], documents, gpt2_like, 0.3)
            assert found.documents == pytest.approx(400)

    def test_kinds_together_and_another_encoding(
        self, small: None, tmp_path: Path, gpt2_like: tuple[Tokenizer, Engine]
    ) -> None:
        draw = random.Random(8)
        lines, text = documents_of(draw, 200), "".join(stretches(draw, 200_000))
        write_lines(tmp_path / "b.jsonl", lines)
        (tmp_path / "a.txt").write_bytes(text.encode())
        names = [tmp_path / "a.txt", tmp_path / "b.jsonl"]
        self.check(names, [text, *lines], gpt2_like, 0.3)
        for name, data in zip(names, (text, names[1].read_text()), strict=True):
            name.write_bytes(data.encode("utf-16"))
        self.check(names, [text, *lines], gpt2_like, 0.5, encoding="utf-16")

    def test_what_is_short_is_encoded_whole_and_exact(
        self, small: None, tmp_path: Path, gpt2_like: tuple[Tokenizer, Engine]
    ) -> None:
        documents = ["A text.", "Another\r\n\r\none 水 "]
        write_lines(tmp_path / "a.jsonl", documents)
        write_lines(tmp_path / "b.jsonl.gz", documents)
        names = [tmp_path / "a.jsonl", tmp_path / "b.jsonl.gz"]
        found = self.check(names, documents * 2, gpt2_like, 0)
        assert (found.is_complete, found.documents) == (True, 4)

    def test_a_line_longer_than_a_sample_is_unknown(
        self, small: None, tmp_path: Path, gpt2_like: tuple[Tokenizer, Engine]
    ) -> None:
        write_lines(tmp_path / "a.jsonl", ["word " * 2_000_000])
        tokenizer, engine = gpt2_like
        found = forecast(open_inputs([str(tmp_path / "a.jsonl")], InputOptions()), tokenizer, engine)
        assert (found.tokens, found.disk_bytes) == (None, None)


class TestLimits:
    def limited(self, tmp_path: Path, *names: str, **limits: int) -> Forecast:
        paths = [str(tmp_path / name) for name in names]
        return forecast(
            open_inputs(paths, InputOptions(**limits)), BytesTokenizer(), BytesEngine(BytesTokenizer())
        )

    @pytest.fixture
    def lines(self, small: None, tmp_path: Path) -> None:
        (tmp_path / "a.jsonl").write_text('{"text": "water"}\n' * 10_000)
        (tmp_path / "b.txt").write_text("w" * 100_000)

    def test_documents(self, lines: None, tmp_path: Path) -> None:
        found = self.limited(tmp_path, "a.jsonl", max_documents=100)
        assert (found.tokens, found.documents, found.is_limited) == (pytest.approx(600), 100, True)
        assert found.text_bytes == pytest.approx(500)

    def test_tokens_end_with_their_document(self, lines: None, tmp_path: Path) -> None:
        found = self.limited(tmp_path, "a.jsonl", max_tokens=601)
        assert (found.tokens, found.documents) == (pytest.approx(606), 101)
        one = self.limited(tmp_path, "b.txt", max_tokens=601)
        assert (one.tokens, one.is_limited) == (100_001, False), "its one document is taken whole"

    def test_over_several_inputs(self, lines: None, tmp_path: Path) -> None:
        found = self.limited(tmp_path, "a.jsonl", "b.txt", max_tokens=60_001)
        assert found.tokens == pytest.approx(160_001)
        found = self.limited(tmp_path, "a.jsonl", "b.txt", max_tokens=59_000)
        assert found.tokens == pytest.approx(59_000, rel=0.001)

    def test_limits_that_are_not_reached_change_nothing(self, lines: None, tmp_path: Path) -> None:
        found = self.limited(tmp_path, "a.jsonl", max_documents=10_001, max_tokens=10**9)
        assert found.tokens == pytest.approx(60_000)


def test_samples_are_the_same_each_time_and_few_of_a_large_file(tmp_path: Path) -> None:
    with open(tmp_path / "a.txt", "wb") as file:
        for number in range(3000):
            file.write(b"%07d " % number * 1000)
    first, again = ([sample for _, sample in samples([TextFile(tmp_path / "a.txt")])] for _ in range(2))
    assert first == again
    assert len(first) == forecast_room.PLACES
    assert sum(sample.size_bytes for sample in first) < 4 << 20
    numbers = [int(sample.texts[0].split()[1]) for sample in first]
    gaps = [after - before for before, after in pairwise(numbers)]
    assert max(gaps) <= 2 * 3000 / forecast_room.PLACES + 1, "none of the text is passed over"
    assert len(set(gaps)) > 10, "no step that a text could keep"


@pytest.mark.slow
def test_real_source_code(tmp_path: Path, tokenizer_folder: Folder) -> None:
    tokenizer = read_tokenizer(tokenizer_folder("gpt2"), "gpt2")
    source = StdlibSource()
    found = forecast(source, tokenizer, FastokensEngine.of(tokenizer))
    made = pretokenize(source, tokenizer, tmp_path / "x.npy").manifest
    assert found.tokens == pytest.approx(made["tokens"], rel=0.15)
    assert found.documents == pytest.approx(made["documents"], rel=0.4)
    assert found.text_bytes == pytest.approx(source.total_bytes, rel=0.05)
    assert found.bytes_per_s > 1e6
