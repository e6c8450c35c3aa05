"""Documents of one rank in one epoch of a stream, with the place of the last one."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Generator
from dataclasses import dataclass
from typing import Any

from data_loading.hub.client import asked
from data_loading.hub_stream.arrow_shutdown import close_at_exit
from data_loading.pretokenizer.sources.json_lines import BadLine, text_of
from data_loading.text_io.size_limits import LONGEST_BYTES
from experiment_utils.errors import UserError

_DIGEST_BYTES = 16


@dataclass(frozen=True)
class RankPart:
    """Part of the documents that a rank reads."""

    rank: int = 0
    world_size: int = 1
    key: int = 0
    """Key of the order of files; 0: the order in which they are stored."""


class StreamDocuments:
    """Texts, one after another.

    With as many files as ranks, or more, a rank reads files of its own. With fewer, all ranks read all
    files, and document n belongs to rank n % world_size. So each document belongs to one rank. Rows without a
    text are skipped.
    """

    place: dict[str, Any] | None
    """Makes a new `StreamDocuments` begin with the document that was returned last; None before the first."""

    def __init__(
        self,
        open_rows: Callable[[], Any],
        what: str,
        text_field: str,
        part: RankPart = RankPart(),
        left_out: Collection[bytes] = (),
        place: dict[str, Any] | None = None,
    ) -> None:
        """Open the rows.

        Args:
            open_rows: Returns a new `datasets.IterableDataset`.
            what: Name of the data, for messages.
            text_field: Field of a row with the text.
            part: Documents of this rank.
            left_out: Digests of documents that are skipped.
            place: Place to begin at.
        """
        self._what, self._field, self._part, self._left_out = what, text_field, part, left_out
        self.place = None
        self._loaded = place["rows"] if place else None
        self._number = place["number"] if place else 0
        self._rows = asked(what, lambda: self._opened(open_rows()))
        self._next: Generator[dict[str, Any]] = iter(self._rows)
        # Without it the generator is closed during interpreter shutdown, and the package prints an error.
        close_at_exit(self._next)

    def _opened(self, rows: Any) -> Any:
        columns = rows.column_names
        if columns is not None:
            if self._field not in columns:
                raise UserError(
                    f"{self._what} has no field {self._field!r}; fields: {', '.join(map(repr, columns))} "
                    "(dataset.text_field, in Python text_field)",
                    code="text-field-missing",
                )
            rows = rows.select_columns([self._field])
        part = self._part
        self._by_number = rows.num_shards < part.world_size
        if part.world_size > 1 and not self._by_number:
            rows = rows.shard(num_shards=part.world_size, index=part.rank, contiguous=False)
        if part.key:
            rows.set_epoch(part.key)  # the files in an order of this epoch; no buffer of the package's own
        if self._loaded is not None:
            rows.load_state_dict(self._loaded)
        return rows

    def next(self) -> str | None:
        """Return the next document; None after the last.

        Raises:
            UserError: it is not a text, is too long, or cannot be read.
        """
        while True:
            before, number = self._state(), self._number
            try:
                row = asked(self._what, lambda: next(self._next))
            except StopIteration:
                return None
            self._check_state(before)
            self._number += 1
            if self._by_number and number % self._part.world_size != self._part.rank:
                continue
            text = self._text(row)
            if text and not (self._left_out and digest(text) in self._left_out):
                self.place = {"rows": before, "number": number}
                return text.decode()

    def _state(self) -> Any:
        """Return the state of the package; the one that was loaded until the first row is read."""
        return self._loaded if self._loaded is not None else self._rows.state_dict()

    def _check_state(self, before: Any) -> None:
        """Refuse versions of `datasets` that keep the state that was loaded (its issue 8308).

        They would start from the beginning if they were resumed a second time.
        """
        if self._loaded is None:
            return
        import datasets

        self._loaded = None
        if self._rows.state_dict() == before:
            raise UserError(
                f"{self._what}: datasets {datasets.__version__} loses its place in a stream that was "
                "resumed. pip install --upgrade datasets (5.0.0 is such a version, 5.2.0 is not)",
                code="datasets-too-old",
            )

    def _text(self, row: dict[str, Any]) -> bytes:
        if row.get(self._field, "") is None:
            return b""
        try:
            text = text_of(row, self._field)
        except BadLine as why:
            raise UserError(
                f"{self._what}: document {self._number - 1:,} {why}", code="document-not-text"
            ) from None
        if len(text) > LONGEST_BYTES:
            raise UserError(
                f"{self._what}: document {self._number - 1:,} has {len(text):,} bytes; expected at most "
                f"{LONGEST_BYTES:,}. Tokenize it to a set instead (python -m data_loading materialize)",
                code="document-too-long",
            )
        return text


def digest(text: bytes) -> bytes:
    """Return the identity of a text."""
    return hashlib.blake2b(text, digest_size=_DIGEST_BYTES).digest()
