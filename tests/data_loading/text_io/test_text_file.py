"""Reading text: byte for byte, in any encoding, by_hand into documents, in pieces of any size."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_loading.pretokenizer.inputs import decode_errors as undecodable
from data_loading.pretokenizer.inputs.discover import InputOptions, open_inputs
from data_loading.pretokenizer.job import pretokenize
from data_loading.pretokenizer.options import Options
from data_loading.text_io import byte_files
from data_loading.text_io.byte_files import SAMPLE_BYTES
from data_loading.text_io.chunks import Chunk
from data_loading.text_io.text_file import TextFile, divided
from data_loading.tokenizers.tokenizer import BytesTokenizer
from experiment_utils.errors import UserError
from tests.data_loading.conftest import hostile_text
from tests.golden_text import Golden
from tests.searched import examples

many = settings(max_examples=examples(60))


def documents(chunks: list[Chunk]) -> list[bytes]:
    """The documents that the chunks spell, without the empty ones."""
    found, text = [], b""
    for chunk in chunks:
        text += chunk.data
        if chunk.ends_document:
            found.append(text)
            text = b""
    assert text == b"", "the last chunk ends a document"
    return [document for document in found if document]


def by_hand(text: bytes, separator: bytes) -> list[bytes]:
    """The oracle: lines one by one."""
    found, document = [], b""
    for line in _lines(text):
        if line.rstrip(b"\n").removesuffix(b"\r") == separator:
            found.append(document)
            document = b""
        else:
            document += line
    return [part for part in [*found, document] if part]


def _lines(text: bytes) -> list[bytes]:
    return [line + b"\n" for line in text.split(b"\n")[:-1]] + [text.split(b"\n")[-1]] if text else []


lines_with_separators = st.lists(
    st.sampled_from([b"S", b"S\r", b"SS", b" S", b"S ", b"", b"\r", b"a", b"a S", b"xxxxxxxxxxxxxxxxxxxx"]),
    max_size=12,
).map(b"\n".join)


@many
@given(text=lines_with_separators, separator=st.sampled_from([b"S", b"", b"a S"]), read=st.integers(1, 9))
def test_a_document_ends_at_a_separator_line_however_the_file_is_read(
    text: bytes, separator: bytes, read: int
) -> None:
    pieces = [(text[i : i + read], i) for i in range(0, len(text), read)]
    chunks = list(divided(iter(pieces), separator, "t", at_line_start=True))
    assert documents(chunks) == by_hand(text, separator)
    for chunk in chunks:
        assert text[chunk.offset : chunk.offset + len(chunk.data)] == chunk.data, (
            "offsets are those of the file"
        )


def test_the_separator_belongs_to_no_document_and_all_else_stays(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"one\r\n\r\n<|end|>\r\n<|end|>\ntwo <|end|>\nthree\n<|end|>")
    found = documents(list(TextFile(path, document_separator="<|end|>").chunks()))
    assert found == [b"one\r\n\r\n", b"two <|end|>\nthree\n"]


@many
@given(data=hostile_text.map(str.encode))
def test_without_separator_the_file_is_one_document_byte_for_byte(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(data or b"x")
    assert documents(list(TextFile(path).chunks())) == [data or b"x"]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32", "utf-8-sig", "gb18030", "utf-7"])
@many
@given(text=hostile_text)
def test_other_encodings_are_read_in_pieces_as_a_whole(encoding: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    data = text.encode(encoding)
    path.write_bytes(data or b" ")
    expected = (data or b" ").decode(encoding, "replace").encode()
    source = TextFile(path, encoding=encoding, errors="replace")
    whole = documents(list(source.chunks()))
    original, byte_files.READ_BYTES = byte_files.READ_BYTES, 3
    try:
        assert documents(list(source.chunks())) == whole == ([expected] if expected else [])
    finally:
        byte_files.READ_BYTES = original


@pytest.mark.parametrize(
    ("encoding", "data"),
    [
        ("ascii", b"ab\r\n" * 10 + b"\xe9x"),
        ("utf-16-le", "abc".encode("utf-16-le") + b"\x00\xd8" + "x".encode("utf-16-le")),
        ("shift_jis", b"ab\xff"),
        ("utf-8-sig", b"\xef\xbb\xbfab\xff"),
    ],
)
@pytest.mark.parametrize("read", [1, 2, 7, 1000])
def test_the_byte_that_is_no_text_is_named_in_the_file(
    encoding: str,
    data: bytes,
    read: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    golden: Golden,
) -> None:
    monkeypatch.setattr(byte_files, "READ_BYTES", read)
    path = tmp_path / "a.txt"
    path.write_bytes(data)
    with golden.refused("undecodable"):
        list(TextFile(path, encoding=encoding).chunks())


def test_a_stream_that_cannot_begin_so_is_refused(tmp_path: Path, golden: Golden) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"a\x00b\x00")
    with golden.refused("undecodable"):
        list(TextFile(path, encoding="utf-16").chunks())


@pytest.mark.parametrize("errors", ["strict", "replace"])
@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "idna", "undefined"])
def test_no_set_is_made_of_a_stream_that_cannot_begin_so(encoding: str, errors: str, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"The water rose.\n" * 100)
    source = TextFile(path, encoding=encoding, errors=errors)
    with pytest.raises(UserError):
        source.samples()
    with pytest.raises(UserError):
        pretokenize(source, BytesTokenizer(), tmp_path / "a.npy")


class TestSamples:
    def test_a_small_text_is_sampled_whole(self, tmp_path: Path) -> None:
        path = tmp_path / "a.txt"
        path.write_bytes("é文".encode() * 1000)
        assert TextFile(path).samples() == ["é文".encode() * 1000]

    def test_a_large_one_at_start_middle_and_end_in_whole_characters(self, tmp_path: Path) -> None:
        path = tmp_path / "a.txt"
        path.write_bytes("文".encode() * 2_000_000)
        samples = TextFile(path).samples()
        assert len(samples) == 3
        for sample in samples:
            assert set(sample.decode()) == {"文"}
            assert SAMPLE_BYTES - 6 < len(sample) <= SAMPLE_BYTES

    def test_in_another_encoding_it_is_utf8(self, tmp_path: Path) -> None:
        path = tmp_path / "a.txt"
        path.write_text("é文" * 10, encoding="utf-16")
        assert TextFile(path, encoding="utf-16").samples() == ["é文".encode() * 10]


class TestRefused:
    def test_missing(self, tmp_path: Path, golden: Golden) -> None:
        with golden.refused("input-missing"):
            TextFile(tmp_path / "no.txt")

    def test_a_folder(self, tmp_path: Path, golden: Golden) -> None:
        with golden.refused("input-is-folder"):
            TextFile(tmp_path)

    def test_a_pipe(self, tmp_path: Path, golden: Golden) -> None:
        os.mkfifo(tmp_path / "a.txt")
        with golden.refused("input-is-pipe"):
            TextFile(tmp_path / "a.txt")

    def test_empty(self, tmp_path: Path, golden: Golden) -> None:
        (tmp_path / "a.txt").touch()
        with golden.refused("input-empty"):
            TextFile(tmp_path / "a.txt")

    @pytest.mark.parametrize(
        ("options", "code"),
        [
            ({"encoding": "utf-9"}, "encoding-unknown"),
            ({"encoding": "hex"}, "encoding-not-of-text"),
            ({"errors": "surrogateescape"}, "errors-unknown"),
            ({"document_separator": "a\nb"}, "separator-not-one-line"),
        ],
    )
    def test_wrong_options(self, options: dict[str, str], code: str, tmp_path: Path, golden: Golden) -> None:
        (tmp_path / "a.txt").write_text("a")
        with golden.refused(code):
            TextFile(tmp_path / "a.txt", **options)

    def test_changed_while_it_is_read(self, tmp_path: Path, golden: Golden) -> None:
        path = tmp_path / "a.txt"
        path.write_text("a" * 100)
        chunks = TextFile(path).chunks()
        next(chunks)
        with open(path, "a") as file:
            file.write("more")
        with golden.refused("changed-while-read"):
            list(chunks)

    @pytest.mark.skipif(os.getuid() == 0, reason="root reads every file")
    def test_unreadable(self, tmp_path: Path, golden: Golden) -> None:
        (tmp_path / "a.txt").write_text("a")
        (tmp_path / "a.txt").chmod(0)
        with golden.refused("file-unreadable"):
            TextFile(tmp_path / "a.txt")


class TestHowManyBytesAreNoText:
    GOOD = b"the water rose " * 50

    def refuse(self, golden: Golden, tmp_path: Path, *texts: bytes, workers: int = 0, **options: str) -> None:
        for number, text in enumerate(texts):
            (tmp_path / f"{number}.txt").write_bytes(text)
        names = [str(tmp_path / f"{number}.txt") for number in range(len(texts))]
        source = open_inputs(names, InputOptions(**options))  # type: ignore[arg-type]
        with golden.refused("undecodable"):
            pretokenize(
                source, BytesTokenizer(), tmp_path / "x.npy", Options(block_bytes=100, workers=workers)
            )

    @pytest.mark.parametrize("workers", [0, 1])
    def test_in_the_whole_text(self, workers: int, tmp_path: Path, golden: Golden) -> None:
        text = self.GOOD + b"\xff" + self.GOOD + b"caf\xe9 \xe4\xb8"
        self.refuse(golden, tmp_path, text, workers=workers)

    def test_in_the_file_at_fault(self, tmp_path: Path, golden: Golden) -> None:
        self.refuse(golden, tmp_path, self.GOOD, self.GOOD + b"\xff", b"\xff\xff")

    def test_in_another_encoding_and_compressed(self, tmp_path: Path, golden: Golden) -> None:
        self.refuse(golden, tmp_path, gzip.compress(b"a\xe9b\xe9"), encoding="ascii")

    def test_of_a_huge_text_only_the_start(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
    ) -> None:
        monkeypatch.setattr(byte_files, "READ_BYTES", 10)
        monkeypatch.setattr(undecodable, "MOST_BYTES", 20)
        self.refuse(golden, tmp_path, b"\xff" * 50)
