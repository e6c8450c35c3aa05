"""A stored token set as a run sees it, while its shards come and go on the disk."""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data_loading.remote.address import Address, parse
from data_loading.remote.disk_budget import Cache, NoRoom
from data_loading.remote.download import PART_BYTES, WORKERS, DownloadOptions
from data_loading.remote.metadata import fetch_tokenizer, manifest_or_advice
from data_loading.remote.remote_values import RemoteStarts, RemoteTokens
from data_loading.remote.retry import FIRST_PATIENCE_S
from data_loading.remote.set_cache import SetCache
from data_loading.remote.store import disk_error, open_store
from data_loading.remote.stored_files import Run, SetGeometry, rounded
from data_loading.tokens.npy import HEADER_BYTES
from data_loading.tokens.set_files import MANIFEST
from data_loading.tokens.tokens import Tokens
from data_loading.tokens.truncated_documents import refuse_cut
from data_loading.user_cache import cache_folder
from experiment_utils import atomic_files
from experiment_utils.errors import UserError

if TYPE_CHECKING:
    from data_loading.readers.choose_reader import ReaderOptions
    from data_loading.readers.reader import Reader

_SMALL_FILE_BYTES = 4096
_SMALL_FILES = 8
"""Folders and lock files of a set, apart from one small file for each shard."""


@dataclass(frozen=True)
class RemoteOptions:
    """Folder for files of stored sets on this machine, and the requests for them."""

    cache: Path | None = None
    """Folder of downloaded files; None: $XDG_CACHE_HOME/highwater or ~/.cache/highwater."""
    budget_bytes: int | None = None
    """Limit for all that is in the folder; None: everything is kept."""
    workers: int = WORKERS
    """Requests at a time."""
    part_bytes: int = PART_BYTES
    """Bytes of a request."""

    def __post_init__(self) -> None:
        """Raises UserError: a value is not a whole number of at least 1."""
        for name in ("budget_bytes", "workers", "part_bytes"):
            value = getattr(self, name)
            if (type(value) is not int or value < 1) and (value, name) != (None, "budget_bytes"):
                raise UserError(
                    f"{name} {value!r}: expected a whole number, at least 1", code="count-invalid"
                )


class RemoteSet(Tokens):
    """Tokens of s3://, r2:// or https://. Opening one downloads its manifest and tokenizer only.

    geometry: its files. folder: of this set in the cache. small_bytes: at most what the folder holds besides
    token files.
    """

    def __init__(
        self, address: Address, manifest: dict[str, Any], folder: Path, options: RemoteOptions, own_bytes: int
    ) -> None:
        self.address, self.manifest, self.folder, self.options = address, manifest, folder, options
        self.geometry = SetGeometry(address.files, manifest)
        self.dtype, self.fingerprint = self.geometry.dtype, manifest["fingerprint"]
        self.vocab_size = manifest["tokenizer"]["vocab_size"]
        self.small_bytes = own_bytes + _SMALL_FILE_BYTES * (len(self.geometry.parts) + _SMALL_FILES)
        self._connect()

    def _connect(self) -> None:
        transfers = DownloadOptions(self.options.workers, self.options.part_bytes)
        self.cache = SetCache(self.address, self.geometry, self.folder, self.options.budget_bytes, transfers)
        self.tokens = RemoteTokens(self.geometry, self.cache)
        self.documents = RemoteStarts(self.geometry, self.cache)
        self._resident: weakref.WeakKeyDictionary[Reader, int] = weakref.WeakKeyDictionary()
        self._rotating: weakref.WeakSet[Reader] = weakref.WeakSet()

    @property
    def name(self) -> str:
        return self.address.uri

    @property
    def n_tokens(self) -> int:
        return self.geometry.borders[-1]

    @property
    def eot_id(self) -> int | None:
        return self.manifest["tokenizer"]["eot_id"]

    @property
    def tokenizer_name(self) -> str:
        return str(self.manifest["tokenizer"]["name"])

    @property
    def file_bytes(self) -> int:
        return len(self.geometry.parts) * HEADER_BYTES + self.n_tokens * self.dtype.itemsize

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
        return self.geometry.borders

    def own_reader(self, options: ReaderOptions) -> tuple[Reader, str]:
        from data_loading.remote.stored_readers import ResidentReader, RotatingReader

        if options.reader == "memory":
            raise UserError(
                f"{self.name}: reader=memory holds a whole set, and shards of this one come and go. Use "
                "reader=auto, mmap or pread",
                code="reader-memory-of-remote",
            )
        plan, budget = options.plan, self.options.budget_bytes
        bound = "all of it is kept" if budget is None else f"at most {budget / 1e6:,.0f} MB on the disk"
        if plan is not None and not plan.is_held_out and not plan.is_everywhere:
            self._check_room(rotating=1)
            reader: Reader = RotatingReader(self.geometry, self.cache, plan, options)
            self._rotating.add(reader)
            return reader, f"shards downloaded into {self.folder} ahead of use ({bound})"
        is_part = plan is not None and plan.is_held_out
        runs = self.geometry.runs(plan.ranges if plan is not None and is_part else [range(self.n_tokens)])
        size = _disk_bytes(runs)
        if not is_part and budget is not None and size + self.small_bytes > budget:
            raise UserError(
                f"{self.name}: this order reads from all of the set at a time, and its {size:,} bytes with "
                f"{self.small_bytes:,} of small files are more than dataset.disk_budget={budget:,}. Use "
                "dataset.order=shuffled_shards (or sequential), which reads one shard after the other",
                code="disk-budget-for-order",
            )
        self._check_room(resident_bytes=size)
        reader = ResidentReader(self.geometry, self.cache, runs, options)
        self._resident[reader] = size
        return reader, f"downloaded into {self.folder} before it is read, and kept ({bound})"

    def check_held_out(self, ranges: Iterable[Sequence[range]]) -> None:
        """Check that the budget has room for these ranges of each split and for the shards of train.

        Raises:
            UserError: it has not; names the budget that is needed.
        """
        self._check_room(sum(_disk_bytes(self.geometry.runs(tokens)) for tokens in ranges), rotating=1)

    def _check_room(self, resident_bytes: int = 0, rotating: int = 0) -> None:
        """Check the budget, with files of a new reader that stay and a number of new readers of shards."""
        budget, parts = self.options.budget_bytes, self.geometry.parts
        resident, rotating = resident_bytes + sum(self._resident.values()), rotating + len(self._rotating)
        shards = min(max(2, rotating), len(parts)) if rotating or not resident else 0
        largest = rounded(max(part.tokens for part in parts) * self.dtype.itemsize + HEADER_BYTES)
        needed = shards * largest + resident + self.small_bytes
        if budget is not None and needed > budget:
            raise UserError(
                f"dataset.disk_budget={budget:,} bytes is too small for {self.name}: {needed:,} bytes are "
                f"needed, for {shards} shards of up to {largest:,}, {resident:,} that stay (val, test), and "
                f"{self.small_bytes:,} of small files. Set dataset.disk_budget={-(-needed // 1024)}K or more",
                code="disk-budget-too-small",
            )

    def close(self) -> None:
        """End downloads and release what is in use. Downloaded files stay in the cache."""
        self.cache.close()

    def __getstate__(self) -> dict[str, Any]:
        connected = ("cache", "tokens", "documents", "_resident", "_rotating")
        return {name: value for name, value in self.__dict__.items() if name not in connected}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._connect()


def _disk_bytes(runs: Iterable[Run]) -> int:
    return sum(run.file.disk_bytes for run in runs)


def open_remote(uri: str, options: RemoteOptions) -> RemoteSet:
    """Open the set at this address; its manifest and tokenizer are downloaded.

    Raises:
        UserError: no set, no permission, no answer, a damaged file, or no room on the disk; names which.
    """
    address = parse(uri)
    store = open_store(address, FIRST_PATIENCE_S)
    data, manifest = manifest_or_advice(store)
    default = cache_folder()
    if options.cache is None and default is None:
        raise UserError("no home folder for downloaded files. Set dataset.cache=FOLDER", code="no-home")
    root = (options.cache or default or Path()).expanduser().absolute()
    folder = root / f"{address.files.stem.name or address.root}.{hashlib.sha256(data).hexdigest()[:16]}"
    is_new = not (folder / MANIFEST).exists()
    files: dict[str, bytes] = {}
    if is_new:
        files = {f"tokenizer/{name}": file for name, file in fetch_tokenizer(store, manifest).items()}
        files[MANIFEST] = data
    there = [] if is_new else [len(data), *(p.stat().st_size for p in (folder / "tokenizer").glob("*"))]
    own_bytes = sum(map(rounded, [*map(len, files.values()), *there]))
    found = RemoteSet(address, manifest, folder, replace(options, cache=root), own_bytes)
    found._check_room()
    try:
        with Cache(root, options.budget_bytes).room(own_bytes + 2 * _SMALL_FILE_BYTES if is_new else 0):
            (folder / "tokenizer").mkdir(parents=True, exist_ok=True)
            for name, content in files.items():
                atomic_files.write_bytes(folder / name, content)
    except OSError as error:
        raise disk_error(folder / MANIFEST, own_bytes, error) from None
    except NoRoom as error:
        raise UserError(
            f"{root}: dataset.disk_budget={options.budget_bytes:,} bytes has no room for {uri}: "
            f"{error.held_bytes:,} are in use by other sets. Set a larger one, or another dataset.cache",
            code="disk-budget-in-use",
        ) from None
    assert found.documents is not None
    refuse_cut(uri, manifest, folder / "tokenizer", found.documents)
    return found


def open_uri(uri: str, vocab_size: int | None = None) -> RemoteSet:
    """Open a set with the default options. vocab_size: not used, the manifest has it."""
    return open_remote(uri, RemoteOptions())
