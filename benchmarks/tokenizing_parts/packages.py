"""Texts out of Debian packages: fetched from a mirror by their index, checked, read member by member."""

from __future__ import annotations

import gzip
import hashlib
import html
import io
import lzma
import re
import tarfile
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MIRROR = "http://deb.debian.org/debian"
SUITE = "bookworm"
_TEXT_SUFFIXES = (".txt", ".html", ".htm", ".pod", ".rst", ".dict.dz", ".roff")
_SOURCE_SUFFIXES = (".c", ".h", ".S", ".py", ".sh", ".rs", ".pl", ".dts", ".dtsi", ".awk", ".y", ".l")
_MANUAL_PAGE = re.compile(r"/man/.*\.[1-9][a-z]*$")
_TABLES = ("/asic_reg/", "/firmware/")
"""Machine-made lists of registers, a third of the kernel's bytes: no code that anybody wrote."""


@dataclass(frozen=True)
class Package:
    """One line of the archive's index."""

    name: str
    version: str
    filename: str
    sha256: str


def index(cache: Path) -> dict[str, Package]:
    """All packages of the suite that run on any machine, main and non-free. The newest of each name."""
    found: dict[str, Package] = {}
    for area in ("main", "non-free"):
        path = _fetched(f"dists/{SUITE}/{area}/binary-all/Packages.xz", cache / f"{area}-Packages.xz")
        for entry in lzma.decompress(path.read_bytes()).decode().split("\n\n"):
            facts = dict(re.findall(r"^(Package|Version|Filename|SHA256): (.*)$", entry, re.MULTILINE))
            if facts:
                package = Package(facts["Package"], facts["Version"], facts["Filename"], facts["SHA256"])
                found[package.name] = package
    return found


def download(package: Package, cache: Path) -> Path:
    """The .deb, from the cache where it is there already. Raises RuntimeError when it is another one."""
    path = _fetched(package.filename, cache / Path(package.filename).name)
    with open(path, "rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != package.sha256:
            raise RuntimeError(f"{path} is not what the index says; delete it and try again")
    return path


def _fetched(address: str, path: Path) -> Path:
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        urllib.request.urlretrieve(f"{MIRROR}/{address}", partial)
        partial.rename(path)
    return path


def texts(deb: Path) -> Iterator[tuple[str, str]]:
    """(name, text) of each text in the package: markup of HTML taken out, what is not UTF-8 left out."""
    for name, data in _members(deb):
        plain = name.removesuffix(".gz")
        if not (plain.endswith((*_TEXT_SUFFIXES, *_SOURCE_SUFFIXES)) or _MANUAL_PAGE.search(plain)):
            continue
        if any(part in name for part in _TABLES):
            continue
        try:
            text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode("utf-8")
        except (UnicodeDecodeError, OSError, EOFError):
            continue
        yield name, _without_markup(text) if plain.endswith((".html", ".htm")) else text


def _members(deb: Path) -> Iterator[tuple[str, bytes]]:
    """Files of the package; a tar file among them is looked into."""
    with tarfile.open(fileobj=io.BytesIO(_data_of(deb)), mode="r:*") as package:
        for member in package:
            file = package.extractfile(member) if member.isfile() else None
            if file is None:
                continue
            if ".tar." in member.name:
                with tarfile.open(fileobj=file, mode="r|*") as inner:
                    for part in inner:
                        opened = inner.extractfile(part) if part.isfile() else None
                        if opened is not None:
                            yield part.name, opened.read()
            else:
                yield member.name, file.read()


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


def _without_markup(page: str) -> str:
    body = re.sub(r"(?s)<(script|style)\b.*?</\1>|<!--.*?-->", "", page)
    body = re.sub(r"(?i)</?(p|div|li|h\d|tr|pre|dt|dd|br|table|ul|ol)\b[^>]*>", "\n", body)
    return re.sub(r"\n\s*\n+", "\n\n", html.unescape(re.sub(r"<[^>]*>", "", body)))
