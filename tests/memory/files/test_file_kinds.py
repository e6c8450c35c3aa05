"""Kinds of files by their first bytes: files that other programs wrote, and none for text or ids."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import pickle
import shutil
import sqlite3
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from memory.files.file_kinds import KINDS_LIKE_IDS, head_of, kind_of, not_expected
from tests.data_loading.conftest import hostile_text, zstd_bytes

TEXT = b"The water rose, and the mark stayed high.\n" * 50


def write(path: Path, kind: str) -> Path:
    """A file of this kind, as its own program writes it where that is here."""
    if kind == "sqlite":
        with sqlite3.connect(path) as database:
            database.execute("create table documents(text)")
        database.close()
    elif kind == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("text.txt", TEXT)
    elif kind == "tar":
        with tarfile.open(path, "w") as archive:
            member = tarfile.TarInfo("text.txt")
            member.size = len(TEXT)
            archive.addfile(member, io.BytesIO(TEXT))
    elif kind == "npz":
        with open(path, "wb") as file:
            np.savez(file, ids=np.arange(100))
    elif kind == "torch":
        torch.save({"weight": torch.zeros(3)}, path)
    elif kind == "program":
        shutil.copy(sys.executable, path)
    elif kind == "safetensors":
        from safetensors.torch import save_file

        save_file({"weight": torch.zeros(3)}, path)
    elif kind == "parquet":
        tables = pytest.importorskip("pyarrow.parquet")
        tables.write_table(pytest.importorskip("pyarrow").table({"text": ["a"]}), path)
    elif kind in ("arrow", "arrow-stream"):
        arrow = pytest.importorskip("pyarrow")
        table = arrow.table({"text": ["a"]})
        new = arrow.ipc.new_file if kind == "arrow" else arrow.ipc.new_stream
        with new(str(path), table.schema) as file:
            file.write_table(table)
    else:
        path.write_bytes(BYTES[kind])
    return path


def saved(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


BYTES = {
    "gzip": gzip.compress(TEXT),
    "zstd": zstd_bytes(TEXT),
    "bzip2": bz2.compress(TEXT),
    "xz": lzma.compress(TEXT),
    "lzma": lzma.compress(TEXT, lzma.FORMAT_ALONE),
    "lz4": b"\x04\x22\x4d\x18\x64\x40\xa7" + TEXT,
    "7z": b"7z\xbc\xaf\x27\x1c\x00\x04" + TEXT,
    "pdf": b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n" + TEXT,
    "npy": saved(np.arange(10)),
    "pickle": pickle.dumps({"ids": list(range(100))}),
    "html": b"\n<!DOCTYPE html>\n<html><body>404 Not Found</body></html>",
    "xml-error": b'<?xml version="1.0"?>\n<Error><Code>AccessDenied</Code></Error>',
    "git-lfs": b"version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 12345\n",
    "git-annex": b"/annex/objects/SHA256E-s12--0123.txt\n",
    "utf-16": TEXT.decode().encode("utf-16"),
    "utf-32": TEXT.decode().encode("utf-32"),
    "utf-16-le": TEXT.decode().encode("utf-16-le"),
    "utf-16-be": TEXT.decode().encode("utf-16-be"),
}
KINDS = [
    *BYTES, "sqlite", "zip", "tar", "npz", "torch", "program", "safetensors", "parquet", "arrow",
    "arrow-stream",
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_kind_is_known_by_first_bytes(kind: str, tmp_path: Path) -> None:
    path = write(tmp_path / "x.txt", kind)
    found = kind_of(head_of(path))
    assert found is not None
    assert found.id == kind
    told = not_expected(path, "a text")
    assert told is not None
    assert str(path) in told
    assert not_expected(path, "a text", {kind}) is None


@given(hostile_text)
def test_text_has_no_kind(text: str) -> None:
    assert kind_of(text.encode()[:512]) is None


@given(st.lists(st.integers(0, 60_000), max_size=300), st.sampled_from(["<u2", "<u4", "<i8"]))
def test_ids_have_no_kind_but_by_chance(ids: list[int], dtype: str) -> None:
    """Two bytes decide for gzip and compress: no id begins so here."""
    head = np.array([7, *ids], dtype).tobytes()[:512]
    kind = kind_of(head)
    assert kind is None or kind.id in KINDS_LIKE_IDS


def test_unreadable_file_has_no_kind(tmp_path: Path) -> None:
    assert not_expected(tmp_path / "gone", "a text") is None
    assert not_expected(tmp_path, "a text") is None


@pytest.mark.parametrize(
    "first", [b"PAR1 is a parquet file's magic.", b"RIFF raff", b"%PDF stands for", b"MZ\n"]
)
def test_text_that_begins_with_letters_of_a_signature_has_no_kind(first: bytes) -> None:
    assert kind_of(first + b"\n" + TEXT) is None
