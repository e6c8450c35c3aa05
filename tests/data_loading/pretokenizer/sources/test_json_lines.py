"""Lines of JSON: one document a line, and each way in which a line is none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_loading.pretokenizer.inputs.discover import InputOptions, open_inputs
from data_loading.pretokenizer.job import pretokenize
from data_loading.pretokenizer.sources.json_lines import JsonLines, Tolerance, lines
from data_loading.text_io import byte_files
from data_loading.tokenizers.tokenizer import BytesTokenizer
from tests.data_loading.conftest import hostile_text
from tests.golden_text import Golden


def documents(source: JsonLines) -> list[bytes]:
    found = list(source.chunks())
    assert all(chunk.ends_document for chunk in found)
    return [chunk.data for chunk in found]


def write(path: Path, *written: bytes) -> Path:
    path.write_bytes(b"\n".join(written))
    return path


@given(
    texts=st.lists(hostile_text, max_size=6),
    ascii_only=st.booleans(),
    end=st.sampled_from([b"\n", b"\r\n", b"\n\n \n", b""]),
    read=st.integers(1, 60),
)
def test_each_line_is_a_document(
    texts: list[str], ascii_only: bool, end: bytes, read: int, tmp_path: Path
) -> None:
    written = [json.dumps({"id": 1, "text": text}, ensure_ascii=ascii_only).encode() for text in texts]
    path = tmp_path / "a.jsonl"
    path.write_bytes((end or b"\n").join(written) + end + b" ")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(byte_files, "READ_BYTES", read)
        assert documents(JsonLines(path)) == [text.encode() for text in texts if text]


def test_field_inside_of_an_object(tmp_path: Path) -> None:
    lines_ = (b'{"meta": {"text": "in"}, "meta.n": "dotted"}', b'{"meta": "a string", "meta.n": "x"}')
    path = write(tmp_path / "a.jsonl", *lines_)
    assert documents(JsonLines(path, "meta.n")) == [b"dotted", b"x"]
    assert documents(JsonLines(path, "meta.text", tolerance=Tolerance(1))) == [b"in"]


def test_names_of_fields_can_hold_dots(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", b'{"x": 1, "x.y": {"z": "outer"}, "a": {"b.c": "inner"}}')
    assert documents(JsonLines(path, "x.y.z")) == [b"outer"]
    assert documents(JsonLines(path, "a.b.c")) == [b"inner"]


@given(text=st.text("a\n", max_size=30).map(str.encode), read=st.integers(1, 9))
def test_lines_and_where_they_begin(text: bytes, read: int) -> None:
    found = list(lines((text[i : i + read], i) for i in range(0, len(text), read)))
    assert b"\n".join(line for line, _ in found) == text
    assert all(text[offset : offset + len(line)] == line for line, offset in found)
    assert len(found) == (text.count(b"\n") + 1 if text else 0)


@pytest.mark.parametrize(
    "line",
    [
        b'{"text": "a"',
        b'{"text": "a"} x',
        b"not JSON",
        b"[" * 100_000,
        b'["a"]',
        b'"a"',
        b"3",
        b'{"text": 3}',
        b'{"text": true}',
        b'{"text": null}',
        b'{"text": {"a": 1}}',
        b'{"id": 1, "content": "a"}',
        b"{}",
        b'{"text": "a\\ud800b"}',
        b'{"text": "a\\udc00"}',
        b'{"text": "a\xff"}',
    ],
)
def test_a_line_that_is_no_document(line: bytes, tmp_path: Path, golden: Golden) -> None:
    path = write(tmp_path / "a.jsonl", b'{"text": "good"}', b"", line, b'{"text": "more"}')
    with golden.refused("undecodable" if b"\xff" in line else "bad-line"):
        documents(JsonLines(path))
    source = JsonLines(path, tolerance=Tolerance(1))
    assert documents(source) == [b"good", b"more"]
    assert source.facts()[0]["skipped"] == 1


@pytest.mark.parametrize(
    "content",
    [
        b'[{"text": "a"}, {"text": "b"}]',
        b'[\n{"text": "a"}\n]\n',
        b'[{"text": "a"},\n{"text": "b"}]\n',
        b'{\n  "text": "a"\n}\n',
    ],
)
def test_json_that_is_not_one_object_a_line(content: bytes, tmp_path: Path, golden: Golden) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(content)
    with golden.refused("not-json-lines"):
        documents(JsonLines(path))


def test_more_bad_lines_than_are_tolerated(tmp_path: Path, golden: Golden) -> None:
    path = write(tmp_path / "a.jsonl", *([b'{"text": "good"}', b"bad"] * 4))
    assert documents(JsonLines(path, tolerance=Tolerance(4))) == [b"good"] * 4
    with golden.refused("bad-line"):
        documents(JsonLines(path, tolerance=Tolerance(3)))


def test_what_json_does_not_know_but_programs_write(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", b'{"text": "a", "score": NaN, "id": 123456789012345678901234567890}')
    assert documents(JsonLines(path)) == [b"a"]


def test_another_field(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", b'{"text": 1, "content": "a"}')
    source = JsonLines(path, text_field="content")
    assert documents(source) == [b"a"]
    assert source.options["text_field"] == "content"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig", "gb18030"])
def test_other_encodings(encoding: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes('{"text": "é"}\n{"text": "文"}\n'.encode(encoding))
    assert documents(JsonLines(path, encoding=encoding)) == ["é".encode(), "文".encode()]


def test_replaced_bytes(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", b'{"text": "a\xff"}')
    assert documents(JsonLines(path, errors="replace")) == ["a\ufffd".encode()]


@given(
    values=st.lists(st.sampled_from(["a", "", "é x", None, "long " * 8]), min_size=1, max_size=12),
    read=st.integers(1, 40),
    encoding=st.sampled_from(["utf-8", "utf-16"]),
)
def test_any_document_is_a_place_to_go_on(
    values: list[Any], read: int, encoding: str, tmp_path: Path
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes("\n".join(json.dumps({"text": value}) for value in values).encode(encoding))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(byte_files, "READ_BYTES", read)

        def source() -> JsonLines:
            return JsonLines(path, encoding=encoding, tolerance=Tolerance(100))

        first = source()
        whole = list(first.chunks())
        for number, chunk in enumerate(whole):
            again = source()
            assert list(again.chunks(json.loads(json.dumps(chunk.mark)))) == whole[number:]
            assert again.facts() == first.facts()
            assert again.tolerance == first.tolerance


def test_samples_are_texts_of_start_middle_and_end(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with open(path, "w") as file:
        for number in range(40_000):
            file.write(json.dumps({"id": number, "text": f"document {number} of many, "}) + "\n")
    samples = JsonLines(path).samples()
    assert len(samples) == 3
    assert samples[0].startswith(b"document 0 of")
    assert samples[2].endswith(b"document 39999 of many, ")
    assert all(b'"id"' not in sample and len(sample) > 50_000 for sample in samples)
    write(path, b"bad", b'{"text": "good"}')
    assert JsonLines(path).samples() == [b"good"]


def test_bytes_that_are_no_text_are_counted(tmp_path: Path, golden: Golden) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "a"}\n{"text": "\xff\xfe"}\n{"text": "\xff"}\n')
    source = open_inputs([str(tmp_path / "a.jsonl")], InputOptions())
    with golden.refused("undecodable"):
        pretokenize(source, BytesTokenizer(), tmp_path / "a.npy")
