"""Several inputs in one set: which files, in which order, their shares, and where the set ends."""

from __future__ import annotations

import glob
import gzip
import json
import lzma
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_loading.pretokenizer import journal
from data_loading.pretokenizer.inputs.concatenated import Inputs
from data_loading.pretokenizer.inputs.discover import InputOptions, open_inputs
from data_loading.pretokenizer.job import Result, pretokenize
from data_loading.pretokenizer.options import Options
from data_loading.pretokenizer.sources.stdin import StandardInput
from data_loading.text_io import byte_files, content_hash
from data_loading.text_io.content_hash import file_content_hash
from data_loading.text_io.source import Pieces, Source
from data_loading.text_io.text_file import TextFile
from data_loading.tokenizers.read_files import read_tokenizer
from data_loading.tokenizers.tokenizer import BytesTokenizer, Tokenizer
from experiment_utils import atomic_files
from tests.data_loading.conftest import hostile_text, zstd_bytes
from tests.golden_text import Golden
from tests.searched import examples

SEPARATOR = "<|end|>"
PACK: dict[str, Callable[[bytes], bytes]] = {
    "": lambda data: data,
    ".gz": gzip.compress,
    ".zst": zstd_bytes,
    ".xz": lzma.compress,
}


@dataclass
class Written:
    """A file of documents."""

    path: Path
    documents: list[str]


def write_input(folder: Path, number: int, kind: str, packing: str, documents: Sequence[str]) -> Written:
    path = folder / f"{number}.{kind}{packing}"
    if kind == "txt":
        data = f"\n{SEPARATOR}\n".join(documents).encode()
        # A separator needs a line of its own, so each text but the last gets a line feed.
        spelt = [f"{text}\n" for text in documents[:-1]] + list(documents[-1:])
    else:
        data = "\n".join(json.dumps({"text": text}) for text in documents).encode()
        spelt = list(documents)
    path.write_bytes(PACK[packing](data or b" "))
    return Written(path, [text for text in spelt if text] if data else [" "][: kind == "txt"])


def make(source: Source, tokenizer: Tokenizer, output: Path, **options: Any) -> Result:
    return pretokenize(source, tokenizer, output, Options(**options))


def opened(paths: Sequence[Path | str], **options: Any) -> Source:
    if any(".txt" in str(path) for path in paths):
        options = {"document_separator": SEPARATOR, **options}
    return open_inputs([str(path) for path in paths], InputOptions(**options))


def ids_of(documents: Sequence[str], tokenizer: Tokenizer) -> list[int]:
    return [i for text in documents for i in [*tokenizer.encode(text).tolist(), tokenizer.eot_id]]


class Interrupted(BaseException):
    """As a kill, but in this process."""


def interrupted_at(count: int) -> Callable[[str], None]:
    left = [count]

    def on_point(name: str) -> None:
        if name.endswith(":noted"):
            left[0] -= 1
            if not left[0]:
                raise Interrupted

    return on_point


clean_text = hostile_text.filter(lambda text: SEPARATOR not in text)
some_inputs = st.lists(
    st.tuples(
        st.sampled_from(["txt", "jsonl"]),
        st.sampled_from(sorted(PACK)),
        st.lists(clean_text, min_size=1, max_size=4),
    ),
    min_size=1,
    max_size=4,
)


@pytest.mark.parametrize("family", ["bytes", "gpt2", "llama2", "rstrip"])
@settings(max_examples=examples(12))
@given(
    written=some_inputs,
    read=st.integers(1, 200),
    block=st.integers(1, 400),
    stops=st.lists(st.integers(1, 4), max_size=3),
    limits=st.tuples(st.none() | st.integers(1, 8), st.none() | st.integers(1, 300)),
)
def test_ids_are_those_of_each_document_whole(
    family: str,
    written: list[tuple[str, str, list[str]]],
    read: int,
    block: int,
    stops: list[int],
    limits: tuple[int | None, int | None],
    tmp_path_factory: pytest.TempPathFactory,
    tokenizer_folder: Callable[[str], Path],
) -> None:
    """Whatever the kinds, compressions, read and block sizes, limits and interruptions."""
    folder = tmp_path_factory.mktemp("x")
    tokenizer = BytesTokenizer() if family == "bytes" else read_tokenizer(tokenizer_folder(family), family)
    files = [write_input(folder, number, *input_) for number, input_ in enumerate(written)]
    documents = [text for file in files for text in file.documents]
    max_documents, max_tokens = limits
    if max_documents is not None:
        documents = documents[:max_documents]
    if max_tokens is not None:
        ends = np.cumsum([len(ids_of([text], tokenizer)) for text in documents])
        documents = documents[: int(np.searchsorted(ends, max_tokens)) + 1]
    if not documents:
        return

    def attempt(output: Path, **options: Any) -> dict[str, Any]:
        source = opened([file.path for file in files], max_documents=max_documents, max_tokens=max_tokens)
        return make(source, tokenizer, output, engine="auto", **options).manifest

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(content_hash, "PIECE_BYTES", 64)
        patch.setattr(byte_files, "READ_BYTES", read)
        whole = attempt(folder / "whole.npy", block_bytes=1 << 20)
        for stop in stops:
            patch.setattr(atomic_files, "on_point", interrupted_at(stop))
            try:
                attempt(folder / "a.npy", block_bytes=block)
            except Interrupted:
                continue
        patch.setattr(atomic_files, "on_point", None)
        manifest = attempt(folder / "a.npy", block_bytes=block)
    assert np.load(folder / "a.npy").tolist() == ids_of(documents, tokenizer)
    assert manifest == whole
    assert (folder / "a.docs.npy").read_bytes() == (folder / "whole.docs.npy").read_bytes()
    if len(files) > 1:
        assert sum(source["tokens"] for source in manifest["sources"]) == manifest["tokens"]
        assert sum(source["documents"] for source in manifest["sources"]) == len(documents)


@given(written=some_inputs, read=st.integers(1, 200), limit=st.none() | st.integers(1, 6))
@settings(max_examples=examples(25))
def test_any_chunk_is_a_place_to_go_on(
    written: list[tuple[str, str, list[str]]],
    read: int,
    limit: int | None,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("x")
    files = [write_input(folder, number, *input_) for number, input_ in enumerate(written)]

    def source() -> Inputs:
        found = opened([file.path for file in files], max_documents=limit or 1000)
        assert isinstance(found, Inputs)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(content_hash, "PIECE_BYTES", 64)
        patch.setattr(byte_files, "READ_BYTES", read)
        first, pieces = source(), Pieces()
        whole = list(first.chunks(None, pieces))
        for number, chunk in enumerate(whole):
            for known in (pieces, Pieces()):
                again = source()
                found = list(again.chunks(json.loads(json.dumps(chunk.mark)), known))
                spelt = [(c.source, c.data, c.ends_document) for c in found if c.data or c.ends_document]
                assert b"".join(data for _, data, _ in spelt) == b"".join(c.data for c in whole[number:])
                assert sum(ends for *_, ends in spelt) == sum(c.ends_document for c in whole[number:])
                assert again.facts() == first.facts()


def test_files_that_were_read_are_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text(name)
    paths, pieces = [tmp_path / "a.txt", tmp_path / "b.txt"], Pieces(tmp_path / "pieces.jsonl")
    first = opened(paths)
    whole = list(first.chunks(None, pieces))
    opened_again, again = [], opened(paths)
    read = byte_files.ByteFile.read
    monkeypatch.setattr(
        byte_files.ByteFile, "read", lambda self, *a: opened_again.append(self.path.name) or read(self, *a)
    )
    assert list(again.chunks(whole[-1].mark, Pieces(tmp_path / "pieces.jsonl"))) == whole[-1:]
    assert again.facts() == first.facts()
    assert opened_again == ["b.txt"]


class TestWhichFiles:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        for name in (
            "b.txt",
            "a.jsonl",
            "sub/c.txt.gz",
            "sub/d.json.zst",
            "README.md",
            "x.json",
            ".hidden.txt",
        ):
            (tmp_path / name).parent.mkdir(exist_ok=True)
            line = b'{"text": "x"}' if "json" in name else b"x"
            (tmp_path / name).write_bytes(PACK.get(Path(name).suffix, bytes)(line))
        (tmp_path / "b.tokenizer").mkdir()
        (tmp_path / "b.tokenizer" / "merges.txt").write_text("x")
        (tmp_path / ".git").mkdir()
        (tmp_path / ".git" / "e.txt").write_text("x")
        return tmp_path

    def names(self, source: Source, folder: Path) -> list[str]:
        assert isinstance(source, Inputs)
        return [str(Path(part.what).relative_to(folder)) for part in source.parts]

    def test_a_folder_is_all_known_files_in_it_sorted(self, folder: Path) -> None:
        found = open_inputs([str(folder)], InputOptions())
        assert self.names(found, folder) == ["a.jsonl", "b.txt", "sub/c.txt.gz", "sub/d.json.zst"]

    def test_a_pattern_is_what_matches_sorted(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        matching = glob.glob
        monkeypatch.setattr(glob, "glob", lambda *a, **k: sorted(matching(*a, **k), reverse=True))
        found = open_inputs([f"{folder}/*.[jt]*"], InputOptions())
        assert self.names(found, folder) == ["a.jsonl", "b.txt", "x.json"]
        found = open_inputs([f"{folder}/**/*.gz", f"{folder}/b.txt"], InputOptions())
        assert self.names(found, folder) == ["sub/c.txt.gz", "b.txt"]

    def test_a_file_whose_name_looks_like_a_pattern(self, tmp_path: Path) -> None:
        (tmp_path / "a[1].txt").write_text("x")
        assert open_inputs([f"{tmp_path}/a[1].txt"], InputOptions()).what.endswith("a[1].txt")

    @pytest.mark.parametrize(
        ("arguments", "options", "code"),
        [
            (["no*"], {}, "pattern-without-match"),
            (["sub/empty"], {}, "folder-without-texts"),
            (["b.txt", "b.txt"], {}, "input-twice"),
            ([".", "link.txt"], {}, "input-twice"),
            (["-", "-"], {}, "input-twice"),
            (["no.txt"], {}, "input-missing"),
            (["zero.txt", "b.txt"], {}, "input-empty"),
            (["zero*"], {}, "input-empty"),
            (["x.npy"], {}, "input-is-tokens"),
            (["b.txt"], {"text_field": "text"}, "flag-without-effect"),
            (["b.txt"], {"skip_bad": 1}, "flag-without-effect"),
            (["a.jsonl"], {"document_separator": "-"}, "flag-without-effect"),
        ],
    )
    def test_refused(
        self,
        arguments: list[str],
        options: dict[str, Any],
        code: str,
        folder: Path,
        monkeypatch: pytest.MonkeyPatch,
        golden: Golden,
    ) -> None:
        (folder / "sub" / "empty").mkdir()
        (folder / "x.npy").write_bytes(b"x")
        monkeypatch.chdir(folder)
        if "link.txt" in arguments:
            (folder / "link.txt").hardlink_to(folder / "b.txt")
            arguments = ["b.txt", "link.txt"]
        (folder / "zero.txt").touch()
        with golden.refused(code):
            open_inputs(arguments, InputOptions(**options))

    @pytest.mark.parametrize(
        ("argument", "left_out"),
        [
            ("sub", "sub/e.txt, sub/z.txt"),
            ("sub/*", "sub/_SUCCESS, sub/e.txt, sub/z.txt"),
            ("sub/**", "sub/_SUCCESS, sub/e.txt, sub/z.txt"),
        ],
    )
    def test_empty_files_that_nobody_named_are_left_out_with_a_line(
        self, argument: str, left_out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
    ) -> None:
        monkeypatch.chdir(tmp_path)
        Path("sub").mkdir()
        for name in ("z.txt", "_SUCCESS", "e.txt"):
            (tmp_path / "sub" / name).touch()
        Path("sub/t.txt").write_text("water")
        said: list[str] = []
        source = open_inputs([argument], InputOptions())
        made = pretokenize(source, BytesTokenizer(), tmp_path / "x.npy", Options(), said.append)
        assert [Path(source["path"]).name for source in made.manifest["sources"]] == ["t.txt"]
        golden.text(said[0], numbers=False)


class TestSet:
    def test_the_manifest_tells_each_share(self, tmp_path: Path, golden: Golden) -> None:
        (tmp_path / "a.txt").write_text("three words here")
        (tmp_path / "b.jsonl").write_text('{"text": "x"}\n{"text": ""}\nbad\n{"text": "yz"}\n')
        source = opened([tmp_path / "a.txt", tmp_path / "b.jsonl"], skip_bad=1, max_documents=100)
        said: list[str] = []
        manifest = pretokenize(source, BytesTokenizer(), tmp_path / "x.npy", Options(), said.append).manifest
        assert [(s["path"], s["documents"], s["tokens"], s.get("skipped")) for s in manifest["sources"]] == [
            ("a.txt", 1, 17, None), ("b.jsonl", 2, 5, 1),
        ]  # fmt: skip
        assert manifest["options"] == {
            "encoding": "utf-8",
            "errors": "strict",
            "document_separator": SEPARATOR,
            "text_field": "text",
            "max_documents": 100,
            "special_tokens": "text",
        }
        assert manifest["sources"][0]["content_hash"] == file_content_hash(tmp_path / "a.txt")
        golden.text("\n".join(said), numbers=False)

    def fingerprint(self, tmp_path: Path, names: Sequence[str], **options: Any) -> str:
        source = opened([tmp_path / name for name in names], **options)
        output = tmp_path / f"{len(list(tmp_path.iterdir()))}.npy"
        return make(source, BytesTokenizer(), output).manifest["fingerprint"]

    def test_the_fingerprint_is_of_all_contents_in_order(self, tmp_path: Path) -> None:
        for name, text in (("a.txt", "a"), ("b.txt", "b"), ("c.txt", "c")):
            (tmp_path / name).write_text(text)
        (tmp_path / "A.txt").write_bytes(gzip.compress(b"a"))
        of = self.fingerprint
        first = of(tmp_path, ["a.txt", "b.txt"])
        assert first == of(tmp_path, ["A.txt", "b.txt"]), "of what is in the files, however packed"
        others = [["b.txt", "a.txt"], ["a.txt", "c.txt"], ["a.txt", "b.txt", "c.txt"], ["a.txt"]]
        assert len({first, *(of(tmp_path, names) for names in others)}) == 5
        assert first != of(tmp_path, ["a.txt", "b.txt"], max_documents=5)

    def test_up_to_date_and_what_is_not(self, tmp_path: Path, golden: Golden) -> None:
        names = [tmp_path / "a.txt", tmp_path / "b.txt.gz", tmp_path / "c.txt"]
        for path in names:
            path.write_bytes(PACK[".gz"](path.name.encode()) if path.suffix == ".gz" else path.name.encode())
        output = tmp_path / "x.npy"
        assert make(opened(names), BytesTokenizer(), output).made
        for path in names:
            os.utime(path, (1, 1))
        assert not make(opened(names), BytesTokenizer(), output).made
        cases = [
            (names[:2], {}),
            ([*names, tmp_path / "d.txt"], {}),
            ([*names[:2], tmp_path / "d.txt"], {}),
            (names, {"max_tokens": 3}),
        ]
        (tmp_path / "d.txt").write_bytes(b"d.txt")
        for paths, options in cases:
            with golden.refused("output-differs"):
                make(opened(paths, **options), BytesTokenizer(), output)
        names[1].write_bytes(gzip.compress(b"B.txt.gz"))
        with golden.refused("output-differs"):
            make(opened(names), BytesTokenizer(), output)

    def test_a_limited_set_made_again_without_its_limit_is_refused(
        self, tmp_path: Path, golden: Golden
    ) -> None:
        (tmp_path / "a.txt").write_text("a")
        make(opened([tmp_path / "a.txt"], max_documents=1), BytesTokenizer(), tmp_path / "x.npy")
        with golden.refused("output-differs"):
            make(opened([tmp_path / "a.txt"]), BytesTokenizer(), tmp_path / "x.npy")

    @pytest.mark.parametrize("workers", [0, 2])
    def test_the_rest_of_a_huge_input_is_not_read(
        self, workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(byte_files, "READ_BYTES", 1000)
        (tmp_path / "a.jsonl").write_text('{"text": "0123456789"}\n' * 20_000)
        (tmp_path / "b.jsonl").write_text('{"text": "never"}\n')
        paths = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
        hashes = set()
        for block in (1, 50, 3000):
            source = opened(paths, max_tokens=1100)
            manifest = make(
                source, BytesTokenizer(), tmp_path / f"{block}.npy", workers=workers, block_bytes=block
            ).manifest
            assert (manifest["tokens"], manifest["documents"]) == (1100, 100)
            (only,) = manifest["sources"]
            assert only["read_bytes"] == 3000
            hashes.add(only["content_hash"])
        assert len(hashes) == 1
        again = opened(paths, max_tokens=1100)
        os.utime(paths[0], (1, 1))
        assert not make(again, BytesTokenizer(), tmp_path / "1.npy").made

    def test_killed_behind_its_last_token_it_still_ends_there(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "a.jsonl").write_text('{"text": "0123456789"}\n' * 300)

        def attempt(name: str) -> bytes:
            source = opened([tmp_path / "a.jsonl"], max_tokens=35)
            make(source, BytesTokenizer(), tmp_path / f"{name}.npy", block_bytes=20)
            return (tmp_path / f"{name}.npy.json").read_bytes()

        monkeypatch.setattr(atomic_files, "on_point", interrupted_at(2))
        with pytest.raises(Interrupted):
            attempt("x")
        progress, _ = journal.read_progress(tmp_path / ".x.npy.partial", np.dtype("<u2"))
        assert progress.written.tokens == 44
        monkeypatch.setattr(atomic_files, "on_point", None)
        assert attempt("x") == attempt("y")

    def test_nothing_but_empty_documents(self, tmp_path: Path, golden: Golden) -> None:
        (tmp_path / "a.jsonl").write_text('{"text": ""}\n\n')
        with golden.refused("no-text"):
            make(opened([tmp_path / "a.jsonl"]), BytesTokenizer(), tmp_path / "x.npy")

    def test_a_part_that_changes_while_it_is_read(self, tmp_path: Path, golden: Golden) -> None:
        for name in ("a.txt", "b.txt"):
            (tmp_path / name).write_text("the water " * 10)
        source = opened([tmp_path / "a.txt", tmp_path / "b.txt"])
        (tmp_path / "b.txt").write_text("the water rose")
        with golden.refused("changed-while-read"):
            make(source, BytesTokenizer(), tmp_path / "x.npy")


class TestStandardInput:
    def piped(self, data: bytes) -> StandardInput:
        read_end, write_end = os.pipe()
        os.write(write_end, data)
        os.close(write_end)
        return StandardInput(read_end)

    @pytest.mark.parametrize("packing", sorted(PACK))
    @pytest.mark.parametrize("read", [1, 7, 1 << 20])
    def test_is_read_once_samples_first(
        self, packing: str, read: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(byte_files, "READ_BYTES", read)
        text = "the wäter rose".encode()
        source = TextFile(Path("-"), stream=self.piped(PACK[packing](text)))
        assert source.samples() == [text]
        assert b"".join(chunk.data for chunk in source.chunks()) == text
        assert source.total_bytes is None
        assert not source.can_continue
        facts = source.facts()[0]
        expected = content_hash.ContentHash()
        expected.update(text)
        assert (facts["path"], facts["content_hash"]) == ("-", expected.hexdigest())
        assert facts["bytes"] == len(PACK[packing](text))

    def test_empty(self, golden: Golden) -> None:
        with golden.refused("input-empty"):
            TextFile(Path("-"), stream=self.piped(b"")).samples()

    def test_an_interrupted_one_begins_again(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
    ) -> None:
        def attempt() -> None:
            source = TextFile(Path("-"), stream=self.piped(b"the water rose " * 100))
            make(source, BytesTokenizer(), tmp_path / "x.npy", block_bytes=100)

        monkeypatch.setattr(atomic_files, "on_point", interrupted_at(3))
        with pytest.raises(Interrupted):
            attempt()
        monkeypatch.setattr(atomic_files, "on_point", None)
        attempt()
        assert len(np.load(tmp_path / "x.npy")) == 1501
        with golden.refused("output-differs"):
            attempt()
