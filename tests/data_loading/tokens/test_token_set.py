"""Opening a set: its parts must belong together; a lone file is checked once and remembered."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data_loading.pretokenizer import manifest as manifests
from data_loading.pretokenizer import writer
from data_loading.pretokenizer.job import pretokenize
from data_loading.pretokenizer.options import Options
from data_loading.text_io.text_file import TextFile
from data_loading.tokenizers.tokenizer import BytesTokenizer
from data_loading.tokens import id_range
from data_loading.tokens import token_set as module
from data_loading.tokens.token_set import open_token_set
from experiment_utils import atomic_files
from tests.golden_text import Golden


@pytest.fixture
def made(tmp_path: Path) -> Path:
    (tmp_path / "a.txt").write_text("one\n-\ntwo\n")
    source = TextFile(tmp_path / "a.txt", document_separator="-")
    pretokenize(source, BytesTokenizer(), tmp_path / "a.npy", Options())
    return tmp_path / "a.npy"


def test_a_set_is_mapped_with_its_documents(made: Path) -> None:
    found = open_token_set(made)
    assert isinstance(found.tokens, np.memmap)
    assert bytes(found.tokens[:4].astype(np.uint8)) == b"one\n"
    assert found.documents is not None
    assert found.documents.tolist() == [0, 5]
    assert (found.n_tokens, found.vocab_size, found.eot_id, found.tokenizer_name) == (10, 257, 256, "bytes")
    assert found.manifest is not None
    assert found.fingerprint == found.manifest["fingerprint"]


class TestPartsOfDifferentSets:
    @pytest.mark.parametrize(("name", "array", "code"), [
        ("a.npy", np.arange(11, dtype=np.uint16), "tokens-not-of-manifest"),
        ("a.npy", np.arange(10, dtype=np.uint32), "tokens-not-of-manifest"),
        ("a.docs.npy", np.arange(3, dtype=np.uint64), "documents-not-of-manifest"),
        ("a.docs.npy", np.array([0, 4], np.uint64), "documents-changed"),
        ("a.docs.npy", None, "documents-missing"),
    ])  # fmt: skip
    def test_a_file(self, name: str, array: np.ndarray | None, code: str, made: Path, golden: Golden) -> None:
        if array is None:
            made.with_name(name).unlink()
        else:
            np.save(made.with_name(name), array)
        with golden.refused(code):
            open_token_set(made)

    @pytest.mark.parametrize("change", [
        lambda m: m.pop("fingerprint"),
        lambda m: m.update(version="1"),
        lambda m: m.update(fingerprint="ab"),
        lambda m: m["options"].update(errors="ignore"),
        lambda m: m["checksums"].update(bytes=0),
        lambda m: m["tokenizer"].update(eot_id=300),
        lambda m: m["tokenizer"].pop("vocab_size"),
        lambda m: m["sources"][0].pop("content_hash"),
        lambda m: m.update(sources={}),
        lambda m: m["checksums"]["blocks"].append(3),
        lambda m: m.update(tokenizer=[]),
    ])  # fmt: skip
    def test_a_damaged_manifest(self, change: Callable[[Any], Any], made: Path, golden: Golden) -> None:
        manifest = made.with_name("a.npy.json")
        facts = json.loads(manifest.read_text())
        change(facts)
        manifest.write_text(json.dumps(facts))
        with golden.refused("manifest-damaged"):
            open_token_set(made)


class TestLoneFile:
    @pytest.mark.parametrize("dtype", ["<u2", "<u4", "<i4", "<i8", "u1"])
    def test_loads_with_a_warning(
        self, dtype: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, golden: Golden
    ) -> None:
        path = tmp_path / "a.npy"
        np.save(path, np.array([3, 1, 99], dtype))
        with caplog.at_level(logging.WARNING):
            found = open_token_set(path, vocab_size=100)
        golden.text("\n".join(caplog.messages), numbers=False)
        assert (found.manifest, found.documents, found.vocab_size) == (None, None, 100)
        assert found.fingerprint == atomic_files.file_sha256(path)
        assert found.tokens.tolist() == [3, 1, 99]

    @pytest.mark.parametrize("ids", [[1, 100], [1, -5], [99, 70_000]])
    def test_ids_outside_the_vocabulary_are_refused(
        self, ids: list[int], tmp_path: Path, golden: Golden
    ) -> None:
        np.save(tmp_path / "a.npy", np.array(ids, np.int64))
        for _ in range(2):  # also when the range is remembered
            with golden.refused("id-outside-vocabulary"):
                open_token_set(tmp_path / "a.npy", vocab_size=100)

    def test_every_id_is_looked_at(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
    ) -> None:
        monkeypatch.setattr(id_range, "_BLOCK_IDS", 7)
        for place in range(30):
            ids = np.zeros(30, np.uint16)
            ids[place] = 500
            np.save(tmp_path / f"{place}.npy", ids)
            with golden.refused("id-outside-vocabulary"):
                open_token_set(tmp_path / f"{place}.npy", vocab_size=100)

    def test_without_a_vocabulary_it_is_one_more_than_the_largest_id(self, tmp_path: Path) -> None:
        np.save(tmp_path / "a.npy", np.array([1, 6], np.uint16))
        assert open_token_set(tmp_path / "a.npy").vocab_size == 7

    def test_is_read_once_and_again_only_when_changed(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture, golden: Golden
    ) -> None:
        path = tmp_path / "a.npy"
        np.save(path, np.array([1, 2], np.uint16))
        with caplog.at_level(logging.INFO):
            open_token_set(path, 100)
            open_token_set(path, 50)
            golden.text("\n".join(caplog.messages), numbers=False)
            assert json.loads((tmp_path / "a.npy.checked.json").read_text())["max_id"] == 2
            np.save(path, np.array([1, 60], np.uint16))
            os.utime(path, ns=(1, 1))
            with golden.refused("id-outside-vocabulary"):
                open_token_set(path, 50)
            golden.text("\n".join(caplog.messages), "changed", numbers=False)

    def test_in_a_folder_that_cannot_be_written_it_is_remembered_here(
        self,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
        golden: Golden,
    ) -> None:
        def read_only(*arguments: object) -> None:
            raise OSError(30, "Read-only file system")

        monkeypatch.setattr(atomic_files, "write_json", read_only)
        np.save(tmp_path / "a.npy", np.array([1, 2], np.uint16))
        with caplog.at_level(logging.INFO):
            open_token_set(tmp_path / "a.npy", 100)
            open_token_set(tmp_path / "a.npy", 100)
        golden.text("\n".join(caplog.messages), numbers=False)

    def test_damaged_facts_are_found_again(self, tmp_path: Path) -> None:
        np.save(tmp_path / "a.npy", np.array([1, 2], np.uint16))
        (tmp_path / "a.npy.checked.json").write_text("[")
        assert open_token_set(tmp_path / "a.npy", 100).n_tokens == 2
        assert json.loads((tmp_path / "a.npy.checked.json").read_text())["max_id"] == 2


class TestContent:
    def change(self, made: Path, value: int) -> None:
        tokens = np.load(made, mmap_mode="r+")
        tokens[1] = value
        tokens.flush()
        os.utime(made, ns=(1, 1))

    @pytest.mark.parametrize("value", [7, 60_000])
    def test_changed_tokens_are_never_read_in_silence(self, made: Path, value: int, golden: Golden) -> None:
        self.change(made, value)
        with golden.refused("tokens-changed"):
            open_token_set(made)

    def test_a_new_set_is_not_read_again(self, made: Path, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.INFO):
            open_token_set(made)
            assert caplog.messages == []
            os.utime(made, ns=(1, 1))
            open_token_set(made)
            open_token_set(made)
        assert len(caplog.messages) == 1

    def test_damage_is_found_in_whichever_piece_it_is(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
    ) -> None:
        for where in (writer, manifests):
            monkeypatch.setattr(where, "CHECKSUM_BYTES", 1000)
        (tmp_path / "a.txt").write_text("abcdefgh" * 200)
        pretokenize(TextFile(tmp_path / "a.txt"), BytesTokenizer(), tmp_path / "a.npy", Options())
        for place in (0, 700, 1600):
            tokens = np.load(tmp_path / "a.npy", mmap_mode="r+")
            before, tokens[place] = tokens[place], 9
            tokens.flush()
            with golden.refused("tokens-changed"):
                open_token_set(tmp_path / "a.npy")
            tokens[place] = before
            tokens.flush()
        open_token_set(tmp_path / "a.npy")

    def test_facts_hold_for_one_manifest(self, made: Path, golden: Golden) -> None:
        manifest = made.with_name("a.npy.json")
        facts = json.loads(manifest.read_text())
        facts["checksums"]["blocks"] = ["0" * 64]
        manifest.write_text(json.dumps(facts))
        with golden.refused("tokens-changed"):
            open_token_set(made)

    def test_checksums_that_are_taken_away_do_not_pass(self, made: Path, golden: Golden) -> None:
        manifest = made.with_name("a.npy.json")
        facts = json.loads(manifest.read_text())
        facts["checksums"]["blocks"] = []
        manifest.write_text(json.dumps(facts))
        with golden.refused("checksums-incomplete"):
            open_token_set(made)

    def test_other_facts_are_kept(self, made: Path) -> None:
        checked = made.with_name("a.npy.checked.json")
        checked.write_text(json.dumps({"text": {"bytes": 1}}))
        open_token_set(made)
        assert set(json.loads(checked.read_text())) == {"text", "content"}


def test_a_set_replaced_while_it_is_opened_is_opened_again(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = module._open
    calls = []

    def replaced_in_between(*arguments: object) -> object:
        calls.append(1)
        found = opened(*arguments)  # type: ignore[arg-type]
        if len(calls) == 1:
            (made.with_name("a.txt")).write_text("another text\n")
            pretokenize(TextFile(made.with_name("a.txt")), BytesTokenizer(), made, Options(overwrite=True))
        return found

    monkeypatch.setattr(module, "_open", replaced_in_between)
    assert bytes(open_token_set(made).tokens[:7].astype(np.uint8)) == b"another"
    assert len(calls) == 2
