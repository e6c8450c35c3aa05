"""open_tokens: tokens by path, name or URI."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest

from data_loading import StreamingDataset, Tokens, open_tokens, pretokenize
from data_loading.find.locate import NothingThere
from data_loading.pretokenizer.options import Options
from data_loading.text_io.text_file import TextFile
from data_loading.tokenizers.tokenizer import BytesTokenizer
from experiment_utils.errors import UserError
from tests.golden_text import Golden


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "x.txt"
    path.write_text("some words and more of them " * 40)
    pretokenize(TextFile(path), BytesTokenizer(), tmp_path / "x.npy")
    return path


@pytest.mark.parametrize("name", ["x", "x.npy", "x.txt"])
def test_set_opens_by_each_of_its_names(text: Path, name: str) -> None:
    found = open_tokens(text.with_name(name))
    assert isinstance(found, Tokens)
    assert found.name == str(text.with_name("x.npy"))
    assert (found.n_tokens, found.vocab_size, found.tokenizer_name) == (28 * 40 + 1, 257, "bytes")
    assert found.held_out is None
    dataset = StreamingDataset(found, seq_len=16)
    assert dataset.fingerprint == StreamingDataset(str(text), seq_len=16).fingerprint


def test_lone_file_has_the_given_vocabulary(tmp_path: Path, golden: Golden) -> None:
    np.save(tmp_path / "lone.npy", np.arange(100, dtype="<u2"))
    assert open_tokens(tmp_path / "lone.npy").vocab_size == 100
    assert open_tokens(tmp_path / "lone.npy", vocab_size=1000).vocab_size == 1000
    with golden.refused("id-outside-vocabulary"):
        open_tokens(tmp_path / "lone.npy", vocab_size=50)


def test_text_without_tokens_is_refused(tmp_path: Path, golden: Golden) -> None:
    (tmp_path / "only.txt").write_text("words")
    with golden.refused("not-tokenized"):
        open_tokens(tmp_path / "only.txt")


def test_pair_is_train_with_its_val_set(text: Path) -> None:
    (text.parent / "pair").mkdir()
    for part in ("train", "val"):
        path = text.parent / "pair" / f"{part}.txt"
        path.write_text(f"{part} words " * 60)
        pretokenize(TextFile(path), BytesTokenizer(), path.with_suffix(".npy"))
    found = open_tokens(text.parent / "pair")
    assert isinstance(found, Tokens)
    assert found.val_set is not None
    assert (found.n_tokens, found.val_set.n_tokens) == (60 * 12 + 1, 60 * 10 + 1)
    for source in (found, pickle.loads(pickle.dumps(found)), text.parent / "pair"):
        dataset = StreamingDataset(source, "val", seq_len=16)
        assert dataset.data.tokens("val") == found.val_set.n_tokens
        assert dataset.data.tokens("train") == found.n_tokens


def test_set_is_found_by_its_name(text: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden) -> None:
    (text.parent / "Datasets").mkdir()
    for path in text.parent.glob("x.*npy*"):
        shutil.copy(path, text.parent / "Datasets" / path.name.replace("x.", "words."))
    monkeypatch.chdir(text.parent)
    assert open_tokens("words").fingerprint == open_tokens("x.npy").fingerprint
    with golden.refused("path-not-found"):
        open_tokens("other")
    with golden.refused("path-not-found"):
        open_tokens("d/words")


@pytest.mark.parametrize("source", ["x.npy", "synthetic:zipf:100:1K"])
def test_dtype_is_for_raw_ids_only(
    text: Path, source: str, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    monkeypatch.chdir(text.parent)
    with golden.refused("dtype-not-for-format"):
        open_tokens(source, dtype="uint16")


def test_val_of_zero_trains_on_all(text: Path, golden: Golden) -> None:
    tokens = open_tokens(text)
    for none in (0, 0.0):
        dataset = StreamingDataset(tokens, seq_len=16, val=none)
        assert len(dataset) == (tokens.n_tokens - 1) // 16
        assert dataset.data.splits == ("train",)
        assert dataset.data.describe()["val_tokens"] == 0
        with golden.refused("no-val-split"):
            StreamingDataset(tokens, "val", seq_len=16, val=none)
    assert StreamingDataset(tokens, seq_len=16, val=0, test=100).data.splits == ("train", "test")


def test_val_of_zero_trains_on_the_held_out_part_of_a_set(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("some words and more of them " * 40)
    options = Options(val_fraction=0.2)
    pretokenize(TextFile(tmp_path / "x.txt"), BytesTokenizer(), tmp_path / "x.npy", options)
    tokens = open_tokens(tmp_path / "x.npy")
    assert tokens.held_out
    assert StreamingDataset(tokens, seq_len=16, val=0).data.train_ranges == (range(tokens.n_tokens),)


def test_shares_of_split_data_are_refused(text: Path, golden: Golden) -> None:
    data = StreamingDataset(text, seq_len=16).data
    with golden.refused("val-given-twice"):
        StreamingDataset(data, seq_len=16, val=0.2)


def test_unknown_scheme_is_refused(golden: Golden) -> None:
    with golden.refused("scheme-unknown"):
        open_tokens("gopher://there")


@pytest.mark.parametrize("share", [-0.1, True, 1.5, 1.0, float("nan"), "0.1", -3])
def test_invalid_share_is_refused(text: Path, share: object, golden: Golden) -> None:
    with golden.refused("share-invalid"):
        StreamingDataset(text, seq_len=16, val=share)  # type: ignore[arg-type]


@pytest.mark.parametrize("path", ["", "/"])
def test_path_without_a_name_is_refused(path: str, golden: Golden) -> None:
    with golden.refused("path-invalid"):
        open_tokens(path)


def test_manifest_is_refused_as_tokens(text: Path, golden: Golden) -> None:
    with golden.refused("path-is-manifest"):
        open_tokens(text.with_name("x.npy.json"))


def test_set_opens_from_inside_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.txt").write_text("some words and more of them " * 40)
    pretokenize(TextFile(tmp_path / "x.txt"), BytesTokenizer(), tmp_path / "set", Options(shard_tokens=500))
    monkeypatch.chdir(tmp_path / "set")
    assert open_tokens(".").fingerprint == open_tokens(tmp_path / "set").fingerprint


def test_negative_workers_are_refused(golden: Golden) -> None:
    with golden.refused("workers-negative"):
        Options(workers=-1)


def test_share_of_a_pair_is_refused(text: Path, golden: Golden) -> None:
    for part in ("x_train", "x_val"):
        (text.parent / f"{part}.txt").write_text(f"{part} words " * 60)
        pretokenize(TextFile(text.parent / f"{part}.txt"), BytesTokenizer(), text.parent / f"{part}.npy")
    for path in (text, *text.parent.glob("x.*npy*")):
        path.unlink()
    assert len(StreamingDataset(text.with_name("x"), "val", seq_len=16)) > 10
    with golden.refused("val-given-twice"):
        StreamingDataset(text.with_name("x"), "val", seq_len=16, val=0.5)


def test_name_is_the_whole_name_of_a_set(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Datasets").mkdir()
    for name in ("levels.npy", "wiki_train.npy", "wiki_val.npy"):
        shutil.copy(text.with_name("x.npy"), tmp_path / "Datasets" / name)
    assert open_tokens("levels").name == open_tokens("levels.npy").name == "Datasets/levels.npy"
    pair = open_tokens("wiki")
    assert pair.val_set is not None
    assert (pair.name, pair.val_set.name) == ("Datasets/wiki_train.npy", "Datasets/wiki_val.npy")
    for beginning in ("level", "l", "wik"):
        with pytest.raises(NothingThere):
            open_tokens(beginning)
    with golden.refused("path-not-found"):
        open_tokens("level")


def test_val_of_opened_pair_is_refused_by_name(text: Path) -> None:
    for part in ("train", "val"):
        np.save(text.parent / f"pair_{part}.npy", np.arange(100 + len(part), dtype="<u2"))
    pair = open_tokens(text.parent / "pair")
    assert pair.val_set is not None
    with pytest.raises(UserError) as refused:
        StreamingDataset(pair, seq_len=16, val=0.1)
    assert refused.value.problems[0].code == "val-given-twice"
    message = str(refused.value)
    assert pair.name in message
    assert pair.val_set.name in message
    assert "TokenSet(" not in message
