"""Files of tables, parquet and Arrow streams: one document a row, the text in one column."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from data_loading.pretokenizer.sources.json_lines import IDS_FIELDS, TEXT_FIELD, holds_ids
from data_loading.pretokenizer.sources.table_parts import ArrowParts, ParquetParts, Parts, columns_of, is_text
from data_loading.text_io.byte_files import ByteFile
from data_loading.text_io.chunks import Chunk, Mark
from data_loading.text_io.single_stream import check_errors
from data_loading.text_io.size_limits import LONGEST_BYTES, TooLong, too_long
from data_loading.text_io.source import Compare, Pieces, Sample, Source
from experiment_utils.errors import UserError
from experiment_utils.extras import check_installed

PARQUET_MAGIC = b"PAR1"


class TableFile(Source):
    """A parquet file, or one in Arrow's stream format (`save_to_disk` of `datasets` writes it).

    Rows without a value are left out and counted. Memory: a batch of rows, or the longest one. A page of a
    parquet file (1 MB as most programs write them) is decompressed whole.

    Args:
        text_field: Column of the text; `a.b` for field b of the struct a.
        longest_bytes: A longer cell is an error.
    """

    can_continue = True

    def __init__(
        self,
        path: Path,
        text_field: str = TEXT_FIELD,
        errors: str = "strict",
        longest_bytes: int = LONGEST_BYTES,
    ) -> None:
        check_errors(errors)
        self.path, self.text_field, self.longest_bytes = path, text_field, longest_bytes
        self._file = ByteFile(path)
        self.what = self.argument = str(path)
        self.options = {"errors": errors, "text_field": text_field}
        self.total_bytes: int = self._file.total_bytes or 0
        self.done_bytes = self._nulls = 0
        check_installed("pyarrow", "parquet", f"reading {path}")
        is_parquet = self._file.head.startswith(PARQUET_MAGIC) or path.suffix == ".parquet"
        self._kind: type[Parts] = ParquetParts if is_parquet else ArrowParts
        parts = self._open()
        self._check_column(columns_of(parts.schema), parts.schema.names)
        self._rows = max(1, parts.rows)
        # Inside of a part, a row can be found only by reading those before it.
        self.sample_starts = [self.total_bytes * before // self._rows for before in parts.rows_before] or [0]

    def _check_column(self, columns: dict[str, Any], outer: list[str]) -> None:
        """Raise UserError unless the column exists once and holds strings. outer: names of all columns."""
        kind = columns.get(self.text_field)
        ids = [name for name in IDS_FIELDS if "list<" in str(columns.get(name))]
        texts = ", ".join(repr(name) for name in columns if is_text(columns[name])) or "none"
        if kind is None and ids:
            called = "parquet" if self._kind is ParquetParts else "arrow"
            raise UserError(f"{self.path} {holds_ids(ids[0], called)}", code="column-holds-ids")
        if kind is None:
            names = ", ".join(map(repr, columns)) or "none"
            raise UserError(
                f"{self.path} has no column {self.text_field!r}; columns: {names} (--text-field NAME)",
                code="column-missing",
            )
        if (count := outer.count(self.text_field)) > 1:
            raise UserError(
                f"{self.path} has {count} columns named {self.text_field!r}, expected one. "
                "Rename one of them",
                code="column-twice",
            )
        if not is_text(kind):
            raise UserError(
                f"{self.path}: column {self.text_field!r} holds {kind}, expected strings; columns that do: "
                f"{texts} (--text-field NAME)",
                code="column-not-text",
            )

    def chunks(self, start: Mark | None = None, pieces: Pieces | None = None) -> Iterator[Chunk]:
        """Marks hold the part of the file (row group or batch), the row in it and in the whole file."""
        parts = self._open()
        first, first_row, row = (start["part"], start["in_part"], start["row"]) if start else (0, 0, 0)
        self._nulls = start["nulls"] if start else 0
        for part in range(first, parts.count):
            in_part = 0
            for values, done in self._batches(parts, part):
                self.done_bytes = min(done, self.total_bytes)
                skipped = min(len(values), max(0, first_row - in_part))
                in_part += skipped
                for value in values[skipped:]:
                    mark = {"part": part, "in_part": in_part, "row": row, "nulls": self._nulls}
                    if value:
                        yield Chunk(value, f"{self.path}, row {row:,}", 0, True, mark)
                    self._nulls += value is None
                    in_part, row = in_part + 1, row + 1
            first_row = 0
        self.done_bytes = self.total_bytes

    def _open(self) -> Parts:
        return next(self._checked(iter([None]), lambda _: self._kind(self.path, self.text_field)))

    def _checked(
        self, values: Iterator[Any], then: Callable[[Any], Any] = lambda value: value
    ) -> Iterator[Any]:
        """The values. An error of pyarrow between them becomes a UserError about this file."""
        import pyarrow as pa

        while True:
            try:
                value = then(next(values))
            except StopIteration:
                return
            except (pa.ArrowException, OSError) as error:
                raise UserError(
                    f"{self.path} cannot be read as {self._kind.kind}: it is damaged or cut short "
                    f"({str(error).splitlines()[0]}). Copy or download it again",
                    code="table-damaged",
                ) from None
            yield value

    def _batches(self, parts: Parts, part: int) -> Iterator[tuple[list[bytes | None], int]]:
        """Yield the values of a part. Raises UserError also for a cell that is too long."""
        row = parts.rows_before[part]
        try:
            for values, done in self._checked(parts.read(part, self.longest_bytes)):
                yield values, done
                row += len(values)
        except TooLong as cell:
            where = f"{self.path}: row {row + cell.place:,}"
            raise too_long(where, self.longest_bytes, cell.size_bytes) from None

    def sample(self, start: int, length: int) -> Sample:
        """Texts from the part at `start` on. Their size on disk is estimated from the number of rows."""
        parts, texts, rows, size = self._open(), list[bytes](), 0, 0
        part = bisect_right(self.sample_starts or [0], start) - 1
        while part < parts.count and size < length:
            for values, _ in self._batches(parts, part):
                texts += filter(None, values)
                rows, size = rows + len(values), sum(map(len, texts))
                if size >= length:
                    break
            part += 1
        return Sample(texts, self.total_bytes * rows / self._rows, len(texts))

    def state(self) -> Any:
        return self._file.state()

    def facts(self) -> list[dict[str, Any]]:
        """Facts of the whole file, however much of it was read."""
        for _ in self._file.read():
            pass
        return [{**self._file.facts(), "nulls": self._nulls}]

    def differs(self, facts: list[dict[str, Any]], compare: Compare) -> str | None:
        return compare(self.path, facts[0] if len(facts) == 1 else {})
