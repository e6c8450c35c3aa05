"""Which dtype raw ids are of: by what each reading would make of them, or said, or asked for."""

from __future__ import annotations

import contextlib
import io
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_loading import StreamingDataset, open_tokens
from data_loading.import_formats.foreign_set import open_foreign
from data_loading.import_formats.format import Asked
from data_loading.import_formats.meta_pickle import read_vocab_size
from data_loading.import_formats.recognize import kind_of
from experiment_utils.errors import UserError
from tests.golden_text import Golden

IDS = np.random.default_rng(0).integers(0, 257, 5000)


def raw(path: Path, ids: np.ndarray, dtype: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(ids.astype(dtype).tobytes())
    return path


@pytest.mark.parametrize("vocab_size", [257, 50_257, 128_256])
@pytest.mark.parametrize("dtype", ["uint16", "uint32", "int64"])
def test_enough_ids_tell(dtype: str, vocab_size: int, tmp_path: Path) -> None:
    """No zeros behind each id are an accident, and no id of two read as one is below a vocabulary."""
    ids = np.random.default_rng(0).integers(0, min(vocab_size, 65_536), 5000)
    found = open_tokens(raw(tmp_path / "a.bin", ids, dtype), vocab_size=vocab_size)
    assert (found.tokens.dtype.name, found.tokens[:].tolist()) == (dtype, ids.tolist())


@given(
    count=st.integers(1, 700),
    dtype=st.sampled_from(["uint16", "uint32", "int64"]),
    most=st.sampled_from([1, 2, 20, 257]),
    seed=st.integers(0, 5),
)
def test_never_silently_another_dtype(count: int, dtype: str, most: int, seed: int, tmp_path: Path) -> None:
    """However few they are and however they are spread: the dtype they were written as, or an error."""
    ids = np.random.default_rng(seed).integers(0, most, count)
    path = raw(tmp_path / f"{count}{dtype}{most}{seed}.bin", ids, dtype)
    with contextlib.suppress(UserError):
        found = open_tokens(path, vocab_size=257)
        assert found.tokens[:].tolist() == ids.tolist()


def test_where_both_are_possible_both_are_named(tmp_path: Path, golden: Golden) -> None:
    path = raw(tmp_path / "a.bin", IDS[:100], "uint32")
    with golden.refused("dtype-ambiguous"):
        open_tokens(path, vocab_size=257)
    assert open_tokens(path, vocab_size=257, dtype="uint32").tokens[:].tolist() == IDS[:100].tolist()
    assert len(open_tokens(path, vocab_size=257, dtype="uint16").tokens) == 200
    with golden.refused("dtype-unknown"):
        open_tokens(path, dtype="float16")


def test_many_ids_of_few_kinds_do_not_tell(tmp_path: Path, golden: Golden) -> None:
    """Every second one may be zero in uint16 too."""
    path = raw(tmp_path / "a.bin", np.tile([5, 0, 9, 0], 3000), "uint16")
    with golden.refused("dtype-ambiguous"):
        open_tokens(path, vocab_size=257)


def test_where_nothing_says_both_are_named(tmp_path: Path, golden: Golden) -> None:
    path = raw(tmp_path / "a.bin", IDS, "uint16")
    with golden.refused("dtype-needs-vocabulary"):
        StreamingDataset(path, seq_len=10)
    assert len(StreamingDataset(open_tokens(path, dtype="uint16"), seq_len=10)) == 449


def test_another_vocabulary_is_none_of_both(tmp_path: Path, golden: Golden) -> None:
    path = raw(tmp_path / "a.bin", IDS + 300, "uint16")
    with golden.refused("dtype-fits-none"):
        open_tokens(path, vocab_size=257)
    with golden.refused("id-outside-vocabulary"):
        open_tokens(path, vocab_size=257, dtype="uint16")
    assert open_tokens(path, dtype="uint16").vocab_size == 557


@pytest.mark.parametrize(("size", "code"), [(0, "no-tokens"), (9999, "size-not-of-dtype")])
def test_no_whole_number_of_ids(size: int, code: str, tmp_path: Path, golden: Golden) -> None:
    path = raw(tmp_path / "a.bin", IDS, "uint16")
    os.truncate(path, size)
    with golden.refused(code):
        open_tokens(path, vocab_size=257, dtype="uint16")


def test_a_text_called_bin_is_no_ids(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_text("Two letters make an id below 65,536.\n" * 100)
    assert kind_of(tmp_path / "a.bin") is None
    (tmp_path / "b.bin").write_text(
        "ж" * 40_000, encoding="utf-8"
    )  # cut inside a character where it is looked at
    assert kind_of(tmp_path / "b.bin") is None


@pytest.mark.parametrize("begins", [b"PK\x03\x04 zip", b"\x1f\x8b gzip", b"PAR1 parquet"])
def test_other_files_called_bin_are_no_ids(begins: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(begins + bytes(100))
    assert kind_of(tmp_path / "a.bin") is None


class TestNanoGPT:
    def folder(self, path: Path, dtype: str = "uint16", vocab_size: int | None = 257) -> Path:
        raw(path / "train.bin", IDS, dtype)
        raw(path / "val.bin", IDS[:300], dtype)
        if vocab_size is not None:
            (path / "meta.pkl").write_bytes(
                pickle.dumps({"vocab_size": vocab_size, "itos": {}, "stoi": {"a": 1}})
            )
        return path

    def test_meta_says_the_vocabulary(self, tmp_path: Path) -> None:
        train, val = open_foreign(self.folder(tmp_path), Asked())
        assert train.tokens[:].tolist() == IDS.tolist()
        assert val.tokens[:].tolist() == IDS[:300].tolist()
        assert train.vocab_size == 257
        assert train.tokenizer_name == "meta.pkl"

    def test_without_meta_it_is_of_gpt2(self, tmp_path: Path) -> None:
        """Its reader takes 50,304 rows there."""
        assert len(StreamingDataset(self.folder(tmp_path, vocab_size=None), seq_len=100)) == 49

    def test_too_few_ids_for_a_guess_are_nanogpts(self, tmp_path: Path) -> None:
        raw(tmp_path / "train.bin", np.zeros(8), "uint16")
        (only,) = open_foreign(tmp_path, Asked())
        assert (only.tokens.dtype.name, len(only.tokens)) == ("uint16", 8)

    def test_uint32_of_a_fork(self, tmp_path: Path) -> None:
        train, val = open_foreign(self.folder(tmp_path, "uint32"), Asked())
        assert train.tokens[:].tolist() == IDS.tolist()
        assert val.tokens[:].tolist() == IDS[:300].tolist()

    def test_a_lone_file_next_to_its_meta(self, tmp_path: Path) -> None:
        one = open_tokens(self.folder(tmp_path) / "train.bin")
        assert one.tokens[:].tolist() == IDS.tolist()

    def test_the_tokenizer_of_the_run_is_another(self, tmp_path: Path, golden: Golden) -> None:
        with golden.refused("vocabulary-differs"):
            open_foreign(self.folder(tmp_path, vocab_size=65), Asked("uint16", vocab_size=257))


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch ran",)


@pytest.mark.parametrize(
    ("code", "content"),
    [
        ("meta-pickle-unreadable", pickle.dumps({"vocab_size": Evil()})),
        ("meta-pickle-unreadable", pickle.dumps({"vocab_size": np.int64(5)})),
        ("meta-pickle-unreadable", pickle.dumps({"vocab_size": 5})[:-4]),
        ("meta-pickle-unreadable", b""),
        ("meta-pickle-unreadable", b"\x80\x04not a pickle"),
        ("meta-pickle-no-vocabulary", pickle.dumps({"itos": {}})),
        ("meta-pickle-no-vocabulary", pickle.dumps({"vocab_size": "many"})),
        ("meta-pickle-no-vocabulary", pickle.dumps([1])),
    ],
    ids=["calls", "numpy", "cut", "empty", "other", "no_key", "text", "list"],
)
def test_nothing_in_a_pickle_is_run(
    code: str, content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "meta.pkl").write_bytes(content)
    with golden.refused(code):
        read_vocab_size(tmp_path / "meta.pkl")
    assert not (tmp_path / "ran").exists()


def test_pickles_of_every_protocol(tmp_path: Path) -> None:
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        stream = io.BytesIO()
        pickle.dump({"vocab_size": 65, "itos": {0: "a"}}, stream, protocol)
        (tmp_path / "meta.pkl").write_bytes(stream.getvalue())
        assert read_vocab_size(tmp_path / "meta.pkl") == 65
