"""The embedded corpus: the source text of the Python standard library that runs this program.

The rule, fixed: every `.py` file below the standard library's folder, in the order of the relative
path, each one document; without test suites (`test`, `tests`, `idle_test`), installed packages
(`site-packages`, `dist-packages`), `__pycache__`, what a distribution generates for its machine
(`_sysconfigdata*`, `config-*`, `sitecustomize.py`, `usercustomize.py`), links, empty files and
files that are not UTF-8. Results compare only within one content hash.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import sysconfig
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from data_loading.text_io.byte_files import read_errors
from data_loading.text_io.chunks import Chunk, Mark
from data_loading.text_io.source import Compare, Pieces, Sample, Source, numbered
from experiment_utils.errors import UserError

_LEFT_OUT_FOLDERS = ("test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__")
_LEFT_OUT_FILES = ("sitecustomize.py", "usercustomize.py")


class StdlibSource(Source):
    """Documents are files; offsets count from the start of each."""

    argument = "stdlib"
    can_continue = True
    sample_starts = None

    def __init__(self, root: Path | None = None) -> None:
        self.root = root or Path(sysconfig.get_path("stdlib"))
        self.what = f"the standard library of Python {platform.python_version()} in {self.root}"
        self.options = {"encoding": "utf-8", "errors": "strict", "document_separator": None}
        self._files = sorted(path.relative_to(self.root).as_posix() for path in _python_files(self.root))
        stats = [(self.root / name).stat() for name in self._files]
        self.total_bytes: int = sum(stat.st_size for stat in stats)
        self.done_bytes, self._facts = 0, dict[str, Any]()
        if not self.total_bytes:
            raise UserError(
                f"dataset=stdlib: no Python source below {self.root}. This Python keeps its standard library "
                "elsewhere (in a zip file?): use dataset=text dataset.path=FILE.txt",
                code="stdlib-missing",
            )
        self._starts = [0, *accumulate(stat.st_size for stat in stats)][:-1]
        listing = [(n, s.st_size, s.st_mtime_ns) for n, s in zip(self._files, stats, strict=True)]
        self._listing = hashlib.sha256(repr(listing).encode()).hexdigest()

    def chunks(self, start: Mark | None = None, pieces: Pieces | None = None) -> Iterator[Chunk]:
        return numbered(self._chunks(), start)

    def _chunks(self) -> Iterator[Chunk]:
        digest = hashlib.sha256()
        self.done_bytes = files = 0
        for name, text in self._documents():
            digest.update(f"{name}\n{len(text)}\n".encode())
            digest.update(text)
            self.done_bytes += len(text)
            files += 1
            yield Chunk(text, f"{self.root}/{name}", 0, True)
        self._facts = {
            "path": "stdlib",
            "python": platform.python_version(),
            "files": files,
            "bytes": self.done_bytes,
            "listing": self._listing,
            "content_hash": digest.hexdigest(),
        }

    def _documents(self, files: Sequence[str] | None = None) -> Iterator[tuple[str, bytes]]:
        for name in self._files if files is None else files:
            with read_errors(f"{self.root}/{name}"):
                text = (self.root / name).read_bytes()
            try:
                text.decode("utf-8")
            except UnicodeDecodeError:
                continue
            if text:
                yield name, text

    def sample(self, start: int, length: int) -> Sample:
        """The files that begin there, in a sequence of all files."""
        first, last = (bisect_left(self._starts, place) for place in (start, start + length))
        texts = [text for _, text in self._documents(self._files[first:last])]
        end = self._starts[last] if last < len(self._starts) else self.total_bytes
        size = end - self._starts[first] if last > first else 0
        return Sample(texts, size, len(texts))

    def state(self) -> Any:
        return ["stdlib", self._listing]

    def facts(self) -> list[dict[str, Any]]:
        if not self._facts:
            for _ in self._chunks():
                pass
        return [self._facts]

    def differs(self, facts: list[dict[str, Any]], compare: Compare) -> str | None:
        fact = facts[0] if len(facts) == 1 else {}
        if fact.get("listing") == self._listing:
            return None
        here = self.facts()[0]
        if fact.get("content_hash") == here["content_hash"]:
            return None
        return (
            f"it was made from the standard library of Python {fact.get('python')} (content "
            f"{str(fact.get('content_hash'))[:12]}), this is Python {here['python']} (content "
            f"{here['content_hash'][:12]})"
        )


def default_name(tokenizer_name: str) -> str:
    """File name of its token set, such as `stdlib-py3.11.7-bytes.npy`."""
    return f"stdlib-py{platform.python_version()}-{re.sub(r'[^A-Za-z0-9._-]', '_', tokenizer_name)}.npy"


def _python_files(root: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(root):
        folders[:] = [
            name for name in folders if name not in _LEFT_OUT_FOLDERS and not name.startswith("config-")
        ]
        for name in files:
            path = Path(folder) / name
            kept = (
                name.endswith(".py") and name not in _LEFT_OUT_FILES and not name.startswith("_sysconfigdata")
            )
            if kept and not path.is_symlink():
                yield path
