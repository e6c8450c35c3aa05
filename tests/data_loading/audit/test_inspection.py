"""inspect: counts that agree with the plain way of counting."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pretokenize_dataset
from data_loading.audit import inspection
from data_loading.audit.inspection import inspect
from data_loading.commands.set_commands import main
from data_loading.pretokenizer.job import pretokenize
from data_loading.pretokenizer.options import Options
from data_loading.text_io.text_file import TextFile
from data_loading.tokenizers.tokenizer import BytesTokenizer
from tests.golden_text import Golden


def make(folder: Path, documents: list[str]) -> Path:
    (folder / "a.txt").write_text("\n-\n".join(documents))
    source = TextFile(folder / "a.txt", document_separator="-")
    pretokenize(source, BytesTokenizer(), folder / "a.npy", Options(overwrite=True))
    return folder / "a.npy"


@given(
    documents=st.lists(st.text("abc ", min_size=1, max_size=30), min_size=1, max_size=30),
    ids=st.sampled_from([7, 1 << 24]),
    looked_at=st.sampled_from([4, 1 << 20]),
)
def test_counts_are_those_of_counting(documents: list[str], ids: int, looked_at: int, tmp_path: Path) -> None:
    path = make(tmp_path, documents)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inspection, "_READ_IDS", ids)
        patch.setattr(inspection, "_MOST_LENGTHS", looked_at)
        found = inspect(path)
    tokens = np.load(path).tolist()
    assert found.tokens == len(tokens)
    assert found.used_ids == len(set(tokens))
    assert [(i, round(share * len(tokens))) for i, _, share in found.most_frequent] == sorted(
        ((i, tokens.count(i)) for i in set(tokens)), key=lambda pair: (-pair[1], pair[0])
    )[:10]
    shares = np.array([tokens.count(i) for i in set(tokens)]) / len(tokens)
    assert found.entropy_bits == pytest.approx(-(shares * np.log2(shares)).sum())
    starts = np.load(tmp_path / "a.docs.npy").tolist()
    lengths = np.diff([*starts, len(tokens)])
    assert found.lengths is not None
    assert found.documents == len(lengths)
    assert found.lengths.mean == pytest.approx(lengths.mean())
    assert found.lengths.estimated == (len(lengths) > looked_at)
    if not found.lengths.estimated:
        assert (found.lengths.smallest, found.lengths.largest) == (lengths.min(), lengths.max())
        assert found.lengths.median == np.sort(lengths)[(len(lengths) - 1) // 2]
    else:
        assert lengths.min() <= found.lengths.smallest <= found.lengths.largest <= lengths.max()


def test_a_file_from_elsewhere(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([3, 3, 9], np.int32))
    found = inspect(tmp_path / "a.npy")
    assert (found.vocab_size, found.used_ids, found.documents, found.first_text) == (10, 2, None, None)
    assert found.most_frequent[0] == (3, None, pytest.approx(2 / 3))


@pytest.mark.parametrize(("flags", "text_bytes"), [
    ([], 33), (["--max-documents", "1"], None), (["--max-tokens", "3"], None), (["--dedup", "lines"], 22),
    (["--clean", "normalize"], 32),
])  # fmt: skip
def test_bytes_a_token_are_those_of_the_text_that_was_used(
    flags: list[str], text_bytes: int | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.txt").write_text("the  water\n-\nthe high\n-\nthe high\n")
    output = ["--output", str(tmp_path / "a.npy"), "--workers", "0"]
    assert pretokenize_dataset.main([str(tmp_path / "a.txt"), "--tokenizer", "bytes", *output, *flags]) == 0
    assert inspect(tmp_path / "a.npy").text_bytes == text_bytes
    assert ("MB/s" in capsys.readouterr().out) == ("--max" not in "".join(flags))


@pytest.mark.parametrize(("name", "text_bytes"), [("a.txt.gz", 36_000), ("a.jsonl", None)])
def test_bytes_a_token_of_packed_text(name: str, text_bytes: int | None, tmp_path: Path) -> None:
    text = "the high water mark " * 1800
    if name == "a.jsonl":
        (tmp_path / name).write_text(json.dumps({"text": text}) + "\n")
    else:
        (tmp_path / name).write_bytes(gzip.compress(text.encode()))
    output = ["--output", str(tmp_path / "a.npy"), "--workers", "0"]
    assert pretokenize_dataset.main([str(tmp_path / name), "--tokenizer", "bytes", *output]) == 0
    found = inspect(tmp_path / "a.npy")
    assert found.text_bytes == text_bytes
    assert found.bytes_per_token == (None if text_bytes is None else pytest.approx(1, abs=0.001))


def test_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str], golden: Golden) -> None:
    path = make(tmp_path, ["the high water mark", "of memory"])
    assert main(["inspect", str(path)]) == 0
    page = capsys.readouterr().out
    golden.text(page, numbers=False)
    assert main(["inspect", str(tmp_path / "a"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tokens"] == 31
