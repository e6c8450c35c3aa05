"""Texts for measurements of the pretokenizer: English, source code, many languages, and a mix.

They are made from Debian packages, downloaded once (some 700 MB) and kept with the texts in one folder
(some 4 GB). Nothing is repeated to fill up: a document that was there already is left out, and so is a line
of prose of 24 characters or more, since repeated text flatters caches. Documents are in the order of a hash
of their names, so that each prefix is a fair sample. corpora.json in the folder lists what there is.
"""

from __future__ import annotations

import gzip
import hashlib
import html
import io
import json
import lzma
import re
import tarfile
import tempfile
import urllib.request
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.harness import ROOT
from benchmarks.tokenizing_peers import SEPARATOR

FOLDER = Path(tempfile.gettempdir()) / "highwater-corpora"
MIRROR, SUITE = "http://deb.debian.org/debian", "bookworm"
KIND_BYTES, MIX_BYTES = 200 * 10**6, 10**9
_LINE_CHARACTERS, _DOCUMENT_CHARACTERS, _SHORTEST_CHARACTERS = 24, 1 << 18, 200
_LANGUAGES = "cs da de el es fi fr hu id it ja ko nl pl pt pt-br ro ru sr sv tr uk vi zh zh-cn zh-tw hi"
_BOOKS = (
    "libreoffice-help-{} manpages-{} manpages-{}-dev debian-reference-{} aptitude-doc-{} debian-faq-{} "
    "developers-reference-{} maint-guide-{}"
)
_ENGLISH = (
    "doc-rfc-experimental doc-rfc-fyi-bcp doc-rfc-informational doc-rfc-misc doc-rfc-old-std doc-rfc-others "
    "doc-rfc-std doc-rfc-std-proposed anarchism bible-kjv-text debian-reference-en dict-gcide dict-wn "
    "git-doc jargon-text libreoffice-help-en-us manpages manpages-dev perl-doc postgresql-doc-15 "
    "python3.11-doc"
)
KINDS = {
    "english": _ENGLISH.split(),
    "multilingual": [book.format(language) for language in _LANGUAGES.split() for book in _BOOKS.split()],
    "source": ["linux-source-6.1"],
}
"""Packages by kind; the archive does not have every book in every language."""
_TEXTS = (".txt", ".html", ".htm", ".pod", ".rst", ".dict.dz", ".roff")
_SOURCES = (".c", ".h", ".S", ".py", ".sh", ".rs", ".pl", ".dts", ".dtsi", ".awk", ".y", ".l")
_MANUAL_PAGE = re.compile(r"/man/.*\.[1-9][a-z]*$")
_TABLES = ("/asic_reg/", "/firmware/")
"""Machine-made lists of registers, a third of the kernel's bytes."""

Document = tuple[str, str, str]
"""Order (a hash of its name), kind, text."""


def corpora(folder: Path, is_quick: bool = False) -> dict[str, Any]:
    """Facts in corpora.json; the texts are made first if they are missing. is_quick: from this checkout."""
    facts = folder / "corpora.json"
    if not facts.exists():
        folder.mkdir(parents=True, exist_ok=True)
        versions, documents = ({}, _of_checkout()) if is_quick else _of_debian(folder / "packages")
        documents.sort()
        made = {
            kind: _write(folder, kind, [one for one in documents if one[1] == kind], KIND_BYTES)
            for kind in KINDS
        }
        made["mix"] = _write(folder, "mix", _mixed(documents), MIX_BYTES)
        suite = "this checkout" if is_quick else "Debian bookworm"
        facts.write_text(json.dumps({"suite": suite, "packages": versions, "corpora": made}, indent=2) + "\n")
    return json.loads(facts.read_text())


def _of_checkout() -> list[Document]:
    kinds = {"english": "docs/*.md", "multilingual": "tests/**/*.py", "source": "training/**/*.py"}
    return _documents(
        (kind, f"{path}", path.read_text()) for kind, of in kinds.items() for path in ROOT.glob(of)
    )


def _of_debian(cache: Path) -> tuple[dict[str, str], list[Document]]:
    """Versions of the packages, and their texts."""
    available, versions, texts_of = index(cache), {}, []
    for kind, names in KINDS.items():
        for package in (available[name] for name in dict.fromkeys(names) if name in available):
            versions[package["Package"]] = package["Version"]
            path = _fetched(package["Filename"], cache)
            with open(path, "rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != package["SHA256"]:
                    raise RuntimeError(f"{path} differs from the index. Delete it and try again.")
            texts_of.append((kind, path))
    found = ((kind, f"{deb.name}/{name}", text) for kind, deb in texts_of for name, text in texts(deb))
    return versions, _documents(found)


def index(cache: Path) -> dict[str, dict[str, str]]:
    """Packages of the suite for all machines, main and non-free, by name."""
    found = {}
    for area in ("main", "non-free"):
        path = _fetched(f"dists/{SUITE}/{area}/binary-all/Packages.xz", cache / area)
        for entry in lzma.decompress(path.read_bytes()).decode().split("\n\n"):
            facts = dict(re.findall(r"^(Package|Version|Filename|SHA256): (.*)$", entry, re.MULTILINE))
            if facts:
                found[facts["Package"]] = facts
    return found


def _fetched(address: str, folder: Path) -> Path:
    path = folder / Path(address).name
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        urllib.request.urlretrieve(f"{MIRROR}/{address}", path.with_suffix(".partial"))
        path.with_suffix(".partial").rename(path)
    return path


def texts(deb: Path) -> Iterator[tuple[str, str]]:
    """(name, text) of each text in a package, without markup of HTML; what is not UTF-8 is left out."""
    for name, data in _members(deb):
        plain = name.removesuffix(".gz")
        is_text = plain.endswith((*_TEXTS, *_SOURCES)) or _MANUAL_PAGE.search(plain)
        if not is_text or any(part in name for part in _TABLES):
            continue
        try:
            text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode("utf-8")
        except (UnicodeDecodeError, OSError, EOFError):
            continue
        if plain.endswith((".html", ".htm")):
            text = re.sub(r"(?s)<(script|style)\b.*?</\1>|<!--.*?-->", "", text)
            text = re.sub(r"(?i)</?(p|div|li|h\d|tr|pre|dt|dd|br|table|ul|ol)\b[^>]*>", "\n", text)
            text = re.sub(r"\n\s*\n+", "\n\n", html.unescape(re.sub(r"<[^>]*>", "", text)))
        yield name, text


def _members(deb: Path) -> Iterator[tuple[str, bytes]]:
    """Files of a package, and of tar files in it."""
    with tarfile.open(fileobj=io.BytesIO(_data_of(deb)), mode="r:*") as package:
        for member in package:
            file = package.extractfile(member) if member.isfile() else None
            if file is None:
                continue
            if ".tar." not in member.name:
                yield member.name, file.read()
                continue
            with tarfile.open(fileobj=file, mode="r|*") as inner:
                for part in inner:
                    opened = inner.extractfile(part) if part.isfile() else None
                    if opened is not None:
                        yield part.name, opened.read()


def _data_of(deb: Path) -> bytes:
    """The data.tar of an `ar` archive: 8 bytes of magic, then headers of 60 bytes and contents."""
    with open(deb, "rb") as file:
        file.seek(8)
        while header := file.read(60):
            size = int(header[48:58])
            if header.startswith(b"data.tar"):
                return file.read(size)
            file.seek(size + size % 2, io.SEEK_CUR)
    raise RuntimeError(f"{deb} holds no data.tar")


def _documents(found: Iterable[tuple[str, str, str]]) -> list[Document]:
    """Documents of (kind, name, text), without what was there before."""
    made, seen = [], set[bytes]()
    for kind, name, text in found:
        for number, part in enumerate(_parts(_fresh(text, seen, whole=kind == "source"))):
            made.append((hashlib.sha256(f"{name}/{number}".encode()).hexdigest(), kind, part))
    return made


def _fresh(text: str, seen: set[bytes], *, whole: bool) -> str:
    """The text, or its longer lines, without what was there before."""

    def is_new(part: str) -> bool:
        key = hashlib.blake2b(part.encode(), digest_size=10).digest()
        return not (key in seen or seen.add(key))  # type: ignore[func-returns-value]

    if SEPARATOR in text or (whole and not is_new(text)):
        return ""
    lines = [text] if whole else text.splitlines(keepends=True)
    return "".join(line for line in lines if whole or len(line) < _LINE_CHARACTERS or is_new(line.strip()))


def _parts(text: str) -> Iterator[str]:
    """Documents of at most a quarter of a million characters, which end with a line."""
    text = re.sub(r"\n{3,}", "\n\n", text).strip("\n") + "\n"
    start = 0
    while len(text) - start >= _SHORTEST_CHARACTERS:
        stop = len(text)
        if stop - start > _DOCUMENT_CHARACTERS:
            stop = text.rfind("\n", start, start + _DOCUMENT_CHARACTERS) + 1 or start + _DOCUMENT_CHARACTERS
        yield text[start:stop] if text[stop - 1] == "\n" else text[start:stop] + "\n"
        start = stop


def _mixed(documents: list[Document]) -> list[Document]:
    """All prose, and source code up to the size of the mix, evenly among it."""
    prose = sum(len(text) for _, kind, text in documents if kind != "source")
    code = sum(len(text) for _, kind, text in documents if kind == "source")
    share = min(1.0, max(0.0, MIX_BYTES * 1.01 - prose) / max(1, code))
    limit = f"{int(share * 0xFFFFFFFF):08x}"
    return [one for one in documents if one[1] != "source" or one[0][-8:] <= limit]


def _write(folder: Path, name: str, documents: list[Document], limit_bytes: int) -> dict[str, Any]:
    """NAME.txt and NAME.jsonl of the first documents, and what is in them."""
    digest, words, total, kinds, size, count = hashlib.sha256(), set[int](), 0, dict.fromkeys(KINDS, 0), 0, 0
    with open(folder / f"{name}.txt", "wb") as plain, open(folder / f"{name}.jsonl", "wb") as lines:
        for _, kind, text in documents:
            data = text.encode()
            if size + len(data) > limit_bytes:
                break
            piece = (f"{SEPARATOR}\n".encode() if count else b"") + data
            plain.write(piece)
            digest.update(piece)
            lines.write(json.dumps({"text": text}, ensure_ascii=False).encode() + b"\n")
            found = data.split()
            words.update(map(hash, found))
            total, size, count = total + len(found), size + len(data), count + 1
            kinds[kind] += len(data)
    return {
        "text_bytes": size, "documents": count, "words": total, "sha256_of_txt": digest.hexdigest(),
        "distinct_words_share": round(len(words) / max(1, total), 4),
        "bytes_by_kind": {kind: found for kind, found in kinds.items() if found},
    }  # fmt: skip


def prefix(folder: Path, name: str, text_bytes: int) -> Path:
    """Path, without suffix, of .txt and .jsonl with the first documents of a corpus."""
    target = folder / "prefixes" / f"{name}-{text_bytes // 10**6}MB"
    if not target.with_suffix(".jsonl").exists():
        target.parent.mkdir(exist_ok=True)
        size, partial = 0, target.with_suffix(".partial")
        with (
            open(folder / f"{name}.jsonl", "rb") as source,
            open(target.with_suffix(".txt"), "wb") as plain,
            open(partial, "wb") as lines,
        ):
            for number, line in enumerate(source):
                data = json.loads(line)["text"].encode()
                if size + len(data) > text_bytes:
                    break
                lines.write(line)
                plain.write((f"{SEPARATOR}\n".encode() if number else b"") + data)
                size += len(data)
        partial.rename(target.with_suffix(".jsonl"))
    return target
