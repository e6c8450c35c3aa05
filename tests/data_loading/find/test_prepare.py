"""prepare_data: found, tokenized once, verified, split; every mismatch names both sides."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conf.schema import Dataset, Tokenizer
from data_loading.dataset.split_data import Data
from data_loading.dataset.splits import split_ranges
from data_loading.find import auto_tokenize as module
from data_loading.find.prepare import prepare_data
from data_loading.pretokenizer.job import pretokenize
from data_loading.pretokenizer.options import Options
from data_loading.pretokenizer.sources.stdlib import StdlibSource
from data_loading.text_io.text_file import TextFile
from data_loading.tokenizers.tokenizer import BytesTokenizer
from data_loading.tokens.set_files import SetFiles
from experiment_utils import lock_file
from tests.golden_text import Golden, refused

ROOT = Path(__file__).resolve().parents[2]
BYTES = Tokenizer(name="bytes")
Folder = Callable[[str], Path]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "a.txt"
    path.write_text("0123456789" * 100)
    return path


def prepare(path: Path | str, tokenizer: Tokenizer = BYTES, *, tokenize: bool = True, **options: Any) -> Data:
    return prepare_data(Dataset(source="text", path=str(path), **options), tokenizer, tokenize=tokenize)


class TestTokenizing:
    def test_a_text_is_tokenized_once(self, text: Path) -> None:
        data = prepare(text)
        assert data.train.n_tokens == 1001
        before = text.with_suffix(".npy").stat().st_ino
        prepare(text)
        prepare(text, tokenize=False)
        assert text.with_suffix(".npy").stat().st_ino == before

    @pytest.mark.parametrize("options", [{"tokenize": False}, {"tokenize": True, "auto_tokenize": False}])
    def test_or_refused_with_the_command(self, options: dict[str, Any], text: Path, golden: Golden) -> None:
        with golden.refused("not-tokenized") as caught:
            prepare(text, document_separator="a b", encoding="latin-1", **options)
        assert (caught.value.text_path, caught.value.text_bytes) == (text, 1000)
        command = caught.value.command
        golden.text(command)
        assert not text.with_suffix(".npy").exists()

    def test_options_of_the_dataset_are_used(self, text: Path) -> None:
        text.write_bytes("é\n-\nb".encode("latin-1"))
        data = prepare(text, encoding="latin-1", document_separator="-", val_fraction=0.5)
        assert bytes(data.train.tokens.astype(np.uint8)) == "é\n\0b\0".encode()
        assert data.train.documents is not None
        assert data.train.documents.tolist() == [0, 4]

    def test_two_processes_do_not_both_tokenize(self, text: Path, golden: Golden) -> None:
        """The second waits for the first, then reads what it made."""
        code = (
            "import sys, logging; from conf.schema import Dataset, Tokenizer; from data_loading import "
            f"prepare_data\ndataset = Dataset(source='text', path={str(text)!r})\n"
            "prepare_data(dataset, Tokenizer(name='bytes'), tokenize=True, log=print)"
        )
        lock = text.with_name(".a.npy.lock")
        with lock_file.lock(lock, "it"):
            second = subprocess.Popen(
                [sys.executable, "-u", "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True
            )
            assert second.stdout is not None
            golden.text(second.stdout.readline(), numbers=False)
            pretokenize_unlocked(text)
        assert second.wait(timeout=240) == 0
        assert "tokenizing" not in second.stdout.read()
        second.stdout.close()

    def test_the_set_serves_without_its_text(self, text: Path) -> None:
        fingerprint = prepare(text).fingerprint
        text.unlink()
        assert prepare(text.with_suffix(".npy")).fingerprint == fingerprint


def pretokenize_unlocked(text: Path) -> None:
    """What the holder of the lock does."""
    pretokenize(TextFile(text), BytesTokenizer(), text.with_name("other.npy"), Options())
    for name in ("docs.npy", "npy.json", "tokenizer", "npy"):
        os.rename(text.with_name(f"other.{name}"), text.with_name(f"a.{name}"))


class TestVerified:
    def test_another_text(self, text: Path, golden: Golden) -> None:
        prepare(text)
        text.write_text("0123456789" * 99 + "012345678X")
        os.utime(text, (1, 1))
        with golden.refused("set-not-of-text"):
            prepare(text)
        text.write_text("longer" * 1000)
        with golden.refused("set-not-of-text"):
            prepare(text)

    def test_a_touched_text_is_compared_once(
        self, text: Path, caplog: pytest.LogCaptureFixture, golden: Golden
    ) -> None:
        prepare(text)
        caplog.clear()
        os.utime(text, (1, 1))
        with caplog.at_level("INFO"):
            prepare(text)
            prepare(text)
        golden.text("\n".join(caplog.messages), numbers=False)

    def test_another_tokenizer(self, text: Path, tokenizer_folder: Folder, golden: Golden) -> None:
        prepare(text)
        other = Tokenizer(name="digits", path=str(tokenizer_folder("digits")))
        with golden.refused("tokenizer-differs", numbers=False):
            prepare(text, other)

    def test_a_tokenizer_of_ones_own_is_offered_from_the_set(
        self, text: Path, tokenizer_folder: Folder, golden: Golden
    ) -> None:
        prepare(text, Tokenizer(name="mine", path=str(tokenizer_folder("digits"))))
        copy = text.with_name("a.tokenizer")
        with golden.refused("tokenizer-differs", numbers=False):
            prepare(text)
        assert prepare(text, Tokenizer(name="custom", path=str(copy))).vocab_size > 257

    def test_the_same_tokenizer_from_another_folder_is_the_same(
        self, text: Path, tmp_path: Path, tokenizer_folder: Folder
    ) -> None:
        first = prepare(text, Tokenizer(name="one", path=str(tokenizer_folder("gpt2"))))
        shutil.copytree(tokenizer_folder("gpt2"), tmp_path / "elsewhere")
        second = prepare(text, Tokenizer(name="two", path=str(tmp_path / "elsewhere")))
        assert first.fingerprint == second.fingerprint

    @pytest.mark.parametrize(
        ("made", "asked", "fits"),
        [
            ({"document_separator": "-"}, {}, True),
            ({"document_separator": "-"}, {"document_separator": "-"}, True),
            ({}, {"document_separator": "-"}, False),
            ({"document_separator": "-"}, {"document_separator": "+"}, False),
            ({}, {"encoding": "latin-1"}, False),
            ({}, {"errors": "replace"}, False),
        ],
    )
    def test_other_options(
        self, made: dict[str, Any], asked: dict[str, Any], fits: bool, text: Path, golden: Golden
    ) -> None:
        prepare(text, **made)
        if fits:
            prepare(text, **asked)
        else:
            with golden.refused("option-differs"):
                prepare(text, **asked)

    def test_the_mending_command_keeps_the_options_of_the_set(self, text: Path, golden: Golden) -> None:
        prepare(text, document_separator="-")
        text.write_text("changed")
        with golden.refused("set-not-of-text"):
            prepare(text)

    def test_the_mending_command_keeps_the_form_of_the_set(self, text: Path, golden: Golden) -> None:
        pretokenize(
            TextFile(text),
            BytesTokenizer(),
            text.with_suffix(""),
            Options(shard_tokens=300, val_fraction=0.2),
        )
        text.write_text("changed")
        with golden.refused("set-not-of-text"):
            prepare(text)

    def test_another_length(self, text: Path, golden: Golden) -> None:
        prepare(text)
        np.save(text.with_suffix(".npy"), np.zeros(5, np.uint16))
        with golden.refused("tokens-not-of-manifest"):
            prepare(text)

    def test_a_lone_file_is_held_against_the_vocabulary(self, tmp_path: Path, golden: Golden) -> None:
        np.save(tmp_path / "b.npy", np.array([1, 256] * 100, np.int32))
        data = prepare(tmp_path / "b.npy")
        assert (data.vocab_size, data.eot_id, data.train.manifest) == (257, 256, None)
        np.save(tmp_path / "c.npy", np.array([1, 257], np.int32))
        with golden.refused("id-outside-vocabulary"):
            prepare(tmp_path / "c.npy")


class TestTokenizerOfTheSet:
    def test_serves_where_the_tokenizer_is_found_nowhere_else(
        self, text: Path, tmp_path: Path, tokenizer_folder: Folder, golden: Golden
    ) -> None:
        folder = tmp_path / "local"
        shutil.copytree(tokenizer_folder("gpt2"), folder)
        spec = Tokenizer(name="mine", local_folder=str(folder))
        before = prepare(text, spec)
        shutil.rmtree(folder)
        assert prepare(text, spec).fingerprint == before.fingerprint
        shutil.copytree(tokenizer_folder("gpt2"), folder)
        (folder / "tokenizer.json").write_text("{")
        with golden.refused("tokenizer-damaged"):
            prepare(text, spec)
        shutil.rmtree(folder)
        with golden.refused("tokenizer-not-found"):
            prepare(text, Tokenizer(name="other", local_folder=str(folder)))
        with golden.refused("tokenizer-path-not-folder"):
            prepare(text, Tokenizer(name="mine", path=str(folder)))


class TestSplits:
    @given(n=st.integers(2, 10_000), fraction=st.floats(0.001, 0.999), seed=st.integers(0, 100))
    def test_train_and_val_are_disjoint_and_together_the_set(
        self, n: int, fraction: float, seed: int
    ) -> None:
        generator = np.random.default_rng(seed)
        count = int(generator.integers(1, min(n, 300) + 1))
        starts = np.sort(generator.choice(np.arange(1, n), count - 1, replace=False)) if count > 1 else []
        documents = np.concatenate([[0], starts]).astype(np.uint64)
        for borders in (None, documents):
            train, val = split_ranges(n, borders, fraction)
            assert (train.start, val.stop, train.stop) == (0, n, val.start)
            assert len(train) >= 1
            assert len(val) >= 1
        if count >= 100:
            wanted = min(max(n - round(n * fraction), 1), n - 1)
            inner = documents[1:].astype(int)
            assert wanted / 2 <= val.start <= 2 * wanted
            assert (n - wanted) / 2 <= len(val) <= 2 * (n - wanted)
            best = inner[np.abs(inner - wanted).argmin()]
            if wanted / 2 <= best <= 2 * wanted and (n - wanted) / 2 <= n - best <= 2 * (n - wanted):
                assert val.start == best
            else:
                assert val.start in (wanted, *inner)

    @pytest.mark.parametrize(("last", "fraction", "start"), [
        (99_000, 0.05, 95_048),  # only the last document begins near, with nearly all tokens
        (99_000, 0.99, 1_001),  # a document starts there
        (60_000, 0.5, 30_525),  # 98% would be less than twice the half, and leave 2% to train on
        (100, 0.05, 1_050),  # 100 tokens instead of 58
    ])  # fmt: skip
    def test_a_long_document_does_not_make_val_many_times_what_was_asked_for(
        self, last: int, fraction: float, start: int, caplog: pytest.LogCaptureFixture
    ) -> None:
        documents = np.arange(0, 1051, 7, dtype=np.uint64)
        assert split_ranges(1050 + last, documents, fraction)[1].start == start
        assert bool(caplog.messages) == (start not in documents.tolist())

    def test_the_other_side_where_the_nearest_start_is_too_far_off(self) -> None:
        documents = np.array([*range(100), 9_830, 9_960], np.uint64)
        assert split_ranges(10_000, documents, 0.01)[1].start == 9_830

    def test_val_is_the_last_share_by_token(self) -> None:
        assert split_ranges(1000, None, 0.1) == (range(900), range(900, 1000))
        assert split_ranges(1000, np.arange(0, 990, 10, dtype=np.uint64), 0.125)[1] == range(875, 1000)
        assert split_ranges(1000, np.arange(0, 1000, 10, dtype=np.uint64), 0.125)[1] == range(870, 1000)

    def test_one_token_cannot_be_divided(self, golden: Golden) -> None:
        with golden.refused("too-few-tokens"):
            split_ranges(1, None, 0.1)

    def test_a_set_of_its_own_is_val(self, text: Path, tmp_path: Path) -> None:
        other = tmp_path / "b.txt"
        other.write_text("abc" * 20)
        data = prepare(text, val_path=str(other))
        assert data.train_ranges == (range(1001),)
        assert data.val_ranges == (range(61),)
        assert data.val.path == tmp_path / "b.npy"
        assert data.fingerprint != prepare(text).fingerprint
        facts = data.describe()
        assert (facts["tokens"], facts["train_tokens"], facts["val_tokens"]) == (1062, 1001, 61)
        assert facts["file_bytes"] == 128 * 2 + 2 * 1062

    @pytest.mark.parametrize("how", ["itself", "its stem", "a link", "a copy"])
    def test_the_same_text_is_not_held_out_from_itself(
        self, how: str, text: Path, tmp_path: Path, golden: Golden
    ) -> None:
        other = tmp_path / "other.txt"
        if how == "a link":
            other.symlink_to(text)
        elif how == "a copy":
            shutil.copy(text, other)
        else:
            other = text if how == "itself" else text.with_suffix("")
        with golden.refused("val-is-train"):
            prepare(text, val_path=str(other))

    def test_a_lone_file_of_the_same_tokens_is_not_held_out(
        self, text: Path, tmp_path: Path, golden: Golden
    ) -> None:
        lone = tmp_path / "lone.npy"
        shutil.copy(prepare(text).train.path, lone)
        with golden.refused("val-is-train"):
            prepare(text, val_path=str(lone))
        tokens = np.load(lone)
        tokens[-2] ^= 1
        np.save(lone, tokens)
        assert prepare(text, val_path=str(lone)).tokens("val") == 1001

    def test_validation_next_to_train_is_found_and_tokenized(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        Path("Datasets").mkdir()
        Path("Datasets/wiki_train.txt").write_text("a" * 100)
        Path("Datasets/wiki_validation.txt").write_text("b" * 50)
        data = prepare_data(Dataset(source="text", name="wiki"), BYTES, tokenize=True)
        assert (data.tokens("train"), data.tokens("val")) == (101, 51)


def test_describe_has_what_a_run_records(text: Path) -> None:
    data = prepare(text)
    facts = data.describe()
    assert facts == {
        "path": str(text.with_suffix(".npy")),
        "val_path": None,
        "file_bytes": text.with_suffix(".npy").stat().st_size,
        "dtype": "uint16",
        "tokens": 1001,
        "documents": 1,
        "train_tokens": 901,
        "val_tokens": 100,
        "test_tokens": 0,
        "tokenizer": "bytes",
        "vocab_size": 257,
        "fingerprint": data.fingerprint,
        "sets": [data.train.fingerprint],
    }
    json.dumps(facts)


def test_fingerprint_does_not_depend_on_the_place(text: Path, tmp_path: Path) -> None:
    copy = tmp_path / "elsewhere" / "b.txt"
    copy.parent.mkdir()
    shutil.copy(text, copy)
    assert prepare(text).fingerprint == prepare(copy).fingerprint


def test_a_wrong_split_name(text: Path, golden: Golden) -> None:
    with golden.refused("split-unknown"):
        prepare(text).windows("valid", 3)
    with golden.refused("no-test-split"):
        prepare(text).windows("test", 3)


class TestStdlib:
    @pytest.fixture
    def here(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.chdir(tmp_path)
        return tmp_path

    def prepare(self, *, tokenize: bool = True, **options: Any) -> Data:
        return prepare_data(Dataset(name="stdlib", source="stdlib", **options), BYTES, tokenize=tokenize)

    def test_is_made_on_demand_below_datasets(self, here: Path) -> None:
        with refused("not-tokenized"):
            self.prepare(tokenize=False)
        data = self.prepare()
        version = ".".join(map(str, sys.version_info[:3]))
        assert data.train.path == Path(f"Datasets/stdlib-py{version}-bytes.npy")
        assert data.train.documents is not None
        assert data.val_ranges[0].start in data.train.documents.tolist()
        assert self.prepare(tokenize=False).fingerprint == data.fingerprint

    def test_a_folder_of_shards_of_it_is_used(self, here: Path) -> None:
        usual = self.prepare().train
        folder = usual.path.with_suffix("")
        pretokenize(StdlibSource(), BytesTokenizer(), here / "elsewhere", Options(shard_tokens=10**6))
        usual.path.unlink()
        SetFiles(usual.path).manifest.unlink()
        (here / "elsewhere").rename(folder)
        assert self.prepare(tokenize=False).train.path == folder
        assert self.prepare(tokenize=False, path=str(folder)).train.fingerprint == usual.fingerprint

    def test_the_set_of_another_library_is_refused(self, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        other = here / "lib"
        other.mkdir()
        (other / "a.py").write_text("a = 1\n" * 100)
        monkeypatch.setattr(module, "StdlibSource", lambda: stdlib_of(other))
        self.prepare()
        (other / "b.py").write_text("b = 1\n")
        with refused("set-not-of-text"):
            self.prepare()

    def test_uri_replaces_it(self, here: Path) -> None:
        dataset = Dataset(name="stdlib", source="stdlib", path="synthetic:uniform:256:10K:0")
        assert prepare_data(dataset, Tokenizer(name="bytes"), tokenize=False).train.n_tokens == 10_000

    def test_a_path_says_where_its_tokens_go(
        self, here: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
    ) -> None:
        (here / "a.py").write_text("a = 1\n" * 100)
        monkeypatch.setattr(module, "StdlibSource", lambda: stdlib_of(here))
        assert self.prepare(path="my/lib.npy").train.path == Path("my/lib.npy")
        with golden.refused("stdlib-path-is-output"):
            self.prepare(path="my/lib.txt")


def stdlib_of(root: Path) -> Any:
    from data_loading.pretokenizer.sources.stdlib import StdlibSource

    return StdlibSource(root)
