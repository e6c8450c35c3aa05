"""What every kind of foreign file can say: that it is one, and where its tokens lie."""

from __future__ import annotations

import abc
import codecs
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conf import AUTO
from data_loading.import_formats.byte_ranges import Runs
from data_loading.tokens.lazy_array import Values
from experiment_utils import atomic_files
from experiment_utils.errors import UserError

DTYPES = ("uint16", "uint32", "int32", "int64")
"""What a user may say of files that do not say it themselves."""
_SELF_TOLD = ("uint8", "int8", "int16", "uint64")

_LOOKED_AT_BYTES = 1 << 16
_NOT_IN_TEXT = bytes(sorted({*range(32)} - set(b"\t\n\f\r")))


@dataclass(frozen=True)
class Asked:
    """What is known beside the files.

    dtype: auto, or of `DTYPES`. vocab_size: of the run's tokenizer, or None. is_checked: the files are as
    they were when they were last opened with success.
    """

    dtype: str = AUTO
    vocab_size: int | None = None
    is_checked: bool = False

    def __post_init__(self) -> None:
        if self.dtype not in (AUTO, *DTYPES, *_SELF_TOLD):
            raise UserError(
                f"dtype {self.dtype!r}: choices are {', '.join((AUTO, *DTYPES))}", code="dtype-unknown"
            )


@dataclass(frozen=True)
class Layout:
    """Tokens of one split.

    documents: starts, where the format keeps items apart. files: all that decide tokens and documents, in
    order. vocab_size, tokenizer: as the files name them. told: how the dtype was decided, where it was.
    begin_ids: of which one is put before each document, where the format does that.
    """

    tokens: Runs
    documents: Values | None
    files: tuple[Path, ...]
    vocab_size: int | None = None
    tokenizer: str | None = None
    told: str | None = None
    begin_ids: tuple[int, ...] = ()


class Kind(abc.ABC):
    """One format. name: as messages call it."""

    name: str

    @abc.abstractmethod
    def sign(self, path: Path) -> str | None:
        """What in a file or folder shows that it is of this kind; None: nothing does. Reads a few bytes."""

    @abc.abstractmethod
    def open(self, path: Path, asked: Asked) -> dict[str, Layout]:
        """`all`, or `train` and `val`. Looks at indices and sizes, not at all tokens.

        Raises:
            UserError: it is of this kind, but damaged, or not to be read as it lies; says what mends it.
        """

    def damaged(self, path: Path, what: str) -> UserError:
        return UserError(
            f"{path} holds tokens as {self.name} has them, but {what}. Copy it again, or make it again with "
            f"{self.name}",
            code="foreign-set-damaged",
        )


def read_object(path: Path) -> dict[str, Any] | None:
    """A JSON object; None if the file is absent or holds something else.

    Raises:
        UserError: it cannot be read.
    """
    try:
        return atomic_files.read_object(path)
    except ValueError:
        return None


def begins(path: Path, count: int) -> bytes:
    """The first bytes of a file; none where it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(count)
    except OSError:
        return b""


def begins_as_text(path: Path) -> bool:
    """Whether its first bytes are UTF-8 without control characters, which ids hardly ever are."""
    head = begins(path, _LOOKED_AT_BYTES)
    if head.translate(None, _NOT_IN_TEXT) != head:
        return False
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return True
