"""Each format, read by ten lines written from its description, not by our own readers."""

from __future__ import annotations

import json
import os
import pickle
import struct
from collections.abc import Iterable
from itertools import chain, pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_loading.export_formats import FORMATS, contents, load_format
from data_loading.export_formats import export_files as files
from data_loading.export_formats import write_llm_c as llm_c
from data_loading.export_formats import write_megatron as megatron
from data_loading.export_formats import write_mypt as mypt
from data_loading.export_formats.contents import GPT2_CONTENT, Split, is_start
from data_loading.import_formats import read_megatron as megatron_reader
from data_loading.tokenizers.read_files import read_tokenizer
from data_loading.tokenizers.tokenizer import BytesTokenizer
from data_loading.tokens import lazy_array
from tests.data_loading.export_formats.conftest import EOT, gpt2_set, set_of, written
from tests.golden_text import Golden

some_documents = st.lists(st.lists(st.integers(0, 255), min_size=1, max_size=9), min_size=2, max_size=12)


def joined(lists: Iterable[list[int]]) -> list[int]:
    return list(chain.from_iterable(lists))


def read_megatron(stem: Path) -> tuple[np.dtype, list[list[int]]]:
    """(dtype, documents) as megatron/core/datasets/indexed_dataset.py lays them out."""
    index = stem.with_suffix(".idx").read_bytes()
    assert index[:9] == b"MMIDIDX\x00\x00"
    version, code, sequences, indices = struct.unpack_from("<QBQQ", index, 9)
    assert version == 1
    dtype = {1: "u1", 2: "i1", 3: "<i2", 4: "<i4", 5: "<i8", 6: "<f8", 7: "<f4", 8: "<u2"}[code]
    lengths = np.frombuffer(index, "<i4", sequences, 34)
    pointers = np.frombuffer(index, "<i8", sequences, 34 + 4 * sequences)
    borders = np.frombuffer(index, "<i8", indices, 34 + 12 * sequences)
    assert len(index) == 34 + 12 * sequences + 8 * indices
    data = stem.with_suffix(".bin").read_bytes()
    read = [np.frombuffer(data, dtype, n, at).tolist() for n, at in zip(lengths, pointers, strict=True)]
    return np.dtype(dtype), [joined(read[first:last]) for first, last in pairwise(borders)]


def read_llm_c(folder: Path, split: str) -> tuple[int, list[list[int]]]:
    """(magic, tokens of each file) as dev/data/data_common.py lays them out."""
    found = []
    for path in sorted(folder.glob(f"a_{split}_*.bin")):
        header = np.fromfile(path, "<i4", 256)
        magic, version, count = header[:3].tolist()
        assert not header[3:].any()
        assert (magic, version) in ((20240520, 1), (20240801, 7))
        tokens = np.frombuffer(path.read_bytes()[1024:], "<u2" if magic == 20240520 else "<u4")
        assert len(tokens) == count
        found.append(tokens.tolist())
    return magic, found


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slices and files so small that a few tokens need several; a disk that need not be waited for."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    monkeypatch.setattr(contents, "SLICE_TOKENS", 3)
    monkeypatch.setattr(lazy_array, "LENGTHS_READ", 3)
    monkeypatch.setattr(megatron_reader, "_CHECKED_VALUES", 3)
    monkeypatch.setattr(llm_c, "TOKENS_PER_FILE", 7)
    monkeypatch.setattr(mypt, "TOKENS_PER_SHARD", 7)


class TestMegatron:
    @given(documents=some_documents, longest=st.sampled_from([2, 5, 2**31 - 1]))
    def test_documents(
        self, documents: list[list[int]], longest: int, small_pieces: None, tmp_path: Path
    ) -> None:
        """Also where a document is longer than a sequence can be."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(megatron, "LONGEST_SEQUENCE", longest)
            written("megatron", tmp_path / "m", set_of(documents))
        dtype, found = read_megatron(tmp_path / "m/a_text_document")
        assert dtype == np.uint16
        assert found == [[*ids, EOT] for ids in documents]
        reading = load_format("megatron").read(tmp_path / "m")
        assert reading.tokens["all"][:].tolist() == joined(found)
        assert reading.documents is not None
        assert reading.documents[:].tolist() == np.cumsum([0, *map(len, found)])[:-1].tolist()

    @pytest.mark.parametrize(("ids", "dtype"), [(65_499, "<u2"), (65_500, "<i4"), (70_000, "<i4")])
    def test_the_dtype_is_that_which_megatron_chooses(self, ids: int, dtype: str, tmp_path: Path) -> None:
        last = ids - 1
        written("megatron", tmp_path / "m", set_of([[1, last], [last]], eot=None, vocab_size=ids))
        assert read_megatron(tmp_path / "m/a_text_document") == (np.dtype(dtype), [[1, last], [last]])

    def test_a_note_on_few_documents(self, tmp_path: Path, golden: Golden) -> None:
        few = written("megatron", tmp_path / "m", set_of([[1]] * 99))
        many = written("megatron", tmp_path / "m", set_of([[1]] * 100))
        golden.text("".join(load_format("megatron").notes(few)), numbers=False)
        assert list(load_format("megatron").notes(many)) == []


class TestNanoGPT:
    @given(documents=some_documents)
    def test_tokens(self, documents: list[list[int]], small_pieces: None, tmp_path: Path) -> None:
        source = set_of(documents)
        written("nanogpt", tmp_path / "n", source)
        train, val = (np.fromfile(tmp_path / f"n/{name}.bin", "<u2") for name in ("train", "val"))
        assert np.concatenate([train, val]).tolist() == source.tokens.tolist()
        assert len(val) == max(1, round(0.1 * len(source.tokens)))

    def test_meta_says_the_vocabulary_and_its_texts(self, tmp_path: Path) -> None:
        written("nanogpt", tmp_path / "n", set_of([[1, 2]]))
        meta = pickle.loads((tmp_path / "n/meta.pkl").read_bytes())
        assert sorted(meta) == ["itos", "stoi", "vocab_size"]
        assert meta["vocab_size"] == 257
        assert "".join(meta["itos"][byte] for byte in b"water\n") == "water\n"
        assert [meta["stoi"][character] for character in "water\n"] == list(b"water\n")
        assert "\ufffd" not in meta["stoi"]

    def test_gpt2_needs_no_meta(self, tmp_path: Path) -> None:
        """train.py would take 50,257 rows for 50,304, and sample.py our texts for tiktoken's."""
        written("nanogpt", tmp_path / "n", gpt2_set([[1, 2]]))
        assert sorted(path.name for path in (tmp_path / "n").iterdir()) == ["train.bin", "val.bin"]

    def test_ids_that_uint16_cannot_hold(self, golden: Golden) -> None:
        class Big(BytesTokenizer):
            vocab_size = 65_537

        problem = load_format("nanogpt").problem(Big())
        assert problem is not None
        golden.text(problem)
        Big.vocab_size = 65_536
        assert load_format("nanogpt").problem(Big()) is None


class TestLlmC:
    @given(documents=some_documents)
    def test_the_end_of_text_id_is_before_each_document(
        self, documents: list[list[int]], small_pieces: None, tmp_path: Path
    ) -> None:
        for old in tmp_path.glob("l/*"):
            old.unlink()
        made = written("llm.c", tmp_path / "l", set_of(documents), set_of(documents[::-1]))
        for name, expected in (("train", documents), ("val", documents[::-1])):
            magic, found = read_llm_c(tmp_path / "l", name)
            assert magic == 20240520
            assert joined(found) == joined([EOT, *ids] for ids in expected)
            sizes = [len(tokens) for tokens in found]
            assert max(sizes) <= 7
            assert max(sizes) - min(sizes) <= 1
        numbers = sorted(path.name[-10:-4] for path in (tmp_path / "l").iterdir())
        assert numbers == [f"{n:06d}" for n in range(len(numbers))]
        assert (tmp_path / "l/a_val_000000.bin").exists()
        reading = load_format("llm.c").read(tmp_path / "l")
        streams = {name: np.concatenate([*made_of(made.splits[name])]) for name in ("train", "val")}
        assert {name: reading.tokens[name][:].tolist() for name in streams} == {
            name: ids.tolist() for name, ids in streams.items()
        }

    def test_a_border_inside_a_document_loses_and_adds_nothing(self, tmp_path: Path) -> None:
        written("llm.c", tmp_path / "l", set_of([list(range(30)), list(range(100, 140))]))
        (_, (train,)), (_, (val,)) = (read_llm_c(tmp_path / "l", name) for name in ("train", "val"))
        assert train == [EOT, *range(30), EOT, *range(100, 134)]
        assert val == list(range(134, 140))

    def test_without_an_end_of_text_id_nothing_moves(self, tmp_path: Path) -> None:
        source = set_of([list(range(30)), list(range(40))], eot=None)
        written("llm.c", tmp_path / "l", source)
        both = [read_llm_c(tmp_path / "l", name)[1][0] for name in ("train", "val")]
        assert joined(both) == source.tokens.tolist()

    @pytest.mark.parametrize(("ids", "magic"), [(50_257, 20240520), (50_258, 20240801), (128_256, 20240801)])
    def test_the_kind_of_file_is_that_of_the_smallest_model(
        self, ids: int, magic: int, tmp_path: Path
    ) -> None:
        documents = [[ids - 1] * 10, [5] * 10]
        written("llm.c", tmp_path / "l", set_of(documents, eot=None, vocab_size=ids))
        assert read_llm_c(tmp_path / "l", "train") == (magic, [[ids - 1] * 10 + [5] * 8])

    def test_more_ids_than_its_models_have(self, golden: Golden) -> None:
        class Big(BytesTokenizer):
            vocab_size = 128_257

        problem = load_format("llm.c").problem(Big())
        assert problem is not None
        golden.text(problem)

    def test_a_split_without_a_token_is_refused(self, tmp_path: Path, golden: Golden) -> None:
        with golden.refused("export-split-empty"):
            written("llm.c", tmp_path / "l", set_of([[1, 2]]))


class TestMyPT:
    @given(documents=some_documents)
    def test_shards(self, documents: list[list[int]], small_pieces: None, tmp_path: Path) -> None:
        for old in tmp_path.glob("p/*/*"):
            old.unlink()
        source = set_of(documents)
        written("mypt", tmp_path / "p", source)
        shards = {name: sorted((tmp_path / "p" / name).iterdir()) for name in ("train", "val")}
        paths = [*shards["train"], *shards["val"]]
        assert [path.name for path in paths] == [f"shard_{n:05d}.bin" for n in range(len(paths))]
        read = [np.fromfile(path, "<u4") for path in paths]
        assert np.concatenate(read).tolist() == source.tokens.tolist()
        assert max(map(len, read)) <= 7
        assert json.loads((tmp_path / "p/dataset_metadata.json").read_text()) == {
            "total_tokens": len(source.tokens),
            "total_shards": len(paths),
            "train_shards": len(shards["train"]),
            "val_shards": len(shards["val"]),
            "tokens_per_shard": 7,
            "tokenization": "mine 000000000000",
            "vocab_size": 50_304,
            "input_files": ["a.txt"],
        }

    def test_gpt2_is_told_as_mypt_tells_it(self, tmp_path: Path) -> None:
        written("mypt", tmp_path / "p", gpt2_set([[1, 2]]))
        assert json.loads((tmp_path / "p/tokenizer_state.json").read_text()) == {
            "token_kind": "gpt2", "chars": None, "base_vocab_size": 50_257, "model_vocab_size": 50_304,
        }  # fmt: skip

    def test_another_tokenizer_never_goes_by_a_name_of_mypts(self, tmp_path: Path) -> None:
        source = gpt2_set([[1, 2]])
        assert source.manifest is not None
        source.manifest["tokenizer"] |= {"name": "gpt2", "content_hash": "1" * 64}
        written("mypt", tmp_path / "p", source)
        assert (
            json.loads((tmp_path / "p/tokenizer_state.json").read_text())["token_kind"] == "gpt2 111111111111"
        )

    def test_more_ids_than_its_models_have(self) -> None:
        class Big(BytesTokenizer):
            vocab_size = 50_305

        assert load_format("mypt").problem(Big()) is not None


def made_of(split: Split) -> list[np.ndarray]:
    return list(load_format("llm.c").stream(split))


def test_gpt2_is_known_by_its_content(shared_data: Path) -> None:
    assert read_tokenizer(shared_data / "gpt2", "any name").content_hash == GPT2_CONTENT


def test_a_start_is_found_by_halving() -> None:
    source = set_of([[1] * n for n in range(1, 40)])
    assert source.documents is not None
    starts = set(source.documents.tolist())
    assert all(is_start(source, token) == (token in starts) for token in range(len(source.tokens)))


@given(total=st.integers(1, 10**12), at_most=st.integers(1, 10**9))
def test_even_sizes(total: int, at_most: int) -> None:
    if total // at_most > 10_000:
        return
    sizes = files.even_sizes(total, at_most)
    assert sum(sizes) == total
    assert len(sizes) == -(-total // at_most)
    assert max(sizes) - min(sizes) <= 1


def test_every_format_says_its_own_name() -> None:
    assert [load_format(name).name for name in FORMATS] == list(FORMATS)


def test_a_note_on_the_id_before_documents_of_llama_3(tmp_path: Path, golden: Golden) -> None:
    notes = {
        eot: " ".join(load_format("llm.c").notes(written("llm.c", tmp_path / str(eot), source)))
        for eot in (128_000, 128_001)
        for source in [set_of([[1, 2]] * 10, eot=eot, vocab_size=128_256)]
    }
    golden.text("\n".join(f"{eot}: {note}" for eot, note in notes.items()))
