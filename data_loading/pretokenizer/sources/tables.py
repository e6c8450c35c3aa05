"""Files of tables, parquet and Arrow streams: one document a row, the text in one column."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from data_loading.pretokenizer.sources.json_lines import TEXT_FIELD, holds_ids
from data_loading.pretokenizer.sources.table_parts import ArrowParts, ParquetParts, Parts, is_text
from data_loading.text_io.byte_files import SAMPLE_BYTES, ByteFile
from data_loading.text_io.chunks import Chunk, Mark
from data_loading.text_io.size_limits import LONGEST_BYTES, CellTooLong, too_long
from data_loading.text_io.source import Pieces, Sample
from data_loading.text_io.text_difference import text_difference
from data_loading.text_io.text_file import check_errors
from data_loading.tokens.set_files import SetFiles
from experiment_utils.errors import UserError
from experiment_utils.extras import check_installed

PARQUET_MAGIC = b"PAR1"
_IDS = ("input_ids", "token_ids", "tokens", "ids")


@dataclass
class TableFile:
    """A parquet file, or one in Arrow's stream format (what `datasets` writes with save_to_disk).

    Rows without a value are left out and counted. Memory: a batch of rows, or the longest one, which may
    have `longest_bytes`; a page of a parquet file (1 MB as most programs write them) is decompressed whole.
    """

    path: Path
    text_field: str = TEXT_FIELD
    errors: str = "strict"
    longest_bytes: int = LONGEST_BYTES
    total_bytes: int = field(init=False)
    done_bytes: int = field(init=False, default=0)
    can_continue: bool = field(init=False, default=True)
    options: dict[str, Any] = field(init=False)
    _nulls: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        check_errors(self.errors)
        self._file = ByteFile(self.path)
        self.total_bytes = self._file.total_bytes
        self.options = {"errors": self.errors, "text_field": self.text_field}
        check_installed("pyarrow", "parquet", f"reading {self.path}")
        is_parquet = self._file.head.startswith(PARQUET_MAGIC) or self.path.suffix == ".parquet"
        self._parts: type[Parts] = ParquetParts if is_parquet else ArrowParts
        self._check_column(self._open().schema)

    def _check_column(self, schema: Any) -> None:

        ids = [name for name in _IDS if name in schema.names and "list<" in str(schema.field(name).type)]
        if self.text_field not in schema.names and ids:
            kind = "parquet" if self._parts is ParquetParts else "arrow"
            raise UserError(f"{self.path} {holds_ids(ids[0], kind)}", code="column-holds-ids")
        if self.text_field not in schema.names:
            names = ", ".join(map(repr, schema.names)) or "none"
            raise UserError(
                f"{self.path} has no column {self.text_field!r}; columns: {names} (--text-field NAME)",
                code="column-missing",
            )
        kind = schema.field(self.text_field).type
        if not is_text(kind):
            texts = [column.name for column in schema if is_text(column.type)]
            raise UserError(
                f"{self.path}: column {self.text_field!r} holds {kind}, expected strings; columns that do: "
                f"{', '.join(map(repr, texts)) or 'none'} (--text-field NAME)",
                code="column-not-text",
            )

    @property
    def what(self) -> str:
        return str(self.path)

    @property
    def argument(self) -> str:
        return str(self.path)

    def chunks(self, start: Mark | None = None, pieces: Pieces | None = None) -> Iterator[Chunk]:
        """Marks hold the part of the file (row group or batch), the row there and in the whole file."""
        parts = self._open()
        first, first_row, row = (start["part"], start["in_part"], start["row"]) if start else (0, 0, 0)
        self._nulls = start["nulls"] if start else 0
        for part in range(first, parts.count):
            in_part = 0
            for values, done in self._batches(parts, part):
                self.done_bytes = min(done, self.total_bytes)
                passed_over = min(len(values), max(0, first_row - in_part))
                in_part += passed_over
                for value in values[passed_over:]:
                    mark = {"part": part, "in_part": in_part, "row": row, "nulls": self._nulls}
                    if value:
                        yield Chunk(value, f"{self.path}, row {row:,}", 0, True, mark)
                    self._nulls += value is None
                    in_part, row = in_part + 1, row + 1
            first_row = 0
        self.done_bytes = self.total_bytes

    def _open(self) -> Parts:
        return next(self._told(iter([None]), lambda _: self._parts(self.path, self.text_field)))

    def _told(self, values: Iterator[Any], then: Callable[[Any], Any] = lambda value: value) -> Iterator[Any]:
        """The values; what goes wrong between them is told of this file."""
        import pyarrow as pa

        while True:
            try:
                value = then(next(values))
            except StopIteration:
                return
            except (pa.ArrowException, OSError) as error:
                raise UserError(
                    f"{self.path} cannot be read as {self._parts.kind}: it is damaged or cut short "
                    f"({str(error).splitlines()[0]}). Copy or download it again",
                    code="table-damaged",
                ) from None
            yield value

    def _batches(self, parts: Parts, part: int) -> Iterator[tuple[list[bytes | None], int]]:
        """What a part holds. Raises UserError also for a cell that is too long."""
        row = parts.rows_before[part]
        try:
            for values, done in self._told(parts.read(part, self.longest_bytes)):
                yield values, done
                row += len(values)
        except CellTooLong as cell:
            where = f"{self.path}: row {row + cell.row:,}"
            raise too_long(where, self.longest_bytes, cell.size) from None

    def samples(self) -> list[bytes]:
        """Of the first, the middle and the last part."""
        parts, found = self._open(), []
        for part in sorted({0, parts.count // 2, parts.count - 1}) if parts.count else ():
            sample = b""
            for values, _ in self._batches(parts, part):
                sample += b"".join(filter(None, values))
                if len(sample) >= SAMPLE_BYTES:
                    break
            found.append(sample[:SAMPLE_BYTES].decode("utf-8", "ignore").encode())
        return found

    @property
    def known_documents(self) -> int:
        return self._open().rows

    @property
    def sample_starts(self) -> Sequence[int]:
        """Its parts: inside of one, a row can be found only by reading those before it."""
        parts = self._open()
        return [self._file.total_bytes * before // max(1, parts.rows) for before in parts.rows_before] or [0]

    def sample(self, start: int, length: int) -> Sample:
        """Its size is counted by rows."""
        parts, texts, rows, size = self._open(), list[bytes](), 0, 0
        part = bisect_right(self.sample_starts, start) - 1
        while part < parts.count and size < length:
            for values, _ in self._batches(parts, part):
                texts += filter(None, values)
                rows, size = rows + len(values), sum(map(len, texts))
                if size >= length:
                    break
            part += 1
        return Sample(texts, self._file.total_bytes * rows / max(1, parts.rows), len(texts))

    def state(self) -> Any:
        return self._file.state()

    def facts(self) -> list[dict[str, Any]]:
        """Of the whole file, however much of it was read."""
        for _ in self._file.read():
            pass
        return [{**self._file.facts(), "nulls": self._nulls}]

    def differs(self, facts: list[dict[str, Any]], files: SetFiles) -> str | None:
        return text_difference(self.path, facts[0] if len(facts) == 1 else {}, files)
