"""Folders of shards: the tokens of one file in several, which grow without touching what is there."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_loading import StreamingDataset
from data_loading.audit.check_set import check_set
from data_loading.dataset.split_data import split_data
from data_loading.find.open_tokens import open_tokens
from data_loading.pretokenizer import make_set as making
from data_loading.pretokenizer.inputs.concatenated import Inputs
from data_loading.pretokenizer.job import Result, pretokenize
from data_loading.pretokenizer.options import Options
from data_loading.text_io.text_file import TextFile
from data_loading.tokenizers.tokenizer import BytesTokenizer
from data_loading.tokens.set_files import SetFiles
from data_loading.tokens.shards import parts_of
from data_loading.tokens.token_set import TokenSet, open_token_set
from tests.forked import killed_at
from tests.golden_text import Golden
from tests.searched import examples

ROOT = Path(__file__).resolve().parents[3]
SEPARATOR = "=="


def text(folder: Path, name: str, documents: int = 120, words: int = 5) -> Path:
    path = folder / f"{name}.txt"
    path.write_text("".join(f"{name} {n}\n" + "water " * (n % words) + "\n==\n" for n in range(documents)))
    return path


def make(output: Path, *texts: Path, **options: Any) -> Result:
    sources = Inputs([TextFile(path, document_separator=SEPARATOR) for path in texts])
    return pretokenize(sources, BytesTokenizer(), output, Options(**options))


def tokens_of(found: TokenSet) -> list[int]:
    return [int(i) for i in found.tokens[: found.n_tokens]]


def starts_of(found: TokenSet) -> list[int]:
    assert found.documents is not None
    return [int(i) for i in found.documents[: len(found.documents)]]


def bytes_of(folder: Path) -> dict[str, bytes]:
    """Of all files that a set is made of."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != "checked.json"
    }


class TestOneSet:
    @settings(max_examples=examples(12))
    @given(shard_tokens=st.integers(1, 2500), block_bytes=st.integers(20, 900), words=st.integers(1, 40))
    def test_holds_what_one_file_would(
        self, shard_tokens: int, block_bytes: int, words: int, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        folder = tmp_path_factory.mktemp("sets")
        texts = [text(folder, "a", 12, words), text(folder, "b", 9, words)]
        make(folder / "one.npy", *texts)
        made = make(folder / "several", *texts, shard_tokens=shard_tokens, block_bytes=block_bytes)
        one, several = open_token_set(folder / "one.npy"), open_token_set(folder / "several")
        assert tokens_of(several) == tokens_of(one)
        assert starts_of(several) == starts_of(one)
        assert several.fingerprint == one.fingerprint
        assert several.file_bytes == made.file_bytes
        assert [s["tokens"] for s in made.manifest["sources"]] == [
            s["tokens"] for s in one.manifest["sources"]
        ]  # type: ignore[index]
        assert all(found.ok is not False for found in check_set(folder / "several", deep=True))
        sizes = [part.tokens for part in parts_of(SetFiles(folder / "several"), made.manifest)]
        assert sizes[:-1] == [shard_tokens] * (len(sizes) - 1)
        for split in ("train", "val"):
            streams = [
                StreamingDataset(split_data(found, None, None, 0.2), split, 7, 0) for found in (one, several)
            ]
            order = np.arange(len(streams[0]))
            batches = [stream.__getitems__(order)["labels"].tolist() for stream in streams]
            assert batches[0] == batches[1]

    def test_very_many_shards_are_told(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
    ) -> None:
        monkeypatch.setattr(making, "_MANY_SHARDS", 20)
        for size in (10, 1000):
            said: list[str] = []
            source, output = TextFile(text(tmp_path, "a")), tmp_path / str(size)
            pretokenize(source, BytesTokenizer(), output, Options(shard_tokens=size), said.append)
            golden.text("\n".join(said), f"{size}", numbers=False)

    def test_a_shard_stands_by_itself(self, tmp_path: Path) -> None:
        make(tmp_path / "set", text(tmp_path, "a"), shard_tokens=500)
        whole = open_token_set(tmp_path / "set")
        second = np.load(tmp_path / "set" / "shard_00001.npy", mmap_mode="r")
        starts = np.load(tmp_path / "set" / "shard_00001.docs.npy")
        assert second.tolist() == tokens_of(whole)[500:1000]
        assert (starts + 500).tolist() == [start for start in starts_of(whole) if 500 <= start < 1000]
        assert json.loads((tmp_path / "set" / "manifest.json").read_text())["version"] == 2

    def test_is_up_to_date_and_never_replaced_unasked(self, tmp_path: Path, golden: Golden) -> None:
        a = text(tmp_path, "a")
        assert make(tmp_path / "set", a, shard_tokens=500).made
        assert not make(tmp_path / "set", a, shard_tokens=500).made
        with golden.refused("output-differs"):
            make(tmp_path / "set", a, shard_tokens=600)
        with golden.refused("output-differs"):
            make(tmp_path / "set", a, shard_tokens=500, val_fraction=0.1)
        before = bytes_of(tmp_path / "set")
        assert make(tmp_path / "set", a, shard_tokens=9000, overwrite=True).made
        after = bytes_of(tmp_path / "set")
        assert len(after) < len(before)
        shard = ["shard_00000.docs.npy", "shard_00000.npy"]
        assert sorted(after) == ["manifest.json", *shard, "tokenizer/bytes.json"]

    def test_damage_is_found(self, tmp_path: Path, golden: Golden) -> None:
        make(tmp_path / "set", text(tmp_path, "a"), shard_tokens=500)
        shard = tmp_path / "set" / "shard_00001.npy"
        data = bytearray(shard.read_bytes())
        data[300] ^= 1
        shard.write_bytes(bytes(data))
        bad = [found for found in check_set(tmp_path / "set") if found.ok is False]
        assert "shard_00001.npy" in bad[0].message
        with golden.refused("tokens-changed"):
            open_token_set(tmp_path / "set")
        (tmp_path / "set" / "shard_00002.npy").unlink()
        with golden.refused("tokens-file-missing"):
            open_token_set(tmp_path / "set")

    @pytest.mark.parametrize(("there", "wanted"), [("set.npy", "set"), ("set", "set.npy")])
    def test_two_sets_of_one_name_are_refused(
        self, there: str, wanted: str, tmp_path: Path, golden: Golden
    ) -> None:
        a = text(tmp_path, "a")
        in_shards: dict[str, Any] = {"shard_tokens": 500}
        make(tmp_path / there, a, **({} if there.endswith(".npy") else in_shards))
        with golden.refused("output-name-taken"):
            make(tmp_path / wanted, a, **({} if wanted.endswith(".npy") else in_shards))

    def test_a_folder_of_other_things_is_left_alone(self, tmp_path: Path, golden: Golden) -> None:
        (tmp_path / "mine").mkdir()
        (tmp_path / "mine" / "thesis.tex").write_text("x")
        with golden.refused("output-is-other-folder"):
            make(tmp_path / "mine", text(tmp_path, "a"), shard_tokens=500)

    @pytest.mark.parametrize("version", ["shards", "tokens", "val", "val_train", "earlier"])
    def test_a_manifest_that_contradicts_itself(self, version: str, tmp_path: Path, golden: Golden) -> None:
        make(tmp_path / "set", text(tmp_path, "a"), shard_tokens=500, val_fraction=0.2)
        path = tmp_path / "set" / "manifest.json"
        manifest = json.loads(path.read_text())
        if version == "shards":
            del manifest["shards"][0]
        elif version == "tokens":
            manifest["shards"][0]["tokens"] = "many"
        elif version == "val":
            manifest["val"]["ranges"] = [[50, 40]]
        elif version == "val_train":
            manifest["val"]["ranges"] = [[0, manifest["tokens"]]]
        else:
            del manifest["earlier"]
        path.write_text(json.dumps(manifest))
        with golden.refused("manifest-damaged"):
            open_token_set(tmp_path / "set")


class TestHeldOut:
    def test_the_last_documents_which_runs_take_over(self, tmp_path: Path) -> None:
        a = text(tmp_path, "a")
        made = make(tmp_path / "a.npy", a, val_fraction=0.25)
        data = split_data(open_tokens(str(a)), None, None, 0.1)
        ((start, stop),) = made.manifest["val"]["ranges"]
        assert data.val_ranges == (range(start, stop),)
        assert stop == made.manifest["tokens"]
        assert start in starts_of(data.train)
        assert abs((stop - start) / stop - 0.25) < 0.02
        assert data.train_ranges == (range(start),)

    def test_a_run_may_ask_for_another_share(self, tmp_path: Path) -> None:
        a = text(tmp_path, "a")
        make(tmp_path / "a.npy", a, val_fraction=0.25)
        assert split_data(open_tokens(str(a)), None, None, 0.5).tokens("val") > split_data(
            open_tokens(str(a)), None, None, 0.1
        ).tokens("val")

    def test_by_token_where_documents_are_few(self, tmp_path: Path) -> None:
        made = make(tmp_path / "a.npy", text(tmp_path, "a", 5), val_fraction=0.25)
        ((start, stop),) = made.manifest["val"]["ranges"]
        assert stop - start == round(stop * 0.25)

    def test_the_split_is_part_of_what_a_run_is(self, tmp_path: Path) -> None:
        a = text(tmp_path, "a")
        make(tmp_path / "one.npy", a, val_fraction=0.25)
        make(tmp_path / "other.npy", a, val_fraction=0.5)
        found = {
            split_data(open_tokens(str(tmp_path / name)), None, None, 0.1).fingerprint
            for name in ("one", "other")
        }
        assert len(found) == 2


class TestAppend:
    def test_new_shards_behind_the_old_ones(self, tmp_path: Path) -> None:
        a, b, c = (text(tmp_path, name) for name in "abc")
        make(tmp_path / "set", a, shard_tokens=700, val_fraction=0.1)
        first = open_token_set(tmp_path / "set")
        before = bytes_of(tmp_path / "set")
        make(tmp_path / "set", b, append=True)
        longer = make(tmp_path / "set", c, append=True)
        make(tmp_path / "all.npy", a, b, c)
        grown, whole = open_token_set(tmp_path / "set"), open_token_set(tmp_path / "all.npy")
        assert tokens_of(grown) == tokens_of(whole)
        assert starts_of(grown) == starts_of(whole)
        assert grown.fingerprint == whole.fingerprint
        after = bytes_of(tmp_path / "set")
        assert {name: after[name] for name in before if name != "manifest.json"} == {
            name: data for name, data in before.items() if name != "manifest.json"
        }
        assert all(found.ok is not False for found in check_set(tmp_path / "set"))
        assert longer.manifest["earlier"][0] == first.fingerprint
        assert len(longer.manifest["earlier"]) == 2
        # what was held out stays held out, and each addition holds out its own
        held_out = longer.manifest["val"]["ranges"]
        assert held_out[0] == first.manifest["val"]["ranges"][0]  # type: ignore[index]
        assert len(held_out) == 3
        data = split_data(open_tokens(str(tmp_path / "set")), None, None, 0.1)
        assert [[part.start, part.stop] for part in data.val_ranges] == held_out
        assert data.tokens("train") + data.tokens("val") == grown.n_tokens

    def test_twice_the_same_is_once(self, tmp_path: Path, golden: Golden) -> None:
        a, b = text(tmp_path, "a"), text(tmp_path, "b")
        make(tmp_path / "set", a, shard_tokens=700)
        assert make(tmp_path / "set", b, append=True).made
        before = bytes_of(tmp_path / "set")
        assert not make(tmp_path / "set", b, append=True).made
        assert bytes_of(tmp_path / "set") == before
        with golden.refused("append-input-repeated"):
            make(tmp_path / "set", a, append=True)

    @pytest.mark.parametrize("change", ["grown", "cut", "other"])
    @pytest.mark.parametrize("which", ["first", "last"])
    def test_a_text_that_changed_since_under_its_name(
        self, change: str, which: str, tmp_path: Path, golden: Golden
    ) -> None:
        a, b = text(tmp_path, "a"), text(tmp_path, "b")
        make(tmp_path / "set", a, shard_tokens=700)
        make(tmp_path / "set", b, append=True)
        path = a if which == "first" else b
        held = path.read_bytes()
        path.write_bytes({"grown": held + b"more", "cut": held[:-4], "other": held[::-1]}[change])
        with golden.refused("append-input-changed"):
            make(tmp_path / "set", path, append=True)

    @pytest.mark.parametrize("way", ["touched", "copied", "packed", "unpacked"])
    def test_the_same_text_in_another_way_is_found(self, way: str, tmp_path: Path, golden: Golden) -> None:
        a, b = text(tmp_path, "a"), text(tmp_path, "b")
        packed = tmp_path / "packed.txt.gz"
        packed.write_bytes(gzip.compress(a.read_bytes()))
        make(tmp_path / "set", packed if way == "unpacked" else a, shard_tokens=700)
        before = bytes_of(tmp_path / "set")
        again = a
        if way == "touched":
            os.utime(a, (1, 1))
        elif way == "copied":
            again = a.rename(tmp_path / "other.txt")
        elif way == "packed":
            again = packed
        with golden.refused("append-input-repeated"):
            make(tmp_path / "set", again, append=True)
        assert bytes_of(tmp_path / "set") == before
        assert make(tmp_path / "set", b, append=True).made, "nothing of the attempt is in the way"

    @pytest.mark.parametrize("pack", [False, True])
    @pytest.mark.parametrize(
        ("grows", "beside"),
        [("x_train", "x_validation"), ("x_train", "x_val.npy"), ("x_validation", "x_train")],
    )
    def test_text_of_the_other_half_is_refused(
        self, grows: str, beside: str, pack: bool, tmp_path: Path, golden: Golden
    ) -> None:
        a, b = text(tmp_path, "a"), text(tmp_path, "b")
        make(tmp_path / grows, a, shard_tokens=700)
        make(tmp_path / beside, b, **({} if beside.endswith(".npy") else {"shard_tokens": 700}))
        again = b
        if pack:
            again = tmp_path / "b.gz"
            again.write_bytes(gzip.compress(b.read_bytes()))
        with golden.refused("append-input-repeated"):
            make(tmp_path / grows, again, append=True)

    def test_an_earlier_set_is_still_there(self, tmp_path: Path) -> None:
        a, b = text(tmp_path, "a"), text(tmp_path, "b")
        make(tmp_path / "set", a, shard_tokens=700)
        before = open_token_set(tmp_path / "set")
        make(tmp_path / "set", b, append=True)
        assert open_token_set(tmp_path / "set").n_tokens > before.n_tokens
        again = open_token_set(tmp_path / "set", version=before.fingerprint)
        assert tokens_of(again) == tokens_of(before)
        assert again.fingerprint == before.fingerprint
        path = SetFiles(tmp_path / "set").earlier_manifest(before.fingerprint)
        assert split_data(open_tokens(str(path)), None, None, 0.1).train.n_tokens == before.n_tokens

    def test_what_cannot_grow(self, tmp_path: Path, golden: Golden) -> None:
        a, b = text(tmp_path, "a"), text(tmp_path, "b")
        make(tmp_path / "a.npy", a)
        with golden.refused("append-to-file"):
            make(tmp_path / "a.npy", b, append=True)
        with golden.refused("append-without-set"):
            make(tmp_path / "set", b, append=True)
        make(tmp_path / "set", a, shard_tokens=700)
        with golden.refused("append-differs"):
            make(tmp_path / "set", b, append=True, shard_tokens=800)
        with golden.refused("append-differs"):
            make(tmp_path / "set", b, append=True, val_fraction=0.3)
        with golden.refused("append-differs"):
            pretokenize(TextFile(b), BytesTokenizer(), tmp_path / "set", Options(append=True))
        with golden.refused("append-and-overwrite"):
            make(tmp_path / "set", b, append=True, overwrite=True)


KILLS = [
    *(("new", point) for point in ("noted", "after_commit", "moved_tokenizer", "moved_manifest.json")),
    *(("overwrite", point) for point in ("appended", "moved_shard_00001.npy", "moved_shard_00001.docs.npy")),
    *(
        ("append", point)
        for point in ("noted", "before_commit", "moved_shard_00004.npy", "moved_manifest.json")
    ),
]


@pytest.mark.parametrize(("how", "point"), KILLS)
def test_killed_and_typed_again(
    point: str, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    a, b = text(Path(), "a"), text(Path(), "b")
    options: dict[str, Any] = {"append": True} if how == "append" else {"shard_tokens": 700}
    if how != "new":
        make(Path("set"), a, shard_tokens=700)
    if how == "overwrite":
        options["overwrite"] = True
    assert killed_at(f"set:{point}", lambda: make(Path("set"), b, block_bytes=100, **options))
    found = None
    if how != "new" or point.startswith(("after", "moved")):
        found = open_token_set(Path("set"))  # the old one or the new one, whole
    if point.startswith(("after", "moved")):
        assert found is not None
        assert not SetFiles(Path("set")).commit.exists()
    else:
        make(Path("set"), b, **options)
    made = bytes_of(Path("set"))
    assert not any(path.name.startswith(".") for path in Path().iterdir())
    (tmp_path / "again").mkdir()
    monkeypatch.chdir(tmp_path / "again")
    for path in (a, b):
        (tmp_path / path).rename(path)
    if how == "append":
        make(Path("set"), a, shard_tokens=700)
    make(Path("set"), b, **{**options, "overwrite": False})
    undisturbed = bytes_of(Path("set"))
    assert sorted(made) == sorted(undisturbed)
    for name, data in undisturbed.items():
        if not name.startswith("manifest"):
            assert made[name] == data
