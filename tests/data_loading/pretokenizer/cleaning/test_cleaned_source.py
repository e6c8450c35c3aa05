"""Cleaning in pieces is cleaning as a whole, twice is once, and any chunk is a place to go on."""

from __future__ import annotations

import json
import re
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from data_loading.audit.check_set import check_set
from data_loading.pretokenizer.blocks import make_blocks
from data_loading.pretokenizer.cleaning import cleaned_source as cleaned_module
from data_loading.pretokenizer.cleaning import cleaner
from data_loading.pretokenizer.cleaning.cleaned_source import Cleaned, is_code
from data_loading.pretokenizer.cleaning.cleaner import Cleaner
from data_loading.pretokenizer.inputs.discover import InputOptions, open_inputs
from data_loading.pretokenizer.job import Options, pretokenize
from data_loading.pretokenizer.sources.stdlib import StdlibSource
from data_loading.text_io import byte_files
from data_loading.text_io.compression import compression_of
from data_loading.text_io.text_file import TextFile
from data_loading.tokenizers.cutting.cuts import CutRule
from data_loading.tokenizers.tokenizer import BytesTokenizer
from tests.data_loading.conftest import hostile_text
from tests.data_loading.text_io.test_text_file import documents
from tests.golden_text import Golden
from tests.searched import examples

AT_SPACES = CutRule(before=(0x20,))


def cleaned(text: str) -> str:
    return cleaned_and_counted(text)[0]


def cleaned_and_counted(text: str) -> tuple[str, int, int]:
    """The oracle, (text, control characters, blanks): all rules, one by one, on the whole document."""
    before = len(text)
    text = "".join("\n" if c in "\v\f\x85" else c for c in text)
    text = "".join(c for c in text if unicodedata.category(c) != "Cc" or c in "\t\n\r")
    text = text.lstrip("\ufeff")
    controls = before - len(text)
    text = unicodedata.normalize("NFC", text)
    runs = re.sub(r"[ \t]+", " ", text)
    lines = re.split(r"(\r\n|\r|\n)", re.sub(r" (?=[\r\n]|\Z)", "", runs))
    found, breaks = "", 0
    for number, part in enumerate(lines):
        breaks = breaks + 1 if number % 2 else breaks if part == "" else 0
        found += part if breaks <= 2 else ""
    return found, controls, len(text) - len(found)


BLANKS = [" ", "  ", "\t", "\n", "\r", "\r\n", "\n\n\n", " \n", "\t\r", "\x00", "\v", "\f", "\x85", "\ufeff"]
PARTS = [
    "a",
    "e",
    "\u0301",
    "\u0323",
    "\u0344",
    "ᄀ",
    "ᅡ",
    "ᆨ",
    "가",
    "\u0b47",
    "\u0b3e",
    "\u1fed",
    "Å",
    "\u0f73",
]
hard_text = st.lists(
    st.one_of(st.sampled_from(BLANKS), st.sampled_from(PARTS), hostile_text), max_size=30
).map("".join)  # fmt: skip


def pieces_of(text: str, sizes: list[int]) -> list[str]:
    found = []
    while text:
        size = sizes[len(found) % len(sizes)]
        found.append(text[:size])
        text = text[size:]
    return found


class TestCleaner:
    @settings(max_examples=examples(150))
    @given(text=hard_text, sizes=st.lists(st.integers(1, 7), min_size=1, max_size=5))
    @example("\u1100\u1161\u11a8", [1])
    @example("\n\r", [1])
    @example("\r \n\n\nx", [1])
    def test_in_pieces_as_a_whole_and_once_is_enough(self, text: str, sizes: list[int]) -> None:
        expected, *counts = cleaned_and_counted(text)
        of_pieces, of_all, again = Cleaner(), Cleaner(), Cleaner()
        assert "".join(map(of_pieces.feed, pieces_of(text, sizes))) + of_pieces.finish() == expected
        assert of_all.feed(text) + of_all.finish() == expected
        assert of_all == of_pieces == Cleaner(control_characters=counts[0], blanks=counts[1])
        assert again.feed(expected) + again.finish() == expected
        assert again == Cleaner(), "nothing left to drop"

    @given(st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
    def test_all_of_unicode(self, text: str) -> None:
        of_pieces = Cleaner()
        assert "".join(map(of_pieces.feed, text)) + of_pieces.finish() == cleaned(text)

    def test_a_boundary_is_one_whatever_stands_before_it(self) -> None:
        """Each character of Unicode, behind those that combine with most."""
        combining = cleaner._combining()
        for code in [*range(0xD800), *range(0xE000, 0x110000)]:
            character = chr(code)
            if character not in combining and unicodedata.normalize("NFD", character) != character:
                for before in ("e", "\u1100", "\uac00", "\u0b47", "o\u0302", "\u0915"):
                    apart = unicodedata.normalize("NFC", before) + unicodedata.normalize("NFC", character)
                    assert unicodedata.normalize("NFC", before + character) == apart

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("a  b\t\tc\td \n e", "a b c d\n e"),
            ("a\n\n\n\nb\r\n\r\n\r\nc\r\r\rd", "a\n\nb\r\n\r\nc\r\rd"),
            ("a\n \n\t\n\nb", "a\n\nb"),
            ("\ufeff\ufeffa\ufeff", "a\ufeff"),
            ("a\x00b\x7fc\x9bd\x1b[0m", "abcd[0m"),
            ("page\fnext\vline\x85end", "page\nnext\nline\nend"),
            ("e\x00\u0301", "é"),
            ("\u00a0\u00a0 \u3000\u3000", "\u00a0\u00a0 \u3000\u3000"),
            (" \t ", ""),
        ],
    )
    def test_what_becomes_of_it(self, text: str, expected: str) -> None:
        cleaner = Cleaner()
        assert cleaner.feed(text) + cleaner.finish() == expected == cleaned(text)

    def test_counts(self) -> None:
        text = Cleaner()
        text.feed("\ufeffa\x00  b \n\n\n\n")
        text.finish()
        assert (text.control_characters, text.blanks) == (2, 4)

    def test_a_run_of_marks_is_held_up_to_a_limit(self) -> None:
        text = Cleaner()
        marks = "\u0301\u0323" * (cleaner.MOST_MARKS // 2)
        assert text.feed("a" + marks) == ""
        assert text.feed("b" + marks) + text.finish() == unicodedata.normalize("NFC", f"a{marks}b{marks}")

    @given(
        before=st.integers(0, 40), marks=st.integers(10, 14), sizes=st.lists(st.integers(1, 60), min_size=1)
    )
    def test_a_longer_run_is_refused_wherever_it_is_cut(
        self, before: int, marks: int, sizes: list[int]
    ) -> None:
        text = "a" * before + "\u0301" * marks + "é" * 20
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cleaner, "MOST_MARKS", 12)
            try:
                list(map(Cleaner().feed, pieces_of(text, sizes)))
                is_refused = False
            except cleaner.RunTooLong:
                is_refused = True
        assert is_refused is (marks > 12)


def opened(path: Path, **options: Any) -> Any:
    return open_inputs([str(path)], InputOptions(clean="normalize", **options))


class TestSource:
    @settings(max_examples=examples(40))
    @given(
        data=st.lists(st.one_of(hard_text.map(str.encode), st.binary(max_size=4)), max_size=8),
        errors=st.sampled_from(["replace", "ignore"]),
        read=st.integers(1, 30),
        part=st.integers(1, 30),
        separated=st.booleans(),
    )
    def test_bytes_in_any_chunks_and_from_any_mark(
        self, data: list[bytes], errors: str, read: int, part: int, separated: bool, tmp_path: Path
    ) -> None:
        path = tmp_path / "a.txt"
        path.write_bytes(b"\nSEP\n".join(data) or b" ")
        assume(compression_of(path.read_bytes()) is None)
        separator = "SEP" if separated else None
        raw = documents(list(TextFile(path, "utf-8", errors, separator).chunks()))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(byte_files, "READ_BYTES", read)
            patch.setattr(cleaned_module, "READ_BYTES", part)
            source = Cleaned(TextFile(path, "utf-8", errors, separator))
            whole = list(source.chunks())
            expected = [cleaned(text.decode("utf-8", errors)).encode() for text in raw]
            assert documents(whole) == [text for text in expected if text]
            counts = source.facts()[0]["cleaned"]
            assert counts["documents"] == expected.count(b"")
            assert counts["bytes"] == sum(map(len, raw)) - sum(map(len, expected))
            for number, chunk in enumerate(whole):
                again = Cleaned(TextFile(path, "utf-8", errors, separator))
                assert list(again.chunks(json.loads(json.dumps(chunk.mark)))) == whole[number:]
                assert again.facts()[0]["cleaned"] == counts

    @pytest.mark.parametrize(
        "data", [b"abc \xff def", b"a  b" * 50 + b"\xc3", b"a\xe2\x82", b"e\xcc\x81\xcc"]
    )
    @pytest.mark.parametrize("read", [1, 3, 1000])
    def test_a_byte_that_is_no_text_is_named_as_without_cleaning(
        self, data: bytes, read: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
    ) -> None:
        monkeypatch.setattr(byte_files, "READ_BYTES", read)
        monkeypatch.setattr(cleaned_module, "READ_BYTES", 2)
        path = tmp_path / "a.txt"
        path.write_bytes(data)
        said = []
        for source in (TextFile(path), opened(path), opened(path, dedup="lines")):
            with golden.refused("undecodable") as caught:
                pretokenize(source, BytesTokenizer(), tmp_path / "a.npy", Options())
            said.append(str(caught.value))
        assert said[0] == said[1] == said[2]
        golden.text(said[0], numbers=False)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt"]

    def test_a_run_without_end_is_named(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
    ) -> None:
        monkeypatch.setattr(byte_files, "READ_BYTES", 1000)
        (tmp_path / "a.txt").write_text("a" * 5000 + "\u0301" * (cleaner.MOST_MARKS + 1))
        with golden.refused("marks-run-too-long"):
            pretokenize(opened(tmp_path / "a.txt"), BytesTokenizer(), tmp_path / "a.npy")

    def test_places_told_of_later_stay_near_the_byte(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(byte_files, "READ_BYTES", 100)
        path = tmp_path / "a.txt"
        path.write_text("ab" + " " * 98 + "".join(f"{number:04d} " + " " * 45 for number in range(200)))
        for block in make_blocks(opened(path).chunks(), AT_SPACES, 50):
            for chunk in block.chunks:
                number = re.search(rb"\d{4}", chunk.data)
                if number:
                    assert abs(path.read_bytes().index(number.group()) - chunk.offset) <= 200


class TestSets:
    def test_the_manifest_says_what_was_dropped(self, tmp_path: Path, golden: Golden) -> None:
        path = tmp_path / "a.txt"
        path.write_text("a  b\x00\n<end>\n \n<end>\nc\n\n\n\n")
        said: list[str] = []
        source = opened(path, document_separator="<end>")
        result = pretokenize(source, BytesTokenizer(), tmp_path / "a.npy", Options(), said.append)
        assert result.manifest["options"]["clean"] == "normalize"
        fact = result.manifest["sources"][0]
        assert fact["documents"] == 3
        assert fact["cleaned"] == {
            "control_characters": 1, "blanks": 4, "documents": 0, "bytes": 5,
            "unicode": unicodedata.unidata_version,
        }  # fmt: skip
        golden.text("\n".join(said), numbers=False)
        assert not pretokenize(source, BytesTokenizer(), tmp_path / "a.npy").made
        findings = check_set(tmp_path / "a.npy", deep=True)
        assert all(found.ok is not False for found in findings)
        assert [found.ok for found in findings if found.what == "whole documents"] == [True]
        for other in (TextFile(path, document_separator="<end>"), opened(path)):
            with golden.refused("output-differs"):
                pretokenize(other, BytesTokenizer(), tmp_path / "a.npy")

    def test_without_the_flag_nothing_new_is_in_a_manifest(self, tmp_path: Path) -> None:
        (tmp_path / "a.txt").write_text("a  b")
        source = open_inputs([str(tmp_path / "a.txt")], InputOptions())
        manifest = pretokenize(source, BytesTokenizer(), tmp_path / "a.npy").manifest
        assert set(manifest["options"]) == {"encoding", "errors", "document_separator", "special_tokens"}
        assert "cleaned" not in manifest["sources"][0]


class TestCode:
    @pytest.mark.parametrize(
        ("name", "expected"),
        [
            ("a.py", True),
            ("A.CPP.gz", True),
            ("Makefile", True),
            ("a.txt", False),
            ("py", False),
            ("a.md", False),
        ],
    )
    def test_is_known_by_its_name(self, name: str, expected: bool, tmp_path: Path) -> None:
        (tmp_path / name).write_text("x")
        assert is_code(TextFile(tmp_path / name)) is expected

    def test_is_left_alone_unless_asked_for(self, tmp_path: Path, golden: Golden) -> None:
        (tmp_path / "a.py").write_text("if x:\n    y\n\n\n\n")
        (tmp_path / "b.txt").write_text("a  b")
        found, notes = {}, []
        for how in ("normalize", "normalize-code"):
            paths = [str(tmp_path / name) for name in ("a.py", "b.txt")]
            source = open_inputs(paths, InputOptions(clean=how))
            source.prepare(tmp_path / "hidden", notes.append)
            found[how] = documents(list(source.chunks()))
        assert found["normalize"] == [b"if x:\n    y\n\n\n\n", b"a b"]
        assert found["normalize-code"] == [b"if x:\n y\n\n", b"a b"]
        assert len(notes) == 1
        golden.text(notes[0])

    def test_so_is_the_standard_library(self) -> None:
        assert is_code(StdlibSource())

    def test_another_choice_is_refused(self, tmp_path: Path, golden: Golden) -> None:
        (tmp_path / "b.txt").write_text("a  b")
        with golden.refused("clean-unknown"):
            open_inputs([str(tmp_path / "b.txt")], InputOptions(clean="all"))
