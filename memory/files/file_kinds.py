"""Kinds of files known by their first bytes, so that one of another kind than expected is named.

Sources: file(1)'s magic database; the format specifications of gzip (RFC 1952), zstd (RFC 8878), xz, lz4
frames, ZIP (APPNOTE 4.3), PDF (ISO 32000), Parquet, Arrow IPC, NPY, SQLite 3, ELF, safetensors, Git LFS.
"""

from __future__ import annotations

import codecs
import os
from collections.abc import Collection
from dataclasses import dataclass

from experiment_utils.safe_read import plain_only

HEAD_BYTES = 512
"""Bytes of a file that `kind_of` needs: the signature of tar is at byte 257."""
COMPRESSIONS = frozenset({"gzip", "zstd", "bzip2", "xz"})
"""Compressions that the tokenizing command reads."""
WIDE_TEXTS = frozenset({"utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"})
"""Ids are those that `--encoding` takes."""
KINDS_LIKE_IDS = WIDE_TEXTS - {"utf-16", "utf-32"} | {"compress"}
"""Ids without a header, such as the bytes of a text as uint16, may begin like these."""
PAGES = frozenset({"html", "xml-error"})
NOT_FETCHED = PAGES | {"git-lfs", "git-annex"}
_LARGEST_SAFETENSORS_HEADER_BYTES = 100 << 20
_TEXT_CONTROLS = b"\t\n\v\f\r\x1b"
_CONTROLS = bytes(sorted({*range(32), 127} - set(_TEXT_CONTROLS)))

_NO_LOAD = "It is never loaded, since that can run code"
_DOWNLOAD = "The file was not downloaded: check the address and the login, then download it again"
_OUT = "Leave it out"
_ARRAYS = "Take the array out: np.save(OUT, np.load(FILE)[NAME])"


@dataclass(frozen=True)
class FileKind:
    """One kind of file. id: for comparisons. name: completes "FILE is". advice: what to do."""

    id: str
    name: str
    advice: str

    def advice_for(self, path: str | os.PathLike[str]) -> str:
        """The advice with the name of the file in it."""
        return self.advice.replace("{path}", os.fspath(path))  # no str.format: a path may have braces


_NAMES = {
    "zip": ("a zip archive", "Unpack it: unzip {path}"),
    "7z": ("a 7z archive", "Unpack it: 7z x {path}"),
    "rar": ("a rar archive", "Unpack it: unrar x {path}"),
    "tar": ("a tar archive", "Unpack it: tar -xf {path}"),
    "gzip": ("compressed with gzip", "Decompress it: gunzip --keep {path}"),
    "zstd": ("compressed with zstd", "Decompress it: zstd -d {path}"),
    "bzip2": ("compressed with bzip2", "Decompress it: bzip2 -dk {path}"),
    "xz": ("compressed with xz", "Decompress it: xz -dk {path}"),
    "lz4": ("compressed with lz4", "Decompress it: lz4 -d {path}"),
    "lzma": ("compressed with lzma", "Decompress it: xz -dk --format=lzma {path}"),
    "lzip": ("compressed with lzip", "Decompress it: lzip -dk {path}"),
    "snappy": ("compressed with snappy", "Decompress it: snzip -dk {path}"),
    "compress": ("compressed with compress", "Decompress it: uncompress -k {path}"),
    "pdf": ("a PDF document", "Take its text out: pdftotext {path} OUT.txt"),
    "office": ("an Office document", "Save it as plain text"),
    "image": ("an image", _OUT),
    "media": ("sound or video", _OUT),
    "npy": ("an .npy array", "Token files are given as dataset.path=FILE.npy"),
    "npz": ("an .npz archive of arrays", _ARRAYS),
    "parquet": ("a parquet file", "Tokenize it: python pretokenize_dataset.py {path}"),
    "arrow": (
        "an Arrow file",
        "Write it as parquet: pyarrow.parquet.write_table(feather.read_table(FILE), OUT)",
    ),
    "arrow-stream": ("an Arrow stream", "Tokenize it: python pretokenize_dataset.py {path}"),
    "sqlite": ("an SQLite database", "Write its rows as CSV: sqlite3 -csv {path} 'select ...' > OUT.csv"),
    "hdf5": ("an HDF5 file", "Write what is in it as .npy (ids) or lines of JSON (texts)"),
    "avro": ("an Avro file", "Write it as parquet or lines of JSON"),
    "gguf": ("a GGUF model", "Give the model as safetensors"),
    "safetensors": ("a safetensors file, which holds weights", _OUT),
    "torch": ("a checkpoint of torch.save", f"{_NO_LOAD}. Save it with safetensors.torch.save_file"),
    "pickle": ("a pickle", f"{_NO_LOAD}. Write what is in it as .npy, JSON or safetensors"),
    "program": ("a program", _OUT),
    "megatron": ("an index of Megatron", "Give dataset.path=STEM, where STEM.idx and STEM.bin are"),
    "git-lfs": ("a pointer of Git LFS and not the file itself", "Fetch the file: git lfs pull"),
    "git-annex": ("a pointer of git-annex and not the file itself", "Fetch the file: git annex get {path}"),
    "html": ("an HTML page", _DOWNLOAD),
    "xml-error": ("the error page of an object store", _DOWNLOAD),
}
"""Name and advice by id; `{path}` is the file."""
_SIGNATURES: tuple[tuple[str, int, tuple[bytes, ...]], ...] = (
    ("zip", 0, (b"PK\3\4", b"PK\5\6")),
    ("7z", 0, (b"7z\xbc\xaf\x27\x1c",)),
    ("rar", 0, (b"Rar!\x1a\7",)),
    ("tar", 257, (b"ustar",)),
    ("gzip", 0, (b"\x1f\x8b",)),
    ("zstd", 0, (b"\x28\xb5\x2f\xfd", *(bytes([0x50 + i]) + b"\x2a\x4d\x18" for i in range(16)))),
    ("bzip2", 0, tuple(b"BZh%d1AY&SY" % level for level in range(1, 10))),
    ("xz", 0, (b"\xfd7zXZ\0",)),
    ("lz4", 0, (b"\x04\x22\x4d\x18", b"\x02\x21\x4c\x18")),
    ("lzma", 0, tuple(b"\x5d\0\0%b" % (1 << i).to_bytes(2, "little") + b"\xff" * 8 for i in range(4, 16))),
    ("lzip", 0, (b"LZIP\1",)),
    ("snappy", 0, (b"\xff\x06\0\0sNaPpY",)),
    ("compress", 0, (b"\x1f\x9d",)),
    ("pdf", 0, (b"%PDF-1.", b"%PDF-2.")),
    ("office", 0, (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1",)),
    ("image", 0, (b"\x89PNG\r\n", b"\xff\xd8\xff", b"GIF87a", b"GIF89a", b"II*\0", b"MM\0*")),
    ("media", 0, (b"RIFF", b"OggS\0", b"ID3\2", b"ID3\3", b"ID3\4", b"fLaC\0", b"\x1aE\xdf\xa3")),
    ("npy", 0, (b"\x93NUMPY",)),
    ("parquet", 0, (b"PAR1",)),
    ("arrow", 0, (b"ARROW1\0\0", b"FEA1")),
    ("sqlite", 0, (b"SQLite format 3\0",)),
    ("hdf5", 0, (b"\x89HDF\r\n\x1a\n",)),
    ("avro", 0, (b"Obj\1",)),
    ("gguf", 0, (b"GGUF",)),
    ("program", 0, (b"\x7fELF", b"MZ\x90\0", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe")),
    ("megatron", 0, (b"MMIDIDX\0", b"TNTIDX\0")),
    ("git-lfs", 0, (b"version https://git-lfs.github.com/spec/v1",)),
    ("git-annex", 0, (b"/annex/objects/", b"../.git/annex/objects/")),
)
"""(id, byte at which it is, signatures)"""
_ELSEWHERE = [entry for entry in _SIGNATURES if entry[1]]
_MAY_BEGIN = {
    first[:1]: [entry for entry in _SIGNATURES if entry[1] or any(s[:1] == first[:1] for s in entry[2])]
    for _, offset, signatures in _SIGNATURES
    for first in signatures
    if not offset
}
"""Signatures by the first byte of a file."""
_NEEDS_CONTROLS = frozenset({"media", "parquet", "gguf"})
"""Their signatures are letters: a text that begins so has no control characters."""
_OPCODES = b"}](cKXUJM\x8aN)\x88\x89G\x8c\x95"
"""With which a pickle of protocol 2 to 5 begins; ids without a header may begin with its first two bytes."""
_TORCH_BEFORE_ZIP = b"\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."


def _named(id_: str) -> FileKind:
    return FileKind(id_, *_NAMES[id_])


def _wide(encoding: str) -> FileKind:
    name = encoding.upper().replace("-", "").replace("UTF", "UTF-", 1)
    return FileKind(encoding, f"text in {name}", f"Convert it: iconv -f {name} -t UTF-8 {{path}} > OUT")


def kind_of(head: bytes) -> FileKind | None:
    """The kind of a file with these first bytes (`HEAD_BYTES` of them); None where no signature matches.

    Plain UTF-8 text and ids without a header have no signature.
    """
    for id_, offset, signatures in _MAY_BEGIN.get(head[:1], _ELSEWHERE):
        if head.startswith(signatures, offset) and (id_ not in _NEEDS_CONTROLS or controls_in(head)):
            return _named(_kind_of_zip(head) if id_ == "zip" else id_)
    if head[:1] == b"\x80" and head[1:2] in b"\2\3\4\5" and head[2:3] in _OPCODES:
        return _named("torch" if head[2:].startswith(_TORCH_BEFORE_ZIP) else "pickle")
    header_bytes = int.from_bytes(head[:8], "little")
    if head[8:9] == b"{" and header_bytes <= _LARGEST_SAFETENSORS_HEADER_BYTES and 0 not in head[8:32]:
        return _named("safetensors")
    if head.startswith(b"\xff\xff\xff\xff") and len(head) > 8 and head[7:8] == b"\0":
        return _named("arrow-stream")
    return _page_of(head) or _wide_text(head)


def _kind_of_zip(head: bytes) -> str:
    """By the name of the first file in the archive (APPNOTE 4.3.7)."""
    name = head[30 : 30 + int.from_bytes(head[26:28], "little")]
    if name.endswith((b"/data.pkl", b"/byteorder", b"/.format_version", b"/version")):
        return "torch"
    return "npz" if name.endswith(b".npy") else "zip"


def _page_of(head: bytes) -> FileKind | None:
    begin = head.removeprefix(codecs.BOM_UTF8).lstrip()[:256].lower()
    if begin.startswith((b"<!doctype html", b"<html")):
        return _named("html")
    is_error = begin.startswith(b"<error>") or (begin.startswith(b"<?xml") and b"<error>" in begin)
    return _named("xml-error") if is_error else None


def _wide_text(head: bytes) -> FileKind | None:
    """UTF-16 and UTF-32, with a byte order mark, or by the zero bytes that Latin letters have there."""
    if head.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        return _wide("utf-32")
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) and len(head) > 2:
        return _wide("utf-16")
    whole = head[: len(head) // 4 * 4]
    if len(whole) < 16:
        return None
    for bits, encodings in ((32, ("utf-32-le", "utf-32-be")), (16, ("utf-16-le", "utf-16-be"))):
        for encoding in encodings:
            if whole.count(0) >= len(whole) * (bits - 8) // bits // 2 and _is_letters(whole, encoding):
                return _wide(encoding)
    return None


def _is_letters(data: bytes, encoding: str) -> bool:
    """Whether most of these characters are printable ASCII, and no control character is among them."""
    text = data.decode(encoding, "replace")
    printable = sum(" " <= c <= "~" or c in "\t\r\n" for c in text)
    return printable >= 0.75 * len(text) and not any(c < "\t" for c in text)


def controls_in(data: bytes) -> int:
    """Number of control characters that no plain text has."""
    return len(data) - len(data.translate(None, _CONTROLS))


def head_of(path: str | os.PathLike[str]) -> bytes:
    """The first bytes of a plain file; empty where it cannot be read."""
    try:
        with open(path, "rb", buffering=0, opener=plain_only) as file:
            return file.read(HEAD_BYTES)
    except OSError:
        return b""


def not_expected(
    path: str | os.PathLike[str], expected: str, allowed: Collection[str] = (), head: bytes | None = None
) -> str | None:
    """Message that names the kind of a file that is none of `allowed` (ids), and what to do with it.

    Args:
        expected: with its article, such as "a CSV table".
        head: the first bytes of the file, where they were read.

    Returns:
        None where no signature matches, or one of an allowed kind.
    """
    kind = kind_of(head_of(path) if head is None else head)
    if kind is None or kind.id in allowed:
        return None
    return f"{os.fspath(path)} is {kind.name}; expected {expected}. {kind.advice_for(path)}"
