"""Whatever the samples of a text hold, the command says the same of a bad text with any tokenizer."""

from __future__ import annotations

import gzip
import json
import os
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import pretokenize_dataset
from data_loading.pretokenizer.engines.fastokens import FastokensEngine
from data_loading.pretokenizer.engines.parity import difference_on
from data_loading.pretokenizer.sources.json_lines import JsonLines
from data_loading.text_io.byte_files import SAMPLE_BYTES
from data_loading.tokenizers.read_files import read_tokenizer
from data_loading.tokenizers.special_tokens import probes
from tests.golden_text import Golden

LONG_BYTES = 1_200_000
"""More than the three samples that are taken of a text."""
BAD = {
    "field.jsonl": b'{"body": "hello"}\n',
    "surrogate.jsonl": b'{"text": "a\\ud800"}\n',
    "list.jsonl": b"[1, 2]\n",
    "broken.jsonl": b'{"text": "a\n' * 9,
    "long_broken.jsonl": b'{"text": "' + b"a b " * (LONG_BYTES // 4),
    "empty.jsonl": b'{"text": ""}\n' * 9,
    "bytes.txt": b"\xff" * LONG_BYTES,
    "bytes.txt.gz": gzip.compress(b"\xff" * LONG_BYTES),
    "bytes.jsonl": b"\xff" * LONG_BYTES,
}


@pytest.fixture
def gpt2(tokenizer_folder: Callable[[str], Path]) -> str:
    return str(tokenizer_folder("gpt2"))


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert pretokenize_dataset.main(list(arguments)) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    return line


@pytest.mark.parametrize(("name", "workers"), [*((name, "0") for name in BAD), ("field.jsonl", "1")])
def test_a_bad_text_is_told_with_any_tokenizer(
    name: str,
    workers: str,
    gpt2: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_bytes(BAD[name])
    common = (name, "--output", "x.npy", "--workers", workers)
    told = refused(capsys, *common, "--tokenizer", "bytes")
    assert refused(capsys, *common, "--tokenizer", gpt2) == told


def test_a_table_of_nulls(
    gpt2: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    monkeypatch.chdir(tmp_path)
    parquet.write_table(pa.table({"text": pa.array([None] * 9, pa.string())}), "a.parquet")
    told = refused(capsys, "a.parquet", "--tokenizer", "bytes")
    assert refused(capsys, "a.parquet", "--tokenizer", gpt2) == told


def test_standard_input_that_is_no_text(
    gpt2: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    told = []
    for tokenizer in ("bytes", gpt2):
        read, write = os.pipe()
        os.write(write, b"\xff")
        os.close(write)
        before = os.dup(0)
        os.dup2(read, 0)
        try:
            told.append(refused(capsys, "-", "--tokenizer", tokenizer, "--output", "x.npy"))
        finally:
            os.dup2(before, 0)
            os.close(before)
            os.close(read)
    assert told[0] == told[1]


def long_text(count: int) -> str:
    words = ["the", "water", "\u00e9t\u00e9", "\u6587\u5b57", '"quoted"', "\\", "\n", "\U0001f600"]
    return " ".join(random.Random(0).choices(words, k=count))


@pytest.mark.parametrize(("packed", "ascii_only", "words"), [(False, True, 100_000), (True, False, 250_000)])
def test_long_lines_are_sampled_and_tokenized(
    packed: bool,
    ascii_only: bool,
    words: int,
    gpt2: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A line that is longer than a sample is compared up to the length of one."""
    monkeypatch.chdir(tmp_path)
    text = long_text(words)
    line = (json.dumps({"id": 1, "text": text}, ensure_ascii=ascii_only) + "\n").encode()
    assert len(line) > (3 * SAMPLE_BYTES if packed else SAMPLE_BYTES)
    data = line * 2
    name = "a.jsonl.gz" if packed else "a.jsonl"
    Path(name).write_bytes(gzip.compress(data) if packed else data)
    samples = JsonLines(Path(name)).samples()
    found = b"".join(samples)
    assert len(found) > 300_000
    assert all(text.encode().startswith(sample) for sample in samples)
    assert pretokenize_dataset.main([name, "--tokenizer", gpt2, "--json", "--output", "x.npy"]) == 0
    facts = json.loads(capsys.readouterr().out)
    probed = sum(map(len, probes(read_tokenizer(Path(gpt2), "gpt2"))))
    assert facts["engine"]["compared_bytes"] == len(found) + probed
    reference = ["--tokenizer", gpt2, "--engine", "huggingface", "--output", "y.npy"]
    assert pretokenize_dataset.main([name, *reference]) == 0
    assert np.array_equal(np.load("x.npy"), np.load("y.npy"))


def test_texts_elsewhere_than_at_the_usual_places(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    nothing = b'{"text": ""}\n' * 90_000
    path.write_bytes(nothing + b'{"text": "some words"}\n' + nothing * 2)
    assert JsonLines(path).samples() == [b"some words"]


def test_no_text_is_no_difference(gpt2: str) -> None:
    tokenizer = read_tokenizer(Path(gpt2), "gpt2")
    for samples in ([], [b""], [b"", b"words"]):
        assert difference_on(FastokensEngine(tokenizer), tokenizer, samples) is None


@pytest.mark.parametrize("name", ["field.jsonl", "bytes.txt"])
def test_a_plan_of_a_bad_text_ends_without_a_traceback(
    name: str, gpt2: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_bytes(BAD[name])
    assert pretokenize_dataset.main([name, "--tokenizer", gpt2, "--dry-run"]) in (0, 2)


@pytest.mark.parametrize("data", ["water ".encode("utf-16") * 40_000, b"\x80" * 300_000])
@pytest.mark.parametrize("workers", ["0", "1"])
def test_what_is_no_text_is_not_called_a_run_without_spaces(
    data: bytes,
    workers: str,
    gpt2: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    golden: Golden,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_bytes(data)
    command = ("a.txt", "--tokenizer", gpt2, "--run-limit", "100KB", "--workers", workers)
    golden.text(refused(capsys, *command))
    if data[0] == 0x80:
        golden.text(refused(capsys, *command, "--errors", "replace"), "replace")


def test_a_run_may_end_inside_a_character(
    gpt2: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    golden: Golden,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text("\u00e9" * 700_000)
    limit = str((1 << 20) - 5)
    golden.text(refused(capsys, "a.txt", "--tokenizer", gpt2, "--run-limit", limit))
    Path("a.txt").write_text("a" + "\u00e9" * 700_000)
    golden.text(refused(capsys, "a.txt", "--tokenizer", gpt2, "--run-limit", limit))
