"""Byte order marks and separators that divide nothing are mentioned, once a command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data_loading.pretokenizer.inputs.discover import InputOptions, open_inputs
from data_loading.pretokenizer.job import pretokenize
from data_loading.pretokenizer.options import Options
from data_loading.tokenizers.tokenizer import BytesTokenizer
from tests.golden_text import Golden

MARK = b"\xef\xbb\xbf"


def notes(folder: Path, files: dict[str, bytes], **asked: Any) -> list[str]:
    for name, data in files.items():
        (folder / name).write_bytes(data)
    said: list[str] = []
    source = open_inputs([str(folder / name) for name in files], InputOptions(**asked))
    pretokenize(source, BytesTokenizer(), folder / "a.npy", Options(workers=0, overwrite=True), said.append)
    return [line for line in said[2:] if not line.startswith("--clean ")]


@pytest.mark.parametrize("separator", [None, "--"])
def test_byte_order_mark_is_kept_and_noted(separator: str | None, tmp_path: Path, golden: Golden) -> None:
    files = {"a.txt": MARK + b"one\n--\ntwo", "b.txt": b"three\n--\nfour", "c.txt": MARK + b"five"}
    (note,) = notes(tmp_path, files, document_separator=separator)
    golden.text(note)
    assert np.load(tmp_path / "a.npy")[:3].tolist() == [*MARK]
    assert notes(tmp_path, files, document_separator=separator, encoding="utf-8-sig") == []
    assert np.load(tmp_path / "a.npy")[:3].tolist() == [*b"one"]


def test_byte_order_mark_of_utf_16(tmp_path: Path, golden: Golden) -> None:
    (note,) = notes(tmp_path, {"a.txt": "\ufeffab".encode("utf-16-le")}, encoding="utf-16-le")
    golden.text(note)
    assert notes(tmp_path, {"a.txt": "ab".encode("utf-16")}, encoding="utf-16") == []


@pytest.mark.parametrize("skip_bad", [0, 5])
def test_byte_order_mark_before_json_names_the_encoding(
    skip_bad: int, tmp_path: Path, golden: Golden
) -> None:
    lines = MARK + b"".join(json.dumps({"text": text}).encode() + b"\n" for text in ("one", "two"))
    with golden.refused("byte-order-mark"):
        notes(tmp_path, {"a.jsonl": lines}, skip_bad=skip_bad)
    assert notes(tmp_path, {"a.jsonl": lines}, encoding="utf-8-sig") == []
    assert np.load(tmp_path / "a.docs.npy").tolist() == [0, 4]


@pytest.mark.parametrize(
    ("text", "is_noted"),
    [
        (b"Doc one.<|end|>Doc two.", True),
        (b"Doc one.\n\nDoc two.", True),
        (b"Doc one.\n<|end|>\nDoc two.", False),
        (b"Doc one.\r\n<|end|>\r\nDoc two.", False),
    ],
)
@pytest.mark.parametrize("clean", [None, "normalize"])
def test_separator_that_divides_nothing_is_noted(
    text: bytes, is_noted: bool, clean: str | None, tmp_path: Path, golden: Golden
) -> None:
    found = notes(tmp_path, {"a.txt": text}, document_separator="<|end|>", clean=clean)
    assert len(found) == is_noted
    golden.text("\n".join(found))
    lines = b'{"text": "a"}\n{"text": "b"}\n'
    assert len(notes(tmp_path, {"a.txt": text, "b.jsonl": lines}, document_separator="<|end|>")) == is_noted
    whole = {"a.txt": text, "c.txt": b"one\n<|end|>\ntwo"}
    assert notes(tmp_path, whole, document_separator="<|end|>") == []


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_lines_of_end_of_text_without_a_separator_are_noted(
    end: bytes, tmp_path: Path, golden: Golden
) -> None:
    text = end.join([b"one", b"<|endoftext|>", b"two", b""])
    (note,) = notes(tmp_path, {"a.txt": text})
    golden.text(note)
    assert notes(tmp_path, {"a.txt": text}, document_separator="<|endoftext|>") == []
    assert notes(tmp_path, {"a.txt": b"the token <|endoftext|> ends one" + end}) == []
