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
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any

from data_loading.text_io.byte_files import SAMPLE_BYTES, sample_places
from data_loading.text_io.chunks import Chunk, Mark
from data_loading.text_io.source import Pieces, Sample, numbered
from data_loading.tokens.set_files import SetFiles
from experiment_utils.errors import UserError

_LEFT_OUT_FOLDERS = ("test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__")
_LEFT_OUT_FILES = ("sitecustomize.py", "usercustomize.py")


@dataclass
class StdlibSource:
    """Documents are files; offsets count from the start of each."""

    root: Path = field(default_factory=lambda: Path(sysconfig.get_path("stdlib")))
    total_bytes: int = field(init=False)
    done_bytes: int = field(init=False, default=0)
    options: dict[str, Any] = field(init=False)
    can_continue: bool = field(init=False, default=True)
    _files: list[str] = field(init=False)
    _facts: dict[str, Any] | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.options = {"encoding": "utf-8", "errors": "strict", "document_separator": None}
        self._files = sorted(path.relative_to(self.root).as_posix() for path in _python_files(self.root))
        stats = [(self.root / name).stat() for name in self._files]
        self.total_bytes = sum(stat.st_size for stat in stats)
        if not self.total_bytes:
            raise UserError(
                f"dataset=stdlib: no Python source below {self.root}. This Python keeps its standard library "
                "elsewhere (in a zip file?): use dataset=text dataset.path=FILE.txt",
                code="stdlib-missing",
            )
        self._starts = [0, *accumulate(stat.st_size for stat in stats)][:-1]
        listing = [(n, s.st_size, s.st_mtime_ns) for n, s in zip(self._files, stats, strict=True)]
        self._listing = hashlib.sha256(repr(listing).encode()).hexdigest()

    @property
    def what(self) -> str:
        return f"the standard library of Python {platform.python_version()} in {self.root}"

    @property
    def argument(self) -> str:
        return "stdlib"

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
            try:
                text = (self.root / name).read_bytes()
                text.decode("utf-8")
            except UnicodeDecodeError:
                continue
            except OSError as error:
                raise UserError(
                    f"{self.root}/{name} cannot be read: {error.strerror}", code="file-unreadable"
                ) from error
            if text:
                yield name, text

    def samples(self) -> list[bytes]:
        texts = [text for _, text in self._documents()]
        whole = b"".join(texts)
        places = sample_places(len(whole), SAMPLE_BYTES)
        length = SAMPLE_BYTES if len(places) > 1 else len(whole)
        return [whole[place : place + length].decode("utf-8", "ignore").encode() for place in places]

    @property
    def known_documents(self) -> None:
        return None

    @property
    def sample_starts(self) -> None:
        return None

    def sample(self, start: int, length: int) -> Sample:
        """Of the files that begin there, all laid one behind the other."""
        first, last = (bisect_left(self._starts, place) for place in (start, start + length))
        texts = [text for _, text in self._documents(self._files[first:last])]
        end = self._starts[last] if last < len(self._starts) else self.total_bytes
        size = end - self._starts[first] if last > first else 0
        return Sample(texts, size, len(texts))

    def state(self) -> Any:
        return ["stdlib", self._listing]

    def facts(self) -> list[dict[str, Any]]:
        if self._facts is None:
            for _ in self._chunks():
                pass
        assert self._facts is not None
        return [self._facts]

    def differs(self, facts: list[dict[str, Any]], files: SetFiles) -> str | None:
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
