"""A trained tokenizer: exact and whole, the same for the same text, of the size asked for."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import numpy as np
import pytest

from data_loading.pretokenizer import train_bpe as bpe
from data_loading.pretokenizer.job import pretokenize
from data_loading.pretokenizer.options import Options
from data_loading.pretokenizer.train_bpe import train_tokenizer
from data_loading.text_io.text_file import TextFile
from data_loading.tokenizers.read_files import read_tokenizer
from experiment_utils import atomic_files
from tests.data_loading.conftest import FRAGMENTS, training_text
from tests.golden_text import Golden


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "a.txt"
    path.write_text("".join(training_text()) + "".join(FRAGMENTS), newline="")
    return path


def test_it_gives_back_any_text_and_has_the_size_asked_for(
    text: Path, tmp_path: Path, golden: Golden
) -> None:
    said: list[str] = []
    folder = train_tokenizer(TextFile(text), 1000, tmp_path / "bpe", said.append)
    tokenizer = read_tokenizer(folder, "mine")
    assert tokenizer.vocab_size == 1000
    assert tokenizer.eot_id == 999
    assert tokenizer.cut_rule.exists
    whole = text.read_bytes().decode() + "\x00 ünseen 文字 \U0001f600"
    ids = tokenizer.encode(whole)
    assert tokenizer.decode(ids) == whole
    assert len(ids) < 0.6 * len(whole.encode())
    result = pretokenize(TextFile(text), tokenizer, tmp_path / "a.npy", Options(block_bytes=5000))
    expected = tokenizer.encode(text.read_bytes().decode())
    assert np.load(result.path)[:-1].tolist() == expected.tolist()
    golden.text(said[-1], numbers=False)


def test_the_same_text_gives_the_same_tokenizer_however_it_is_cut(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train_tokenizer(TextFile(text), 500, tmp_path / "one")
    monkeypatch.setattr(bpe, "_PART_BYTES", 777)
    train_tokenizer(TextFile(text), 500, tmp_path / "two")
    files = [(tmp_path / name / "tokenizer.json").read_bytes() for name in ("one", "two")]
    assert files[0] == files[1]


def test_it_is_trained_once(text: Path, tmp_path: Path, golden: Golden) -> None:
    train_tokenizer(TextFile(text), 400, tmp_path / "bpe")
    before = (tmp_path / "bpe/tokenizer.json").stat().st_mtime_ns
    said: list[str] = []
    train_tokenizer(TextFile(text), 400, tmp_path / "bpe", said.append)
    assert (tmp_path / "bpe/tokenizer.json").stat().st_mtime_ns == before
    golden.text(said[0], numbers=False)


@pytest.mark.parametrize("what", ["text", "size", "not ours"])
def test_another_tokenizer_is_not_replaced(what: str, text: Path, tmp_path: Path, golden: Golden) -> None:
    folder = train_tokenizer(TextFile(text), 400, tmp_path / "bpe")
    before = (folder / "tokenizer.json").read_bytes()
    if what == "text":
        os.utime(text, (1, 1))
    if what == "not ours":
        (folder / "training.json").unlink()
    with golden.refused("bpe-of-other-text"):
        train_tokenizer(TextFile(text), 500 if what == "size" else 400, folder)
    assert (folder / "tokenizer.json").read_bytes() == before


def test_of_a_long_text_parts_from_all_over_are_used(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bpe, "TRAINING_BYTES", text.stat().st_size // 3)
    monkeypatch.setattr(bpe, "_PART_BYTES", 2000)
    folder = train_tokenizer(TextFile(text), 400, tmp_path / "bpe")
    used = json.loads((folder / "training.json").read_text())["bytes"]
    assert 0.2 * text.stat().st_size < used < 0.5 * text.stat().st_size


def test_a_text_too_small_for_the_size_is_told(tmp_path: Path, golden: Golden) -> None:
    (tmp_path / "a.txt").write_text("abcdefg " * 3)
    said: list[str] = []
    folder = train_tokenizer(TextFile(tmp_path / "a.txt"), 5000, tmp_path / "bpe", said.append)
    golden.text("\n".join(said), numbers=False)
    assert read_tokenizer(folder, "mine").vocab_size < 300


@pytest.mark.parametrize("size", [0, 256, 2 << 20])
def test_a_size_that_cannot_be(size: int, text: Path, tmp_path: Path, golden: Golden) -> None:
    with golden.refused("bpe-size"):
        train_tokenizer(TextFile(text), size, tmp_path / "bpe")
    assert not (tmp_path / "bpe").exists()


@pytest.mark.parametrize("file", ["tokenizer.json", "training.json"])
def test_a_full_disk_leaves_nothing(
    file: str, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_text = atomic_files.write_text

    def full(path: Path, content: str) -> None:
        if path.name == file:
            raise OSError(errno.ENOSPC, "")
        write_text(path, content)

    with monkeypatch.context() as patched:
        patched.setattr(atomic_files, "write_text", full)
        with pytest.raises(OSError, match=str(errno.ENOSPC)):
            train_tokenizer(TextFile(text), 400, tmp_path / "bpe")
    assert not (tmp_path / "bpe").exists()
    train_tokenizer(TextFile(text), 400, tmp_path / "bpe")


def test_bytes_that_are_no_text(tmp_path: Path, golden: Golden) -> None:
    (tmp_path / "a.txt").write_bytes(b"good words " * 100 + b"\xff")
    with golden.refused("undecodable"):
        train_tokenizer(TextFile(tmp_path / "a.txt"), 400, tmp_path / "bpe")
    assert not (tmp_path / "bpe").exists()
    train_tokenizer(TextFile(tmp_path / "a.txt", errors="ignore"), 400, tmp_path / "bpe")
