"""verify: every fault of a set is found, and a whole set has none."""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data_loading.audit import encode_again
from data_loading.audit.check_set import check_set
from data_loading.commands.set_commands import main
from data_loading.pretokenizer import manifest as manifests
from data_loading.pretokenizer import writer
from data_loading.pretokenizer.inputs.concatenated import Inputs
from data_loading.pretokenizer.inputs.discover import InputOptions, open_inputs
from data_loading.pretokenizer.job import pretokenize
from data_loading.pretokenizer.options import Options
from data_loading.text_io.text_file import TextFile
from data_loading.tokenizers.read_files import read_tokenizer
from data_loading.tokenizers.tokenizer import BytesTokenizer
from tests.data_loading.conftest import training_text
from tests.golden_text import Golden

Change = Callable[[Path], Any]


@pytest.fixture
def made(tmp_path: Path, tokenizer_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    for where in (writer, manifests):
        monkeypatch.setattr(where, "CHECKSUM_BYTES", 1000)
    text = "\n-\n".join("".join(training_text()[i : i + 40]) for i in range(0, 400, 40))
    (tmp_path / "a.txt").write_text(text)
    definition = json.loads((tokenizer_folder("gpt2") / "tokenizer.json").read_text())
    definition["decoder"] = definition["pre_tokenizer"]
    (tmp_path / "gpt2").mkdir()
    (tmp_path / "gpt2/tokenizer.json").write_text(json.dumps(definition))
    source = TextFile(tmp_path / "a.txt", document_separator="-")
    pretokenize(source, read_tokenizer(tmp_path / "gpt2", "gpt2"), tmp_path / "a.npy", Options())
    return tmp_path / "a.npy"


def wrong(path: Path, *, deep: bool = False) -> dict[str, str]:
    return {finding.what: finding.message for finding in check_set(path, deep=deep) if finding.ok is False}


def edit(path: Path, index: int, value: int) -> None:
    array = np.load(path, mmap_mode="r+")
    array[index] = value
    array.flush()


def move_start(path: Path, index: int) -> None:
    edit(path, index, int(np.load(path)[index]) + 1)


def cut(path: Path, length: int) -> None:
    path.write_bytes(path.read_bytes()[:length])


def edit_manifest(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    manifest = path.with_name("a.npy.json")
    facts = json.loads(manifest.read_text())
    change(facts)
    manifest.write_text(json.dumps(facts))


def test_a_whole_set_has_no_fault(made: Path) -> None:
    findings = check_set(made, deep=True)
    assert {finding.what: finding.ok for finding in findings} == dict.fromkeys([
        "tokens", "checksums", "ids", "documents", "document checksum", "document starts",
        "document ends", "source shares", "tokenizer",
        "source", "whole documents", "token sample",
    ], True)  # fmt: skip


@pytest.mark.parametrize(("change", "found"), [
    (lambda p: edit(p, 700, 5), {"checksums"}),
    (lambda p: edit(p, 700, 60_000), {"checksums", "ids"}),
    (lambda p: edit(p, -1, 5), {"checksums", "document ends"}),
    (lambda p: np.save(p, np.load(p)[:-1]), {"tokens"}),
    (lambda p: np.save(p, np.load(p).astype("<u4")), {"tokens"}),
    (lambda p: move_start(p.with_name("a.docs.npy"), 3), {"document checksum", "document ends"}),
    (lambda p: edit(p.with_name("a.docs.npy"), 0, 1), {"document checksum", "document starts"}),
    (lambda p: edit(p.with_name("a.docs.npy"), 3, 1), {"document checksum", "document starts"}),
    (lambda p: edit(p.with_name("a.docs.npy"), -1, 10**9), {"document checksum", "document starts"}),
    (lambda p: p.with_name("a.docs.npy").unlink(), {"documents"}),
    (lambda p: cut(p.with_name("a.docs.npy"), -1), {"documents"}),
    (lambda p: cut(p.with_name("a.docs.npy"), 10), {"documents"}),
    (lambda p: cut(p, -1), {"tokens"}),
    (lambda p: cut(p, 0), {"tokens"}),
    (lambda p: p.unlink(), {"tokens"}),
    (lambda p: (p.unlink(), p.with_name("a.docs.npy").unlink()), {"tokens", "documents"}),
    (lambda p: (p.unlink(), p.with_name("a.txt").write_text("another")), {"tokens", "source"}),
    (lambda p: cut(p.with_name("a.npy.json"), 100), {"manifest"}),
    (lambda p: edit_manifest(p, lambda m: m.pop("options")), {"manifest"}),
    (lambda p: shutil.rmtree(p.with_name("a.tokenizer")), {"tokenizer"}),
    (lambda p: p.with_name("a.txt").write_text("another"), {"source"}),
    (lambda p: edit_manifest(p, lambda m: m["checksums"]["blocks"].pop()), {"checksums"}),
    (lambda p: edit_manifest(p, lambda m: m.update(documents=3)), {"documents"}),
    (lambda p: edit_manifest(p, lambda m: m["sources"][0].update(documents=3)), {"source shares"}),
    (lambda p: edit_manifest(p, lambda m: m["sources"][0].update(tokens=3)), {"source shares"}),
    (lambda p: edit_manifest(p, lambda m: m["sources"][0].update(tokens="3")), {"manifest"}),
    (lambda p: edit_manifest(p, lambda m: m["sources"][0].update(duplicates={"bytes": None})), {"manifest"}),
    (lambda p: edit_manifest(p, lambda m: m["tokenizer"].update(vocab_size=65_536)), {"tokenizer"}),
    (lambda p: edit_manifest(p, lambda m: m["tokenizer"].update(eot_id=None)), {"tokenizer"}),
    (lambda p: p.with_name("a.tokenizer").joinpath("special_tokens_map.json").write_text("{"), {"tokenizer"}),
])  # fmt: skip
def test_a_fault_is_found(change: Change, found: set[str], made: Path) -> None:
    change(made)
    assert set(wrong(made)) == found


@pytest.mark.parametrize(("name", "found"), [
    ("shard_00001.npy", {"tokens"}), ("shard_00001.docs.npy", {"documents"}),
])  # fmt: skip
def test_faults_of_other_shards_are_found_if_one_is_missing(
    name: str, found: set[str], tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("abc " * 100)
    pretokenize(TextFile(tmp_path / "a.txt"), BytesTokenizer(), tmp_path / "a", Options(shard_tokens=100))
    (tmp_path / "a" / name).unlink()
    assert set(wrong(tmp_path / "a", deep=True)) == found
    edit(tmp_path / "a/shard_00003.npy", 5, 400)
    assert set(wrong(tmp_path / "a", deep=True)) == {*found, "checksums", "ids"}


def test_a_shard_outside_the_folder(tmp_path: Path, golden: Golden) -> None:
    (tmp_path / "a.txt").write_text("abc " * 100)
    pretokenize(TextFile(tmp_path / "a.txt"), BytesTokenizer(), tmp_path / "a", Options(shard_tokens=100))
    (tmp_path / "a/shard_00001.npy").rename(tmp_path / "shard_00001.npy")
    manifest = tmp_path / "a/manifest.json"
    manifest.write_text(manifest.read_text().replace("shard_00001", "../shard_00001"))
    golden.text(wrong(tmp_path / "a")["manifest"])


@pytest.mark.parametrize("damage", ['{"type": "bytes", "vocab_size": 300, "eot_id": 256}', "", "[]"])
def test_the_file_of_the_bytes_tokenizer(damage: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("abc")
    pretokenize(TextFile(tmp_path / "a.txt"), BytesTokenizer(), tmp_path / "a.npy", Options())
    (tmp_path / "a.tokenizer/bytes.json").write_text(damage)
    assert set(wrong(tmp_path / "a.npy")) == {"tokenizer"}


@pytest.mark.parametrize("name", ["vocab.json", "merges.txt"])
def test_the_copies_of_a_vocabulary_and_its_merges(name: str, made: Path, tmp_path: Path) -> None:
    model = json.loads((made.with_name("a.tokenizer") / "tokenizer.json").read_text())["model"]
    (tmp_path / "two").mkdir()
    (tmp_path / "two/vocab.json").write_text(json.dumps(model["vocab"]))
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"]]
    (tmp_path / "two/merges.txt").write_text("\n".join(merges))
    output = tmp_path / "b.npy"
    pretokenize(TextFile(tmp_path / "a.txt"), read_tokenizer(tmp_path / "two", "two"), output, Options())
    assert wrong(output, deep=True) == {}
    copy = tmp_path / "b.tokenizer" / name
    cut_at = copy.read_text().rindex("\n" if name == "merges.txt" else ",")
    copy.write_text(copy.read_text()[:cut_at] + ("" if name == "merges.txt" else "}"))
    assert set(wrong(output)) == {"tokenizer"}


def test_a_manifest_of_a_later_version_is_no_damage(made: Path, golden: Golden) -> None:
    edit_manifest(made, lambda m: m.update(version=99))
    with golden.refused("version-too-new"):
        check_set(made)


def test_another_tokenizer_in_the_set(made: Path, golden: Golden) -> None:
    shutil.rmtree(made.with_name("a.tokenizer"))
    BytesTokenizer().save(made.with_name("a.tokenizer"))
    golden.text(wrong(made)["tokenizer"], numbers=False)


def test_the_damaged_block_is_named(made: Path, golden: Golden) -> None:
    edit(made, 700, 5)
    golden.text(wrong(made)["checksums"])


def test_a_text_of_the_same_size_is_read(made: Path, golden: Golden) -> None:
    text = made.with_name("a.txt")
    text.write_bytes(text.read_bytes()[:-1] + b"~")
    golden.text(wrong(made)["source"])
    text.unlink()
    assert {finding.what: finding.ok for finding in check_set(made)}["source"] is None


def rewrite(path: Path, tokens: np.ndarray) -> None:
    """Write tokens as a faulty engine would have: everything else agrees."""
    np.save(path, tokens.astype("<u2"))
    data = tokens.astype("<u2").tobytes()
    blocks = [hashlib.sha256(data[i : i + 1000]).hexdigest() for i in range(0, len(data), 1000)]
    edit_manifest(path, lambda m: (m["checksums"].update(blocks=blocks), m.update(tokens=len(tokens))))


@pytest.mark.parametrize("place", [60, -300])
def test_deep_finds_words_that_are_not_in_the_text(place: int, made: Path) -> None:
    tokens = np.load(made)
    tokens[place : place + 5] = tokens[200:205]
    rewrite(made, tokens)
    assert wrong(made) == {}
    assert "whole documents" in wrong(made, deep=True)


def test_deep_finds_ids_that_the_tokenizer_would_not_give(made: Path) -> None:
    made.with_name("a.txt").unlink()
    tokenizer = read_tokenizer(made.with_name("a.tokenizer"), "gpt2")
    tokens = np.load(made)
    end = int(np.load(made.with_name("a.docs.npy"))[1]) - 1
    one_by_one = np.concatenate([tokenizer.encode(c) for c in tokenizer.decode(tokens[:end])])
    assert len(one_by_one) > end + 100
    kept = int(np.searchsorted(np.cumsum([1] * len(one_by_one)), end))
    tokens[:end] = one_by_one[: kept + 1][:end]
    rewrite(made, tokens)
    assert wrong(made) == {}
    assert "token sample" in wrong(made, deep=True)


def test_a_tokenizer_that_does_not_give_back_its_text(
    tmp_path: Path, tokenizer_folder: Callable[[str], Path]
) -> None:
    (tmp_path / "a.txt").write_text("".join(training_text()[:50]))
    tokenizer = read_tokenizer(tokenizer_folder("wordpiece"), "wordpiece")
    pretokenize(TextFile(tmp_path / "a.txt"), tokenizer, tmp_path / "a.npy", Options())
    found = {finding.what: finding.ok for finding in check_set(tmp_path / "a.npy", deep=True)}
    assert found["whole documents"] is True
    assert found["token sample"] is None


DOCUMENTS = [
    "The first.\nIt has <|end|> two lines.\n",
    "The second.\n",
    "A",
    "\u00e9\u4e2d\U0001f600 x.\n",
    "b c\n\n\nd",
]


@pytest.mark.parametrize(
    ("count", "limit", "shard_tokens"), [(2, None, None), (300, None, 100), (300, 60, None)]
)
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize("separator", ["<|end|>", "-", "", "\u4e2d" * 30, "two words"])
def test_deep_divides_documents_as_they_were_divided(
    count: int, separator: str, line_end: str, limit: int | None, shard_tokens: int | None, tmp_path: Path
) -> None:
    between = f"\n{separator}\n".join(DOCUMENTS[i % 5] for i in range(count))
    (tmp_path / "a.txt").write_bytes(between.replace("\n", line_end).encode())
    source = Inputs([TextFile(tmp_path / "a.txt", document_separator=separator)], max_documents=limit)
    output = tmp_path / ("a.npy" if shard_tokens is None else "a")
    pretokenize(source, BytesTokenizer(), output, Options(workers=0, shard_tokens=shard_tokens))
    found = {finding.what: finding.ok for finding in check_set(output, deep=True)}
    assert False not in found.values()
    assert found["whole documents"] is True


def test_deep_encodes_documents_of_every_kind_of_input_again(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / f"{name}.txt").write_text(f"The words of {name}.\n" * 300)
    (tmp_path / "d.txt.gz").write_bytes(gzip.compress(b"The words of d.\n" * 300))
    (tmp_path / "e.jsonl").write_text('{"text": ""}\n{"x": 1}\n{"text": "The words of e."}\n')
    names = ["a.txt", "b.txt", "c.txt", "d.txt.gz", "e.jsonl"]
    source = open_inputs([str(tmp_path / name) for name in names], InputOptions(skip_bad=1))
    pretokenize(source, BytesTokenizer(), tmp_path / "s.npy", Options(workers=0))
    (tmp_path / "c.txt").unlink()
    found = check_set(tmp_path / "s.npy", deep=True)
    assert [f.ok for f in found if f.what == "whole documents"] == [True, True, None, True, True]
    tokens = np.load(tmp_path / "s.npy")
    tokens[8000:8040] = 32  # inside of b
    tokens[-5] = 32  # inside of e
    np.save(tmp_path / "s.npy", tokens)
    found = check_set(tmp_path / "s.npy", deep=True)
    assert [f.ok for f in found if f.what == "whole documents"] == [True, False, None, True, False]


@pytest.mark.parametrize("number", range(0, 200, 23))
def test_deep_finds_each_change_in_a_small_set(number: int, tmp_path: Path) -> None:
    lines = [json.dumps({"text": f"Document {number} has some words."}) for number in range(200)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    source = open_inputs([str(tmp_path / "a.jsonl")], InputOptions())
    pretokenize(source, BytesTokenizer(), tmp_path / "a.npy", Options(workers=0))
    tokens, starts = np.load(tmp_path / "a.npy"), np.load(tmp_path / "a.docs.npy")
    tokens[int(starts[number]) + 2] = 32
    np.save(tmp_path / "a.npy", tokens)
    assert "whole documents" in wrong(tmp_path / "a.npy", deep=True)


@pytest.mark.parametrize("engine", ["bytes", "gpt2"])
def test_deep_finds_a_document_that_was_cut(
    engine: str,
    tmp_path: Path,
    tokenizer_folder: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(encode_again, "SMALL_BYTES", 0)
    texts = [f"Document {number} has some words. " * (50 if number == 700 else 2) for number in range(1000)]
    lines = [json.dumps({"text": text}) for text in texts]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    cut = [json.dumps({"text": text[:700]}) for text in texts]
    (tmp_path / "b.jsonl").write_text("\n".join(cut))
    gpt2 = read_tokenizer(tokenizer_folder("gpt2"), "gpt2")
    tokenizer = gpt2 if engine == "gpt2" else BytesTokenizer()
    for name in ("a", "b"):
        source = open_inputs([str(tmp_path / f"{name}.jsonl")], InputOptions())
        pretokenize(source, tokenizer, tmp_path / "a.npy", Options(overwrite=True))
        assert wrong(tmp_path / "a.npy", deep=True) == {}
    (tmp_path / "a.jsonl").replace(tmp_path / "b.jsonl")
    size = (tmp_path / "b.jsonl").stat().st_size
    edit_manifest(tmp_path / "a.npy", lambda m: m["sources"][0].update(bytes=size))
    assert "whole documents" in wrong(tmp_path / "a.npy", deep=True)


def test_shares_that_one_source_lacks(tmp_path: Path, golden: Golden) -> None:
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text(f"The words of {name}.\n")
    source = open_inputs([str(tmp_path / "a.txt"), str(tmp_path / "b.txt")], InputOptions())
    pretokenize(source, BytesTokenizer(), tmp_path / "a.npy", Options(workers=0))
    edit_manifest(tmp_path / "a.npy", lambda m: m["sources"][1].pop("tokens"))
    found = wrong(tmp_path / "a.npy")
    assert set(found) == {"source shares"}
    golden.text(found["source shares"])


@pytest.mark.parametrize("documents", [1, 300])
def test_held_out_ranges(documents: int, tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text(f"The words of {name}.\n--\n" * documents)
    form = Options(workers=0, shard_tokens=1000, val_fraction=0.2)
    source = TextFile(tmp_path / "a.txt", document_separator="--")
    pretokenize(source, BytesTokenizer(), tmp_path / "s", form)
    whole = (tmp_path / "s/manifest.json").read_text()
    manifest = json.loads(whole)
    (start, stop), fraction = manifest["val"]["ranges"][0], manifest["val"]["fraction"]
    assert fraction == 0.2
    for ranges in ([[1, 2]], [[start - 1, stop]], [[start, stop - 1]]):
        manifest["val"]["ranges"] = ranges
        (tmp_path / "s/manifest.json").write_text(json.dumps(manifest))
        assert set(wrong(tmp_path / "s")) == {"held out"}
    (tmp_path / "s/manifest.json").write_text(whole)
    assert wrong(tmp_path / "s") == {}
    more = TextFile(tmp_path / "b.txt", document_separator="--")
    pretokenize(more, BytesTokenizer(), tmp_path / "s", Options(workers=0, append=True))
    assert wrong(tmp_path / "s") == {}


def test_deep_finds_a_long_document_that_lost_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind the bytes that are encoded again only the end of a document is compared."""
    monkeypatch.setattr(encode_again, "ENCODED_BYTES", 1000)
    (tmp_path / "a.txt").write_text("".join(f"word{number} " for number in range(300_000)))
    pretokenize(TextFile(tmp_path / "a.txt"), BytesTokenizer(), tmp_path / "a.npy", Options())
    found = {finding.what: finding.ok for finding in check_set(tmp_path / "a.npy", deep=True)}
    assert found["whole documents"] is True
    tokens = np.load(tmp_path / "a.npy")
    np.save(tmp_path / "a.npy", np.append(tokens[:1_900_000], tokens[-1:]))
    edit_manifest(tmp_path / "a.npy", lambda m: m.update(tokens=1_900_001))
    edit_manifest(tmp_path / "a.npy", lambda m: m["sources"][0].update(tokens=1_900_001))
    assert set(wrong(tmp_path / "a.npy", deep=True)) == {"checksums", "whole documents"}


def test_a_text_that_is_empty_now(made: Path) -> None:
    made.with_name("a.txt").write_bytes(b"")
    assert set(wrong(made, deep=True)) == {"source"}


def test_a_lone_file_cannot_be_verified(tmp_path: Path, golden: Golden) -> None:
    np.save(tmp_path / "a.npy", np.arange(3, dtype=np.uint16))
    with golden.refused("manifest-missing"):
        check_set(tmp_path / "a.npy")


class TestCommand:
    def test_a_whole_set(self, made: Path, capsys: pytest.CaptureFixture[str], golden: Golden) -> None:
        assert main(["verify", str(made.with_suffix("")), "--deep"]) == 0
        golden.text(capsys.readouterr().out, numbers=False)

    def test_a_damaged_set(self, made: Path, capsys: pytest.CaptureFixture[str], golden: Golden) -> None:
        edit(made, 700, 5)
        assert main(["verify", str(made), "--json"]) == 1
        printed = capsys.readouterr()
        assert [f["what"] for f in json.loads(printed.out) if f["ok"] is False] == ["checksums"]
        golden.text(printed.err)

    def test_a_missing_file(self, made: Path, capsys: pytest.CaptureFixture[str], golden: Golden) -> None:
        made.unlink()
        assert main(["verify", str(made), "--json"]) == 1
        printed = capsys.readouterr()
        assert [f["what"] for f in json.loads(printed.out) if f["ok"] is False] == ["tokens"]
        golden.text(printed.err)

    def test_no_set(self, tmp_path: Path, golden: Golden) -> None:
        with golden.refused("no-token-set"):
            main(["verify", str(tmp_path / "a.txt")])
