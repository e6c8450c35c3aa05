"""Compressed texts: known by content, read to the last member, in pieces, damage told with the byte."""

from __future__ import annotations

import bz2
import gzip
import lzma
import struct
import tracemalloc
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_loading.text_io import byte_files, compression
from data_loading.text_io.byte_files import SAMPLE_BYTES, ByteFile, content_hash_of
from data_loading.text_io.content_hash import ContentHash, file_content_hash
from data_loading.text_io.text_file import TextFile
from experiment_utils.errors import UserError
from tests.data_loading.conftest import zstd_bytes
from tests.golden_text import Golden, refused

COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "zstd": zstd_bytes,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
}
kinds = pytest.mark.parametrize("kind", COMPRESS)


def read(path: Path, first: int = 0) -> bytes:
    return b"".join(data for data, _ in ByteFile(path).read(first))


@kinds
@given(
    members=st.lists(st.binary(max_size=60), min_size=1, max_size=4),
    taken=st.integers(1, 30),
    piece=st.integers(1, 40),
    first=st.integers(0, 100),
)
def test_all_members_are_read_however_the_file_is_read(
    kind: str, members: list[bytes], taken: int, piece: int, first: int, tmp_path: Path
) -> None:
    path, whole = tmp_path / "a.txt", b"".join(members)
    path.write_bytes(b"".join(map(COMPRESS[kind], members)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compression, "_READ_BYTES", taken)
        patch.setattr(byte_files, "READ_BYTES", piece)
        found = list(ByteFile(path).read())
        assert b"".join(data for data, _ in found) == whole
        assert all(len(data) == piece for data, _ in found[:-1])
        assert [offset for _, offset in found] == list(range(0, len(whole), piece))
        assert read(path, first) == whole[first:]


@kinds
def test_the_content_decides_not_the_name(kind: str, tmp_path: Path) -> None:
    for name in ("a.txt", "a.gz", "a"):
        (tmp_path / name).write_bytes(COMPRESS[kind](b"the water"))
        assert read(tmp_path / name) == b"the water"
    (tmp_path / "plain.gz").write_bytes(b"not compressed")
    assert read(tmp_path / "plain.gz") == b"not compressed"


@kinds
def test_a_damaged_beginning_is_not_taken_for_a_text(kind: str, tmp_path: Path) -> None:
    path, whole = tmp_path / "a.gz", COMPRESS[kind](bytes(range(256)))
    for bit in range(8 * 3):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        with pytest.raises(UserError) as error:
            read(path)
        assert error.value.code in ("compressed-damaged", "input-not-compressed")


@pytest.mark.parametrize("name", ["a.gz", "a.txt"])
def test_control_characters_are_no_text_under_the_name_of_what_is_compressed(
    name: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_bytes(b"\x1f\x0b" + b"words" * 40)
    with refused("input-not-compressed") if name == "a.gz" else nullcontext():
        read(path)


@kinds
def test_cut_short_anywhere_it_is_told_with_the_byte(kind: str, tmp_path: Path, golden: Golden) -> None:
    path, whole = tmp_path / "a.txt.x", COMPRESS[kind](b"the water rose " * 20)
    for length in range(compression.HEAD_BYTES, len(whole)):
        path.write_bytes(whole[:length])
        with golden.refused("compressed-cut-short", numbers=False) as error:
            read(path)
        assert f"{length:,}" in str(error.value)


@kinds
def test_a_second_member_cut_short_is_told(kind: str, tmp_path: Path, golden: Golden) -> None:
    path, whole = tmp_path / "a", COMPRESS[kind](b"the water")
    path.write_bytes(whole + whole[:-3])
    with golden.refused("compressed-cut-short"):
        read(path)


@kinds
def test_damage_never_gives_another_text(kind: str, tmp_path: Path) -> None:
    path, text = tmp_path / "a", b"the water rose and the mark stayed high " * 3
    whole = COMPRESS[kind](text)
    told = []
    for place in range(compression.HEAD_BYTES, len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x10]) + whole[place + 1 :])
        try:
            assert read(path) == text, "only what says nothing of the text may differ"
        except UserError as error:
            told.append(error.code)
    assert {*told} <= {"compressed-damaged", "compressed-cut-short", "compressed-trailing-data"}
    assert len(told) > len(whole) - 30


@kinds
def test_what_follows_the_data_is_told(kind: str, tmp_path: Path, golden: Golden) -> None:
    whole = COMPRESS[kind](b"the water")
    (tmp_path / "a").write_bytes(whole + b"something else")
    with golden.refused("compressed-trailing-data"):
        read(tmp_path / "a")


@pytest.mark.parametrize(("kind", "padding"), [("gzip", 1000), ("gzip", 3), ("xz", 512)])
def test_zeros_may_follow_a_member(kind: str, padding: int, tmp_path: Path) -> None:
    whole = COMPRESS[kind](b"the water")
    (tmp_path / "a").write_bytes(whole + bytes(padding) + whole + bytes(padding))
    assert read(tmp_path / "a") == b"the water" * 2


def test_skippable_frames_hold_no_text(tmp_path: Path) -> None:
    skipped = b"\x50\x2a\x4d\x18" + struct.pack("<I", 5) + b"12345"
    (tmp_path / "a").write_bytes(skipped + zstd_bytes(b"the ") + skipped + zstd_bytes(b"water") + skipped)
    assert read(tmp_path / "a") == b"the water"


@kinds
def test_memory_does_not_grow_with_what_it_holds(kind: str, tmp_path: Path) -> None:
    """30 MB of one letter: a few KB of file."""
    (tmp_path / "a").write_bytes(COMPRESS[kind](b"x" * 30_000_000))
    tracemalloc.start()
    assert sum(len(data) for data, _ in ByteFile(tmp_path / "a").read()) == 30_000_000
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20_000_000, "of which 8 MB are the dictionary of xz"


@kinds
def test_done_bytes_are_those_of_the_file(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compression, "_READ_BYTES", 64)
    monkeypatch.setattr(byte_files, "READ_BYTES", 1000)
    (tmp_path / "a").write_bytes(COMPRESS[kind](b"".join(b"%d " % (i * i) for i in range(20_000))))
    file = ByteFile(tmp_path / "a")
    seen = [file.done_bytes for _ in file.read()]
    assert seen == sorted(seen)
    assert 0 < seen[0] <= file.total_bytes == seen[-1] == (tmp_path / "a").stat().st_size


@kinds
def test_the_content_hash_is_that_of_the_text(kind: str, tmp_path: Path) -> None:
    plain, packed = tmp_path / "a.txt", tmp_path / "b.txt"
    plain.write_bytes(b"the water")
    packed.write_bytes(COMPRESS[kind](b"the water"))
    source = TextFile(packed)
    list(source.chunks())
    facts = source.facts()[0]
    assert facts["content_hash"] == file_content_hash(plain) == content_hash_of(packed)
    assert (facts["compression"], facts["text_bytes"]) == (kind, 9)
    assert facts["bytes"] == packed.stat().st_size


@pytest.mark.parametrize("packed", [False, True])
def test_left_early_the_facts_are_of_what_was_read(
    packed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(byte_files, "READ_BYTES", 10)
    path = tmp_path / "a"
    path.write_bytes(gzip.compress(bytes(range(95))) if packed else bytes(range(95)))
    file = ByteFile(path)
    chunks = file.read(0, ContentHash())
    for _ in range(3):
        next(chunks)
    chunks.close()  # type: ignore[attr-defined]
    expected = ContentHash()
    expected.update(bytes(range(30)))
    assert file.facts()["read_bytes"] == 30
    assert file.facts()["content_hash"] == expected.hexdigest() == content_hash_of(path, 30)


def test_a_sample_is_of_its_start(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(gzip.compress("é文".encode() * 400_000))
    (sample,) = TextFile(tmp_path / "a").samples()
    assert 3 * SAMPLE_BYTES - 3 < len(sample) <= 3 * SAMPLE_BYTES
    assert sample.decode().startswith("é文é")


def test_the_byte_that_is_no_text_is_one_of_the_text(tmp_path: Path, golden: Golden) -> None:
    (tmp_path / "a").write_bytes(gzip.compress(b"caf\xe9"))
    with golden.refused("undecodable"):
        list(TextFile(tmp_path / "a", encoding="ascii").chunks())


def test_a_file_still_being_written_is_told_as_such(tmp_path: Path, golden: Golden) -> None:
    path, whole = tmp_path / "a", gzip.compress(b"the water")
    path.write_bytes(whole[:15])
    file = ByteFile(path)
    path.write_bytes(whole[:18])
    with golden.refused("changed-while-read"):
        list(file.read())


def test_without_the_package_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    import sys

    if sys.version_info >= (3, 14):
        pytest.skip("part of this Python")
    (tmp_path / "a").write_bytes(zstd_bytes(b"the water"))
    monkeypatch.setitem(sys.modules, "backports", None)
    with golden.refused("package-missing"):
        read(tmp_path / "a")
