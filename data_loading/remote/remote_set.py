"""A token set in a store: what a run sees of it, while its shards come and go on the disk."""

from __future__ import annotations

import hashlib
import os
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from data_loading.cut_documents import refuse_cut
from data_loading.npy import HEADER_BYTES, open_npy
from data_loading.remote.address import Address, parse
from data_loading.remote.cache import Cache, NoRoom
from data_loading.remote.download import PART_BYTES, WORKERS
from data_loading.remote.fetcher import Fetcher
from data_loading.remote.files import fetch_tokenizer, manifest_or_advice
from data_loading.remote.items import Item, whole
from data_loading.remote.retry import FIRST_PATIENCE_S
from data_loading.remote.store import open_store
from data_loading.set_files import MANIFEST
from data_loading.shards import parts_of
from data_loading.tokens import Tokens
from data_loading.values import LazyValues
from experiment_utils.errors import UserError

if TYPE_CHECKING:
    from data_loading.readers.choose import ReaderOptions
    from data_loading.readers.reader import Reader


_STARTS_KEPT = 8
_DISK_BLOCK = 4096
_SPARE_BLOCKS = 8
"""Folders, and what a download notes."""


def _on_disk(size: int) -> int:
    return -(-size // _DISK_BLOCK) * _DISK_BLOCK


def default_cache() -> Path:
    """Where fetched files lie where nothing else is said."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "highwater"


@dataclass(frozen=True)
class RemoteOptions:
    """cache: None: `default_cache`. budget_bytes: of all in it; None: everything is kept. workers: requests
    at a time. part_bytes: of each.
    """

    cache: Path | None = None
    budget_bytes: int | None = None
    workers: int = WORKERS
    part_bytes: int = PART_BYTES

    def __post_init__(self) -> None:
        """Raises UserError: a number that is none, or below 1."""
        for name in ("budget_bytes", "workers", "part_bytes"):
            value = getattr(self, name)
            if value is None and name == "budget_bytes":
                continue
            if type(value) is not int or value < 1:
                raise UserError(
                    f"{name} {value!r}: expected a whole number, at least 1", code="count-invalid"
                )


class RemoteSet(Tokens):
    """Tokens of s3://, r2:// or https://. Nothing but its manifest and tokenizer is here when it is opened.

    folder: of this set in the cache. parts: its token files. own_bytes: of manifest and tokenizer there.
    """

    def __init__(
        self, address: Address, manifest: dict[str, Any], folder: Path, options: RemoteOptions
    ) -> None:
        self.address, self.manifest, self.folder, self.options = address, manifest, folder, options
        self.parts = parts_of(address.files, manifest)
        self.dtype = np.dtype(manifest["dtype"])
        self.vocab_size, self.fingerprint = manifest["tokenizer"]["vocab_size"], manifest["fingerprint"]
        self.tokens, self.documents = RemoteTokens(self), RemoteStarts(self)
        self.own_bytes = 0
        self._pinned: dict[int, int] = {}
        self._rotating: set[int] = set()
        self._owners = 0
        self._fetchers: dict[str, Fetcher] = {}

    @property
    def name(self) -> str:
        return self.address.uri

    @property
    def n_tokens(self) -> int:
        return int(self.manifest["tokens"])

    @property
    def eot_id(self) -> int | None:
        return self.manifest["tokenizer"]["eot_id"]

    @property
    def tokenizer_name(self) -> str:
        return str(self.manifest["tokenizer"]["name"])

    @property
    def file_bytes(self) -> int:
        return len(self.parts) * HEADER_BYTES + self.n_tokens * self.dtype.itemsize

    @property
    def held_out(self) -> tuple[range, ...] | None:
        made = self.manifest.get("val")
        return tuple(range(*part) for part in made["ranges"]) if made else None

    @property
    def sources(self) -> list[tuple[int, int]]:
        sources = self.manifest["sources"]
        if not all("tokens" in source and "documents" in source for source in sources):
            return []
        return [(source["tokens"], source["documents"]) for source in sources]

    @property
    def file_borders(self) -> list[int]:
        return [*(part.first_token for part in self.parts), self.n_tokens]

    @property
    def block_tokens(self) -> int:
        """Of the blocks that have checksums."""
        return self.manifest["checksums"]["bytes"] // self.dtype.itemsize

    def open_reader(self, options: ReaderOptions) -> tuple[Reader, str]:
        from data_loading.remote.pinned import PinnedReader
        from data_loading.remote.rotation import RotatingReader

        if options.reader == "memory":
            raise UserError(
                f"{self.name}: reader=memory holds a whole set, and of this one shards come and go. Take "
                "reader=auto, mmap or pread",
                code="reader-memory-of-remote",
            )
        plan = options.plan
        bound = "all of it is kept" if self.options.budget_bytes is None else (
            f"at most {self.options.budget_bytes / 1e6:,.0f} MB on the disk"
        )  # fmt: skip
        if plan is None or plan.is_held_out or plan.is_everywhere:
            ranges = plan.ranges if plan is not None and plan.is_held_out else (range(self.n_tokens),)
            reader: Reader = PinnedReader(self, ranges, options)
            return reader, f"fetched into {self.folder} before it is read, and kept ({bound})"
        return RotatingReader(
            self, plan, options
        ), f"shards fetched into {self.folder} ahead of use ({bound})"

    def rotate(self, reader: Reader) -> int:
        """A number for a reader whose shards come and go. Raises UserError: no room in the budget."""
        owner = self.new_owner()
        self._rotating.add(owner)
        weakref.finalize(reader, self._drop, owner)
        self.check_room()
        return owner

    def pin(self, reader: Reader, items: list[Item]) -> int:
        """A number for a reader whose files stay while it does. Raises UserError: no room in the budget."""
        owner, budget = self.new_owner(), self.options.budget_bytes
        size = self._size_of(items)
        self._pinned[owner] = size
        weakref.finalize(reader, self._drop, owner)
        every = [whole(part, number) for number, part in enumerate(self.parts)]
        if items == every and budget is not None and size + self.small_bytes > budget:
            raise UserError(
                f"{self.name}: this order reads from all of the set at a time, and its {size:,} bytes with "
                f"{self.small_bytes:,} of small files are more than dataset.disk_budget={budget:,}. Ask for "
                "dataset.order=shuffled_shards (or sequential), which takes one shard after the other",
                code="disk-budget-for-order",
            )
        self.check_room()
        return owner

    def _drop(self, owner: int) -> None:
        self._pinned.pop(owner, None)
        self._rotating.discard(owner)
        for fetcher in self._fetchers.values():
            fetcher.drop(owner)

    @property
    def small_bytes(self) -> int:
        """What the folder holds besides token files at most: manifest, tokenizer, first tokens of shards."""
        return self.own_bytes + _DISK_BLOCK * (len(self.parts) + _SPARE_BLOCKS)

    def check_held_out(self, ranges: Sequence[Sequence[range]]) -> None:
        """Before a run begins. ranges: of each split that stays.

        Raises:
            UserError: the budget is too small for these beside the shards that come and go.
        """
        from data_loading.remote.pinned import blocks_of

        self.check_room(sum(self._size_of(blocks_of(self, tokens)[0]) for tokens in ranges))

    def _size_of(self, items: list[Item]) -> int:
        """On the disk."""
        return sum(_on_disk(item.piece(self.parts, self.manifest).file_bytes) for item in items)

    def check_room(self, more: int = 0) -> None:
        """more: bytes that are to stay besides.

        Raises:
            UserError: the budget is smaller than what must be here at a time; tells how much.
        """
        largest = _on_disk(max(part.tokens for part in self.parts) * self.dtype.itemsize + HEADER_BYTES)
        rotates = self._rotating or not self._pinned
        shards = min(max(2, len(self._rotating)), len(self.parts)) if rotates else 0
        pinned = sum(self._pinned.values()) + more
        needed, budget = shards * largest + pinned + self.small_bytes, self.options.budget_bytes
        if budget is not None and needed > budget:
            raise UserError(
                f"dataset.disk_budget={budget:,} bytes is too small for {self.name}: {needed:,} bytes are "
                f"needed, for {shards} shards of up to {largest:,}, {pinned:,} that stay (val, test), and "
                f"{self.small_bytes:,} of small files. Set dataset.disk_budget={-(-needed // 1024)}K or more",
                code="disk-budget-too-small",
            )

    def fetcher(self, verify: str = "set") -> Fetcher:
        """What fetches for this process."""
        if verify not in self._fetchers:
            self._fetchers[verify] = Fetcher(
                {
                    "uri": self.address.uri,
                    "folder": str(self.folder),
                    "budget_bytes": self.options.budget_bytes,
                    "workers": self.options.workers,
                    "part_bytes": self.options.part_bytes,
                    "verify": verify,
                }
            )
        return self._fetchers[verify]

    def new_owner(self) -> int:
        """A number for one that wants files."""
        self._owners += 1
        return self._owners

    def place(self, item: Item) -> Path:
        """Where an item lies when it is here."""
        return item.target(self.folder, self.parts, self.manifest)

    def read_once(self, item: Item) -> np.ndarray:
        """A copy of what a file holds, which is fetched if it is not here."""
        owner, fetcher = self.new_owner(), self.fetcher()
        fetcher.want(owner, [item], [])
        try:
            fetcher.wait_for([item], f"{self.place(item).name} of {self.name}")
            return np.array(open_npy(self.place(item), may_be_empty=True))
        finally:
            fetcher.want(owner, [], [])

    def close(self) -> None:
        """End the process that fetches. What it has fetched stays."""
        while self._fetchers:
            self._fetchers.popitem()[1].close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_fetchers": {}}


class RemoteTokens(LazyValues):
    """The tokens in slices, for those who look at a few; a run reads by its reader."""

    def __init__(self, of: RemoteSet) -> None:
        self._of, self.dtype = of, of.dtype

    def __len__(self) -> int:
        return self._of.n_tokens

    def _slice(self, start: int, stop: int) -> np.ndarray:
        found, size = [np.empty(0, self.dtype)], self._of.block_tokens
        for number, part in enumerate(self._of.parts):
            low, high = max(start - part.first_token, 0), min(stop - part.first_token, part.tokens)
            for block in range(low // size, -(-high // size)) if low < high else ():
                tokens = self._of.read_once(Item("tokens", number, block, block + 1))
                found.append(tokens[max(low - block * size, 0) : high - block * size])
        return np.concatenate(found)


class RemoteStarts(LazyValues):
    """Document starts; those of a token file are fetched when they are looked at."""

    def __init__(self, of: RemoteSet) -> None:
        self._of, self.dtype = of, np.dtype("<u8")
        self._first = np.cumsum([0, *(part.documents for part in of.parts)])
        self._borders = np.array(of.file_borders)
        self._kept: dict[int, np.ndarray] = {}

    def __len__(self) -> int:
        return int(self._first[-1])

    def _of_part(self, number: int) -> np.ndarray:
        if number not in self._kept:
            if len(self._kept) >= _STARTS_KEPT:
                del self._kept[next(iter(self._kept))]
            first = np.asarray(self._of.parts[number].first_token, self.dtype)
            self._kept[number] = self._of.read_once(Item("documents", number)).astype(self.dtype) + first
        return self._kept[number]

    def _slice(self, start: int, stop: int) -> np.ndarray:
        return self.take(np.arange(start, stop))

    def take(self, places: np.ndarray) -> np.ndarray:
        found = np.empty(len(places), self.dtype)
        parts = np.searchsorted(self._first, places, side="right") - 1
        for part in np.unique(parts):
            here = parts == part
            found[here] = self._of_part(int(part))[places[here] - self._first[part]]
        return found

    def search(self, wanted: np.ndarray) -> np.ndarray:
        """Only the parts that the wanted tokens lie in are looked at."""
        parts = np.clip(np.searchsorted(self._borders, wanted, side="right") - 1, 0, len(self._of.parts) - 1)
        found = np.empty(len(wanted), np.int64)
        for part in np.unique(parts):
            here = parts == part
            starts = self._of_part(int(part))
            found[here] = self._first[part] + np.searchsorted(
                starts, np.maximum(wanted[here], 0).astype(self.dtype)
            )
        return found

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_kept": {}}


def open_remote(uri: str, options: RemoteOptions) -> RemoteSet:
    """The set at this address; its manifest and tokenizer are fetched.

    Raises:
        UserError: no set there, not allowed, not answered, damaged, or no room on the disk; names which.
    """
    address = parse(uri)
    store = open_store(address, FIRST_PATIENCE_S)
    data, manifest = manifest_or_advice(store)
    root = (options.cache or default_cache()).expanduser().absolute()
    name = address.files.stem.name or address.root
    folder = root / f"{name}.{hashlib.sha256(data).hexdigest()[:16]}"
    is_new = not (folder / MANIFEST).exists()
    files = fetch_tokenizer(store, manifest) if is_new else {}
    found = RemoteSet(address, manifest, folder, replace(options, cache=root))
    found.own_bytes = _on_disk(len(data)) + sum(_on_disk(len(content)) for content in files.values())
    if not is_new:
        found.own_bytes += sum(_on_disk(path.stat().st_size) for path in (folder / "tokenizer").glob("*"))
    found.check_room()
    cache = Cache(root, options.budget_bytes)
    try:
        for file, content in files.items():
            cache.write(folder / "tokenizer" / file, content)
        if is_new:
            cache.write(folder / MANIFEST, data)
    except NoRoom as error:
        raise UserError(
            f"{root}: dataset.disk_budget={options.budget_bytes:,} bytes has no room for {uri}: "
            f"{error.held:,} are in use by other sets. Set a larger one, or another dataset.cache",
            code="disk-budget-in-use",
        ) from None
    assert found.documents is not None
    refuse_cut(uri, manifest, folder / "tokenizer", found.documents)
    return found


def open_uri(uri: str, vocab_size: int | None = None) -> RemoteSet:
    """As `open_remote`, with the usual options. vocab_size: not used, the manifest says it."""
    return open_remote(uri, RemoteOptions())
