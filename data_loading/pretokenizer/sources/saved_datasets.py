"""Datasets of Hugging Face: folders that save_to_disk made, and hf://ORG/NAME streamed from the hub."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from data_loading.hub.client import HUB, Hub, asked, check_package
from data_loading.hub.hub_uri import PREFIX, parse
from data_loading.pretokenizer.sources.json_lines import BadLine, Tolerance, field_of, text_of
from data_loading.text_io.chunks import Chunk, Mark
from data_loading.text_io.size_limits import LONGEST_BYTES, too_long
from data_loading.text_io.source import Compare, Pieces, Sample, Source
from experiment_utils.errors import UserError

DEFAULT_SPLIT = "train"
_SAMPLE_ROWS = 2000


def saved_files(folder: Path, split: str | None) -> list[Path] | None:
    """The Arrow files of a folder made by save_to_disk, in order; None for another folder.

    Raises:
        UserError: it has no such split, or is damaged.
    """
    splits = _read(folder / "dataset_dict.json")
    if splits is not None:
        wanted = split or DEFAULT_SPLIT
        if wanted not in splits["splits"]:
            raise UserError(
                f"{folder} has no split {wanted!r}; splits: {', '.join(splits['splits'])} (--split NAME)",
                code="saved-split-missing",
            )
        return saved_files(folder / wanted, None)
    state = _read(folder / "state.json")
    if state is None:
        return None
    if split is not None:
        raise UserError(
            f"--split {split}: {folder} is one dataset without splits", code="saved-without-splits"
        )
    return [folder / file["filename"] for file in state["_data_files"]]


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {error}", code="file-unreadable") from None
    wanted = "splits" if path.name == "dataset_dict.json" else "_data_files"
    return found if isinstance(found, dict) and wanted in found else None


class HubDataset(Source):
    """A dataset on the hub, streamed. Its content is known by name, revision, subset and split.

    Rows without a value in the text's field are left out and counted.

    Args:
        text_field: None: as the registry has it, or `text`.
    """

    total_bytes = None
    can_continue = True
    sample_starts = (0,)

    def __init__(
        self,
        argument: str,
        subset: str | None = None,
        split: str = DEFAULT_SPLIT,
        text_field: str | None = None,
        tolerance: Tolerance | None = None,
        longest_bytes: int = LONGEST_BYTES,
        hub: Hub | None = None,
    ) -> None:
        self._name = parse(argument, subset)
        self.argument, self.subset, self.split = argument, self._name.config, split
        self.what = " ".join(filter(None, (argument, self.subset, split)))
        self.tolerance, self.longest_bytes, self.hub = tolerance or Tolerance(), longest_bytes, hub or HUB
        check_package(argument)
        self._revision = asked(self.what, lambda: self.hub.revision(self._name))
        self._field = text_field or self._name.text_field
        self.options = {"errors": "strict", "text_field": self._field}
        self.done_bytes = self._nulls = self._skipped = 0

    def chunks(self, start: Mark | None = None, pieces: Pieces | None = None) -> Iterator[Chunk]:
        begun = start or {"row": 0, "bytes": 0, "nulls": 0, "skipped": 0}
        self.done_bytes, self._nulls, self._skipped = begun["bytes"], begun["nulls"], begun["skipped"]
        self.tolerance.found += self._skipped
        for row, found in enumerate(self._read_rows(begun["row"]), begun["row"]):
            counts = {"bytes": self.done_bytes, "nulls": self._nulls, "skipped": self._skipped}
            text = self._document(found, row)
            self.done_bytes += len(text)
            if text:
                yield Chunk(text, f"{self.what}, row {row:,}", 0, True, {"row": row, **counts})

    def _document(self, found: dict[str, Any], row: int) -> bytes:
        if field_of(found, self._field) is None:
            self._nulls += 1
            return b""
        try:
            text = text_of(found, self._field)
            if len(text) > self.longest_bytes:
                raise too_long(f"{self.what}: row {row:,}", self.longest_bytes, len(text))
            return text
        except BadLine as why:
            self.tolerance.refuse(f"{self.what}: row {row:,} {why}")
            self._skipped += 1
            return b""

    def _read_rows(self, first: int) -> Iterator[dict[str, Any]]:
        def opened() -> Iterator[dict[str, Any]]:
            revision = None if self._name.is_folder else self._revision
            found = self.hub.rows(self._name.repository, self.subset, self.split, revision)
            return iter(found.skip(first) if first else found)  # type: ignore[attr-defined]

        rows = asked(self.what, opened)
        while True:
            try:
                row = asked(self.what, lambda: next(rows))
            except StopIteration:
                return
            yield row

    def sample(self, start: int, length: int) -> Sample:
        """The first rows. Their size is that of their text."""
        texts, size = list[bytes](), 0
        for number, row in enumerate(self._read_rows(0)):
            value = field_of(row, self._field)
            if isinstance(value, str) and value:
                texts.append(value.encode("utf-8", "ignore"))
                size += len(texts[-1])
            if size >= length or number >= _SAMPLE_ROWS:
                break
        return Sample(texts, size, len(texts))

    def state(self) -> Any:
        where = "folder" if self._name.is_folder else f"{PREFIX}{self._name.repository}"
        return [where, self._revision, self.subset, self.split]

    def facts(self) -> list[dict[str, Any]]:
        return [
            {
                "path": self.argument,
                "revision": self._revision,
                "subset": self.subset,
                "split": self.split,
                "bytes": self.done_bytes,
                "content_hash": self._content_hash(),
                "nulls": self._nulls,
                "skipped": self._skipped,
            }
        ]

    def _content_hash(self) -> str:
        return hashlib.sha256(json.dumps(self.state()).encode()).hexdigest()

    def differs(self, facts: list[dict[str, Any]], compare: Compare) -> str | None:
        fact = facts[0] if len(facts) == 1 else {}
        if fact.get("content_hash") == self._content_hash():
            return None
        there = " ".join(str(fact.get(name)) for name in ("path", "subset", "split") if fact.get(name))
        return (
            f"it was made from {there} at revision {str(fact.get('revision'))[:12]}, and this is {self.what} "
            f"at {self._revision[:12]}"
        )
