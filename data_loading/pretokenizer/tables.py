"""Files of tables, parquet and Arrow streams: one document a row, the text in one column."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any, Protocol

from conf import UserError
from data_loading.checked import text_difference
from data_loading.pretokenizer.blocks import Chunk, Mark
from data_loading.pretokenizer.byte_files import READ_BYTES, SAMPLE_BYTES, ByteFile
from data_loading.pretokenizer.json_lines import TEXT_FIELD
from data_loading.pretokenizer.longest import LONGEST_BYTES, CellTooLong, too_long
from data_loading.pretokenizer.source import Pieces, Sample
from data_loading.pretokenizer.texts import check_errors
from data_loading.set_files import SetFiles

PARQUET_MAGIC = b"PAR1"
BATCH_BYTES = 4 << 20
"""Text that is taken out of a file at a time."""
_MOST_ROWS = 1024


@dataclass
class TableFile:
    """A parquet file, or one in Arrow's stream format (what `datasets` writes with save_to_disk).

    Rows without a value are left out and counted. Memory: a batch of rows, or the longest one, which may
    have `longest_bytes`.
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
        try:
            import pyarrow  # noqa: F401
        except ImportError:
            raise UserError(f"reading {self.path} needs the package pyarrow: pip install pyarrow") from None
        is_parquet = self._file.head.startswith(PARQUET_MAGIC) or self.path.suffix == ".parquet"
        self._parts: type[_Parts] = _ParquetParts if is_parquet else _ArrowParts
        self._check_column(self._open().schema)

    def _check_column(self, schema: Any) -> None:

        if self.text_field not in schema.names:
            names = ", ".join(map(repr, schema.names)) or "none"
            raise UserError(
                f"{self.path} has no column {self.text_field!r}; columns: {names} (--text-field NAME)"
            )
        kind = schema.field(self.text_field).type
        if not _is_text(kind):
            texts = [column.name for column in schema if _is_text(column.type)]
            raise UserError(
                f"{self.path}: column {self.text_field!r} holds {kind}, expected strings; columns that do: "
                f"{', '.join(map(repr, texts)) or 'none'} (--text-field NAME)"
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
        asked, row = self._range(parts), self._rows(parts).start
        first, first_row, row = (
            (start["part"], start["in_part"], start["row"]) if start else (asked.start, 0, row)
        )
        self._nulls, before = start["nulls"] if start else 0, self._bytes_before(parts)
        for part in range(first, asked.stop):
            in_part = 0
            for values, done in self._batches(parts, part):
                self.done_bytes = max(0, min(done - before, self.total_bytes))
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

    @property
    def part_starts(self) -> list[int]:
        """About which byte of the file each of its parts begins with."""
        return self._starts(self._open())

    @property
    def file(self) -> ByteFile:
        return self._file

    def _starts(self, parts: _Parts) -> list[int]:
        return [self._file.total_bytes * before // max(1, parts.rows) for before in parts.rows_before]

    def _range(self, parts: _Parts) -> range:
        """The parts that are read."""
        return range(parts.count)

    def _rows(self, parts: _Parts) -> range:
        """The rows in them."""
        borders, asked = [*parts.rows_before, parts.rows], self._range(parts)
        return range(borders[asked.start], borders[asked.stop])

    def _bytes_before(self, parts: _Parts) -> int:
        return self._file.total_bytes * self._rows(parts).start // max(1, parts.rows)

    def _open(self) -> _Parts:
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
                    f"({str(error).splitlines()[0]}). Copy or download it again"
                ) from None
            yield value

    def _batches(self, parts: _Parts, part: int) -> Iterator[tuple[list[bytes | None], int]]:
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
        asked = self._range(parts)
        for part in sorted({asked[0], asked[len(asked) // 2], asked[-1]}) if asked else ():
            sample = b""
            for values, _ in self._batches(parts, part):
                sample += b"".join(filter(None, values))
                if len(sample) >= SAMPLE_BYTES:
                    break
            found.append(sample[:SAMPLE_BYTES].decode("utf-8", "ignore").encode())
        return found

    @property
    def known_documents(self) -> int:
        return len(self._rows(self._open()))

    @property
    def sample_starts(self) -> Sequence[int]:
        """Its parts: inside of one, a row can be found only by reading those before it."""
        parts = self._open()
        starts, asked = self._starts(parts), self._range(parts)
        return [starts[part] - starts[asked.start] for part in asked] or [0]

    def sample(self, start: int, length: int) -> Sample:
        """Its size is counted by rows."""
        parts, texts, rows, size = self._open(), list[bytes](), 0, 0
        asked = self._range(parts)
        part = asked.start + bisect_right(self.sample_starts, start) - 1
        while part < asked.stop and size < length:
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


class _Parts(Protocol):
    """Row groups or batches of a file. kind: for messages. schema: pyarrow's. rows: in all of them."""

    kind: str
    count: int
    rows: int
    rows_before: list[int]
    schema: Any

    def __init__(self, path: Path, column: str) -> None: ...

    def read(self, part: int, longest_bytes: int) -> Iterator[tuple[list[bytes | None], int]]:
        """(values of the column, about how many bytes of the file are done). Raises CellTooLong."""
        ...


class _ParquetParts:
    kind = "parquet"

    def __init__(self, path: Path, column: str) -> None:
        import pyarrow.parquet as pq

        # Buffered, a column is read page by page; a row group may be as large as the file.
        self._file = pq.ParquetFile(path, pre_buffer=False, buffer_size=READ_BYTES)
        self._column, self._bytes = column, path.stat().st_size
        self.schema, self.count = self._file.schema_arrow, self._file.num_row_groups
        groups = [self._file.metadata.row_group(number).num_rows for number in range(self.count)]
        self.rows, self.rows_before = sum(groups), [0, *accumulate(groups)][:-1]

    def read(self, part: int, longest_bytes: int) -> Iterator[tuple[list[bytes | None], int]]:
        metadata = self._file.metadata
        before = sum(metadata.row_group(number).num_rows for number in range(part))
        group = metadata.row_group(part)
        a_row = max(1, group.total_byte_size // max(1, group.num_rows))
        rows = max(1, min(_MOST_ROWS, BATCH_BYTES // a_row))
        for batch in self._file.iter_batches(rows, [part], [self._column], use_threads=False):
            before += len(batch)
            yield _values(batch.column(0), longest_bytes), self._bytes * before // max(1, metadata.num_rows)


class _ArrowParts:
    """Batches of a stream: all of them lie in one mapped file."""

    kind = "an Arrow stream"

    def __init__(self, path: Path, column: str) -> None:
        import pyarrow as pa

        self._map = pa.memory_map(str(path))
        reader = pa.ipc.open_stream(self._map)
        self.schema, self._column = reader.schema, column
        self._batches, self._ends = [], []
        for batch in reader:
            self._batches.append(batch)
            self._ends.append(self._map.tell())
        self.count = len(self._batches)
        lengths = [len(batch) for batch in self._batches]
        self.rows, self.rows_before = sum(lengths), [0, *accumulate(lengths)][:-1]

    def read(self, part: int, longest_bytes: int) -> Iterator[tuple[list[bytes | None], int]]:
        column = self._batches[part].column(self._column)
        rows = max(1, min(_MOST_ROWS, BATCH_BYTES * len(column) // max(1, column.nbytes)))
        for start in range(0, len(column), rows):
            yield _values(column.slice(start, rows), longest_bytes), self._ends[part]


def _is_text(kind: Any) -> bool:
    """kind: pyarrow's type of a column."""
    import pyarrow as pa

    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def _values(column: Any, longest_bytes: int) -> list[bytes | None]:
    """Raises CellTooLong before a long one is copied."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    column = column.cast(pa.large_string())
    sizes = pc.binary_length(column)
    longest = pc.max(sizes).as_py() or 0
    if longest > longest_bytes:
        raise CellTooLong(pc.index(sizes, longest).as_py(), longest)
    return column.cast(pa.large_binary()).to_pylist()
