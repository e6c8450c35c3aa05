"""Tokens by path."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from data_loading import StreamingDataset, Tokens, open_tokens, pretokenize
from data_loading.pretokenizer.options import Options
from data_loading.text_io.text_file import TextFile
from data_loading.tokenizers.tokenizer import BytesTokenizer
from tests.golden_text import Golden


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "x.txt"
    path.write_text("some words and more of them " * 40)
    pretokenize(TextFile(path), BytesTokenizer(), tmp_path / "x.npy")
    return path


@pytest.mark.parametrize("name", ["x", "x.npy", "x.txt"])
def test_by_each_of_its_names(text: Path, name: str) -> None:
    found = open_tokens(text.with_name(name))
    assert isinstance(found, Tokens)
    assert found.name == str(text.with_name("x.npy"))
    assert (found.n_tokens, found.vocab_size, found.tokenizer_name) == (28 * 40 + 1, 257, "bytes")
    assert found.held_out is None
    dataset = StreamingDataset(found, seq_len=16)
    assert dataset.fingerprint == StreamingDataset(str(text), seq_len=16).fingerprint


def test_a_lone_file_takes_the_vocabulary_given(tmp_path: Path, golden: Golden) -> None:
    np.save(tmp_path / "lone.npy", np.arange(100, dtype="<u2"))
    assert open_tokens(tmp_path / "lone.npy").vocab_size == 100
    assert open_tokens(tmp_path / "lone.npy", vocab_size=1000).vocab_size == 1000
    with golden.refused("id-outside-vocabulary"):
        open_tokens(tmp_path / "lone.npy", vocab_size=50)


def test_a_text_without_tokens(tmp_path: Path, golden: Golden) -> None:
    (tmp_path / "only.txt").write_text("words")
    with golden.refused("not-tokenized"):
        open_tokens(tmp_path / "only.txt")


def test_a_pair(text: Path, golden: Golden) -> None:
    for part in ("train", "val"):
        (text.parent / "pair").mkdir(exist_ok=True)
        for end in (".npy", ".npy.json", ".docs.npy"):
            shutil.copy(text.with_name(f"x{end}"), text.parent / "pair" / f"{part}{end}")
    with golden.refused("path-is-pair"):
        open_tokens(text.parent / "pair")


def test_an_unknown_scheme(golden: Golden) -> None:
    with golden.refused("scheme-unknown"):
        open_tokens("gopher://there")


@pytest.mark.parametrize("share", [-0.1, True, 1.5, 1.0, float("nan"), "0.1", 0, -3])
def test_no_share(text: Path, share: object, golden: Golden) -> None:
    with golden.refused("share-invalid"):
        StreamingDataset(text, seq_len=16, val=share)  # type: ignore[arg-type]


@pytest.mark.parametrize("path", ["", "/"])
def test_no_path(path: str, golden: Golden) -> None:
    with golden.refused("path-invalid"):
        open_tokens(path)


def test_a_manifest_is_not_the_tokens(text: Path, golden: Golden) -> None:
    with golden.refused("path-is-manifest"):
        open_tokens(text.with_name("x.npy.json"))


def test_a_set_from_inside_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.txt").write_text("some words and more of them " * 40)
    pretokenize(TextFile(tmp_path / "x.txt"), BytesTokenizer(), tmp_path / "set", Options(shard_tokens=500))
    monkeypatch.chdir(tmp_path / "set")
    assert open_tokens(".").fingerprint == open_tokens(tmp_path / "set").fingerprint


def test_fewer_workers_than_none(golden: Golden) -> None:
    with golden.refused("workers-negative"):
        Options(workers=-1)


def test_a_share_of_a_set_that_has_a_val_of_its_own(text: Path, golden: Golden) -> None:
    for part in ("x_train", "x_val"):
        (text.parent / f"{part}.txt").write_text(f"{part} words " * 60)
        pretokenize(TextFile(text.parent / f"{part}.txt"), BytesTokenizer(), text.parent / f"{part}.npy")
    for path in (text, *text.parent.glob("x.*npy*")):
        path.unlink()
    assert len(StreamingDataset(text.with_name("x"), "val", seq_len=16)) > 10
    with golden.refused("val-given-twice"):
        StreamingDataset(text.with_name("x"), "val", seq_len=16, val=0.5)
