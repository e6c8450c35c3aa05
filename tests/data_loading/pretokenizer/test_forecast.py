"""The forecast: what was said before is what came out, within the error that was said with it."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from data_loading.pretokenizer import forecast as forecast_room
from data_loading.pretokenizer import sampling
from data_loading.pretokenizer.bytes_engine import BytesEngine
from data_loading.pretokenizer.cuts import EVERY_CHARACTER
from data_loading.pretokenizer.engine import Engine
from data_loading.pretokenizer.fastokens_engine import FastokensEngine
from data_loading.pretokenizer.find_inputs import InputOptions, open_inputs
from data_loading.pretokenizer.forecast import Forecast, Measured, forecast
from data_loading.pretokenizer.job import pretokenize
from data_loading.pretokenizer.sampling import take_samples
from data_loading.pretokenizer.stdlib_source import StdlibSource
from data_loading.pretokenizer.texts import TextFile
from data_loading.tokenizer import BytesTokenizer, Tokenizer
from data_loading.tokenizer_files import read_tokenizer
from tests.data_loading.conftest import training_text, zstd_bytes

Folder = Callable[[str], Path]
WORDS = ["the", "water", "rose", "and", "a", "mark", "stayed", "high", "over", "all", "of", "it"]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples of 48 KB together, encoded in this process."""
    monkeypatch.setattr(sampling, "PLACES", 48)
    monkeypatch.setattr(sampling, "WINDOW_BYTES", 1024)
    monkeypatch.setattr(sampling, "_START_BYTES", 100 << 10)
    monkeypatch.setattr(sampling, "_EACH_START_BYTES", 10 << 10)

    def here(engine: Engine, texts: list[bytes]) -> Measured:
        return Measured([int(count) for count in engine.encode_batch(texts)[1]], 1e6, 0.0, 0)

    monkeypatch.setattr(forecast_room, "_encoded", here)


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


def test_the_truth_lies_in_the_interval_of_nine_texts_in_ten(
    small: None, tmp_path: Path, gpt2_like: tuple[Tokenizer, Engine]
) -> None:
    tokenizer, engine = gpt2_like
    inside, errors = 0, []
    for seed in range(60):
        draw = random.Random(seed)
        text = "".join(stretches(draw, 300_000))
        (tmp_path / "a.txt").write_bytes(text.encode())
        found = forecast(TextFile(tmp_path / "a.txt"), tokenizer, engine)
        tokens = true_tokens(text, engine) + 1
        assert found.tokens is not None
        assert found.error_tokens is not None
        inside += abs(found.tokens - tokens) <= found.error_tokens
        errors.append(found.error_tokens / tokens)
        assert found.text_bytes == pytest.approx(len(text.encode()))
        assert found.documents == 1
        assert not found.is_complete
    assert inside >= 54
    assert sorted(errors)[30] < 0.2, "an interval that holds everything says nothing"


def test_samples_begin_and_end_where_a_cut_changes_no_id(
    small: None, tmp_path: Path, gpt2_like: tuple[Tokenizer, Engine]
) -> None:
    tokenizer, _ = gpt2_like
    (tmp_path / "a.txt").write_text("extraordinarily unquestionable\n" * 30_000)
    (kind,) = take_samples([TextFile(tmp_path / "a.txt")], tokenizer.cut_rule)
    for sample in kind.samples[1:-1]:
        words = sample.texts[0].split()
        assert {*words} == {b"extraordinarily", b"unquestionable"}, "whole words"
        assert sample.texts[0][:1] in b" \n"
        assert sample.size_bytes == len(sample.texts[0])


def test_text_without_safe_cuts_is_sampled_all_the_same(
    small: None, tmp_path: Path, gpt2_like: tuple[Tokenizer, Engine]
) -> None:
    tokenizer, _ = gpt2_like
    (tmp_path / "a.txt").write_text(("水文字的一是日本語" * 120 + "one two\n") * 100, encoding="utf-8")
    (kind,) = take_samples([TextFile(tmp_path / "a.txt")], tokenizer.cut_rule)
    assert min(len(sample.texts[0]) for sample in kind.samples) > 800


def documents_of(draw: random.Random, count: int) -> list[str]:
    return [
        "".join(stretches(draw, draw.randrange(1, 400)))[: draw.randrange(10, 5000)] for _ in range(count)
    ]


def write_lines(path: Path, documents: list[str]) -> None:
    data = "".join(json.dumps({"text": text, "meta": "x" * 20}) + "\n" for text in documents).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


class TestInputs:
    """Each kind, against what encoding all of it gives."""

    def held_against(
        self, names: list[Path], documents: list[str], gpt2_like: tuple[Tokenizer, Engine], **options: Any
    ) -> Forecast:
        tokenizer, engine = gpt2_like
        found = forecast(
            open_inputs([str(name) for name in names], InputOptions(**options)), tokenizer, engine
        )
        counts = engine.encode_batch([text.encode() for text in documents])[1]
        self.true = int(counts.sum()) + len(documents)
        assert found.tokens is not None
        return found

    def test_lines_of_json(self, small: None, tmp_path: Path, gpt2_like: tuple[Tokenizer, Engine]) -> None:
        inside, counts = 0, list[float]()
        for seed in range(12):
            documents = documents_of(random.Random(seed), 400)
            write_lines(tmp_path / "a.jsonl", documents)
            found = self.held_against([tmp_path / "a.jsonl"], documents, gpt2_like)
            assert found.error_tokens is not None
            inside += abs((found.tokens or 0) - self.true) <= found.error_tokens
            counts.append(found.documents or 0)
        assert inside >= 10
        assert sum(counts) / len(counts) == pytest.approx(400, rel=0.15), "long lines count as short ones"

    def test_texts_with_separators(
        self, small: None, tmp_path: Path, gpt2_like: tuple[Tokenizer, Engine]
    ) -> None:
        documents = [text.replace("=", "") for text in documents_of(random.Random(3), 400)]
        (tmp_path / "a.txt").write_bytes("\n=\n".join(documents).encode())
        found = self.held_against([tmp_path / "a.txt"], documents, gpt2_like, document_separator="=")
        assert found.documents == pytest.approx(400, rel=0.5)
        assert found.tokens == pytest.approx(self.true, rel=0.2)

    def test_many_small_files_are_one_whole(
        self, small: None, tmp_path: Path, gpt2_like: tuple[Tokenizer, Engine]
    ) -> None:
        documents = documents_of(random.Random(4), 200)
        for number, text in enumerate(documents):
            (tmp_path / f"{number:03}.txt").write_bytes(text.encode())
        found = self.held_against([tmp_path], documents, gpt2_like)
        assert found.documents == 200
        assert found.error_tokens is not None
        assert abs((found.tokens or 0) - self.true) <= 1.5 * found.error_tokens

    @pytest.mark.parametrize("suffix", [".gz", ".zst"])
    def test_one_compressed_file_is_known_from_its_start_alone(
        self, suffix: str, small: None, tmp_path: Path, gpt2_like: tuple[Tokenizer, Engine]
    ) -> None:
        text = "".join(stretches(random.Random(5), 400_000))
        data = text.encode()
        (tmp_path / f"a.txt{suffix}").write_bytes(
            gzip.compress(data) if suffix == ".gz" else zstd_bytes(data)
        )
        found = self.held_against([tmp_path / f"a.txt{suffix}"], [text], gpt2_like)
        assert found.error_tokens is None, "no error is claimed"
        assert found.tokens == pytest.approx(self.true, rel=0.5)
        assert found.text_bytes == pytest.approx(len(data), rel=0.5)

    def test_many_compressed_files_tell_an_error(
        self, small: None, tmp_path: Path, gpt2_like: tuple[Tokenizer, Engine]
    ) -> None:
        draw = random.Random(6)
        documents = []
        for number in range(60):
            documents.append(documents_of(draw, 6))
            write_lines(tmp_path / f"{number:02}.jsonl.gz", documents[-1])
        found = self.held_against([tmp_path], [text for some in documents for text in some], gpt2_like)
        assert found.error_tokens is not None
        assert abs((found.tokens or 0) - self.true) <= 1.5 * found.error_tokens

    def test_parquet_by_row_groups(
        self, small: None, tmp_path: Path, gpt2_like: tuple[Tokenizer, Engine]
    ) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        documents = documents_of(random.Random(7), 400)
        pq.write_table(pa.table({"text": documents}), tmp_path / "a.parquet", row_group_size=10)
        found = self.held_against([tmp_path / "a.parquet"], documents, gpt2_like)
        assert found.documents == 400
        assert found.error_tokens is not None
        assert abs((found.tokens or 0) - self.true) <= 1.5 * found.error_tokens
        for rows in (400, 60):  # one row group, and seven: too few to tell how they differ
            pq.write_table(pa.table({"text": documents}), tmp_path / "few.parquet", row_group_size=rows)
            few = self.held_against([tmp_path / "few.parquet"], documents, gpt2_like)
            assert few.error_tokens is None
            assert few.tokens == pytest.approx(self.true, rel=0.3)

    def test_kinds_together_and_another_encoding(
        self, small: None, tmp_path: Path, gpt2_like: tuple[Tokenizer, Engine]
    ) -> None:
        draw = random.Random(8)
        lines, text = documents_of(draw, 200), "".join(stretches(draw, 200_000))
        write_lines(tmp_path / "b.jsonl", lines)
        (tmp_path / "a.txt").write_bytes(text.encode())
        names = [tmp_path / "a.txt", tmp_path / "b.jsonl"]
        found = self.held_against(names, [text, *lines], gpt2_like)
        assert found.error_tokens is not None
        assert abs((found.tokens or 0) - self.true) <= found.error_tokens
        for name, data in zip(names, (text, names[1].read_text()), strict=True):
            name.write_bytes(data.encode("utf-16"))
        other = self.held_against(names, [text, *lines], gpt2_like, encoding="utf-16")
        assert other.error_tokens is None
        assert other.tokens == pytest.approx(self.true, rel=0.5)

    def test_what_is_short_is_encoded_whole_and_exact(
        self, small: None, tmp_path: Path, gpt2_like: tuple[Tokenizer, Engine]
    ) -> None:
        documents = ["A text.", "Another\r\n\r\none 水 "]
        write_lines(tmp_path / "a.jsonl", documents)
        write_lines(tmp_path / "b.jsonl.gz", documents)
        found = self.held_against([tmp_path / "a.jsonl", tmp_path / "b.jsonl.gz"], documents * 2, gpt2_like)
        assert found.is_complete
        assert (found.tokens, found.error_tokens, found.documents) == (self.true, 0, 4)


class TestLimits:
    def limited(self, tmp_path: Path, *names: str, **limits: int) -> Forecast:
        paths = [str(tmp_path / name) for name in names]
        return forecast(open_inputs(paths, InputOptions(**limits)), BytesTokenizer(), BytesEngine(""))

    @pytest.fixture
    def lines(self, small: None, tmp_path: Path) -> None:
        (tmp_path / "a.jsonl").write_text('{"text": "water"}\n' * 10_000)
        (tmp_path / "b.txt").write_text("w" * 100_000)

    def test_documents(self, lines: None, tmp_path: Path) -> None:
        found = self.limited(tmp_path, "a.jsonl", max_documents=100)
        assert (found.tokens, found.documents, found.is_limited) == (pytest.approx(600), 100, True)
        assert found.error_tokens is None
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
        assert found.error_tokens is not None


def test_samples_are_the_same_each_time_and_few_of_a_large_file(tmp_path: Path) -> None:
    with open(tmp_path / "a.txt", "wb") as file:
        for number in range(3000):
            file.write(b"%07d " % number * 1000)
    first, again = (take_samples([TextFile(tmp_path / "a.txt")], EVERY_CHARACTER) for _ in range(2))
    assert first == again
    (kind,) = first
    assert len(kind.samples) == sampling.PLACES
    assert kind.sampled_bytes < 4 << 20
    numbers = [int(sample.texts[0].split()[1]) for sample in kind.samples]
    gaps = [after - before for before, after in pairwise(numbers)]
    assert max(gaps) <= 2 * 3000 / sampling.PLACES + 1, "none of the text is passed over"
    assert len(set(gaps)) > 10, "no step that a text could keep"


@pytest.mark.slow
def test_real_source_code_in_a_process_of_its_own(tmp_path: Path, tokenizer_folder: Folder) -> None:
    """Forecast and outcome, nothing stood in for."""
    tokenizer = read_tokenizer(tokenizer_folder("gpt2"), "gpt2")
    source = StdlibSource()
    found = forecast(source, tokenizer, FastokensEngine.of(tokenizer))
    made = pretokenize(source, tokenizer, tmp_path / "x.npy").manifest
    assert found.tokens is not None
    assert found.error_tokens is not None
    assert 0 < found.error_tokens < 0.1 * found.tokens
    assert abs(found.tokens - made["tokens"]) <= found.error_tokens
    assert found.documents == pytest.approx(made["documents"], rel=0.3)
    assert found.text_bytes == pytest.approx(source.total_bytes, rel=0.05)
    assert found.bytes_per_s > 1e6
    assert 20 << 20 < found.worker_bytes < 400 << 20
