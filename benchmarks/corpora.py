"""Makes the texts that the pretokenizer is measured on: English, source code, many languages, and a mix.

From Debian packages, fetched once (some 700 MB) and kept with the texts in one folder (some 4 GB).
Nothing is repeated to fill up: a document that was there already is left out, and so is a line of
prose of 24 characters or more, since repeated text flatters caches. Documents stand in the order of a
hash of their names, so that each prefix is a fair sample. The folder's corpora.json says what there is.

    python benchmarks/corpora.py [--corpora FOLDER]      # about 10 minutes the first time
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.tokenizing_parts.packages import download, index, texts

DEFAULT_FOLDER = Path(tempfile.gettempdir()) / "highwater-corpora"
SEPARATOR = "<|endoftext|>"
"""A line between two documents of a .txt; the .jsonl of the same name holds the same documents."""
KIND_BYTES, MIX_BYTES = 200 * 10**6, 10**9
_LINE_CHARACTERS = 24
_DOCUMENT_CHARACTERS = 1 << 18
_SHORTEST_CHARACTERS = 200

_LANGUAGES = [
    "cs",
    "da",
    "de",
    "el",
    "es",
    "fi",
    "fr",
    "hu",
    "id",
    "it",
    "ja",
    "ko",
    "nl",
    "pl",
    "pt",
    "pt-br",
    "ro",
    "ru",
    "sr",
    "sv",
    "tr",
    "uk",
    "vi",
    "zh",
    "zh-cn",
    "zh-tw",
    "hi",
]
PACKAGES = {
    "english": [
        *(f"doc-rfc-{part}" for part in (
            "experimental", "fyi-bcp", "informational", "misc", "old-std", "others", "std", "std-proposed"
        )),
        "anarchism", "bible-kjv-text", "debian-reference-en", "dict-gcide", "dict-wn", "git-doc",
        "jargon-text", "libreoffice-help-en-us", "manpages", "manpages-dev", "perl-doc", "postgresql-doc-15",
        "python3.11-doc",
    ],
    "multilingual": [
        f"{series}-{language}{end}"
        for language in _LANGUAGES
        for series, end in (
            ("libreoffice-help", ""), ("manpages", ""), ("manpages", "-dev"), ("debian-reference", ""),
            ("aptitude-doc", ""), ("debian-faq", ""), ("developers-reference", ""), ("maint-guide", ""),
        )
    ],
    "source": ["linux-source-6.1"],
}  # fmt: skip
"""A kind may name packages that the archive does not have: not every language has every book."""


@dataclass(frozen=True)
class _Document:
    """Where a text lies in the store of its kind."""

    order: str
    kind: str
    start: int
    length: int


def absolute(text: str) -> Path:
    """Of an option: commands are run in folders of their own."""
    return Path(text).absolute()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--corpora", type=absolute, default=DEFAULT_FOLDER, metavar="FOLDER")
    print(json.dumps(corpora(parser.parse_args().corpora), indent=2))


def corpora(folder: Path) -> dict[str, Any]:
    """What corpora.json says; the texts are made first where they are not there."""
    facts = folder / "corpora.json"
    if not facts.exists():
        folder.mkdir(parents=True, exist_ok=True)
        made = _make(folder)
        facts.write_text(json.dumps(made, indent=2) + "\n")
    return json.loads(facts.read_text())


def _make(folder: Path) -> dict[str, Any]:
    available, versions, documents = index(folder / "packages"), {}, []
    for kind, names in PACKAGES.items():
        found = [available[name] for name in dict.fromkeys(names) if name in available]
        versions |= {package.name: package.version for package in found}
        debs = [download(package, folder / "packages") for package in found]
        print(f"{kind}: {len(found)} packages", file=sys.stderr)
        documents += _store(kind, debs, folder)
    documents.sort(key=lambda document: document.order)
    made = {}
    for kind in PACKAGES:
        made[kind] = _write(folder, kind, [d for d in documents if d.kind == kind], KIND_BYTES)
    made["mix"] = _write(folder, "mix", _mixed(documents), MIX_BYTES)
    for kind in PACKAGES:
        _stored(folder, kind).unlink()
    return {"suite": "Debian bookworm", "packages": versions, "corpora": made}


def _store(kind: str, debs: list[Path], folder: Path) -> list[_Document]:
    seen: set[bytes] = set()
    found = []
    with open(_stored(folder, kind), "wb") as store:
        for deb in debs:
            for name, text in texts(deb):
                whole = _fresh(text, seen, whole=kind == "source")
                for number, part in enumerate(_parts(whole)):
                    data = part.encode()
                    order = hashlib.sha256(f"{deb.name}/{name}/{number}".encode()).hexdigest()
                    found.append(_Document(order, kind, store.tell(), len(data)))
                    store.write(data)
    return found


def _fresh(text: str, seen: set[bytes], *, whole: bool) -> str:
    """Without what was there before: the text, or its longer lines."""

    def is_new(part: str) -> bool:
        key = hashlib.blake2b(part.encode(), digest_size=10).digest()
        return not (key in seen or seen.add(key))

    if SEPARATOR in text:
        return ""
    if whole:
        return text if is_new(text) else ""
    lines = text.splitlines(keepends=True)
    return "".join(line for line in lines if len(line) < _LINE_CHARACTERS or is_new(line.strip()))


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


def _mixed(documents: list[_Document]) -> list[_Document]:
    """All prose, and as much source code as is wanting, evenly among it."""
    prose = sum(d.length for d in documents if d.kind != "source")
    code = sum(d.length for d in documents if d.kind == "source")
    share = min(1.0, max(0.0, MIX_BYTES * 1.01 - prose) / code)
    limit = f"{int(share * 0xFFFFFFFF):08x}"
    return [d for d in documents if d.kind != "source" or d.order[-8:] <= limit]


def _write(folder: Path, name: str, documents: list[_Document], limit_bytes: int) -> dict[str, Any]:
    """NAME.txt and NAME.jsonl of the first documents, and what is in them."""
    digest, words, total_words, kinds = hashlib.sha256(), set(), 0, dict.fromkeys(PACKAGES, 0)
    stores = {kind: os.open(_stored(folder, kind), os.O_RDONLY) for kind in PACKAGES}
    size = count = 0
    with open(folder / f"{name}.txt", "wb") as plain, open(folder / f"{name}.jsonl", "wb") as lines:
        for document in documents:
            if size + document.length > limit_bytes:
                break
            data = os.pread(stores[document.kind], document.length, document.start)
            separator = f"{SEPARATOR}\n".encode() if count else b""
            plain.write(separator + data)
            lines.write(json.dumps({"text": data.decode()}, ensure_ascii=False).encode() + b"\n")
            digest.update(separator + data)
            found = data.split()
            total_words += len(found)
            words.update(map(hash, found))
            size, count = size + document.length, count + 1
            kinds[document.kind] += document.length
    for descriptor in stores.values():
        os.close(descriptor)
    return {
        "text_bytes": size,
        "documents": count,
        "words": total_words,
        "distinct_words_share": round(len(words) / total_words, 4),
        "bytes_by_kind": {kind: found for kind, found in kinds.items() if found},
        "sha256_of_txt": digest.hexdigest(),
    }


def prefix(folder: Path, name: str, text_bytes: int) -> Path:
    """NAME.txt and NAME.jsonl of the first documents of the corpus, in a folder of their own.

    Returns the path of both without its suffix.
    """
    target = folder / "prefixes" / f"{name}-{text_bytes // 10**6}MB"
    if not (target.with_suffix(".jsonl")).exists():
        target.parent.mkdir(exist_ok=True)
        size = 0
        partial = target.with_suffix(".partial")
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


def free_bytes(folder: Path) -> int:
    """Room on the disk of the folder."""
    return shutil.disk_usage(folder).free


def _stored(folder: Path, kind: str) -> Path:
    return folder / f"{kind}.store"


if __name__ == "__main__":
    main()
