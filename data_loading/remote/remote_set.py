"""A stored token set as a run sees it, while its shards come and go on the disk."""

from __future__ import annotations

import hashlib
import logging
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data_loading.remote.address import Address, is_remote, parse
from data_loading.remote.disk_budget import Cache, NoRoom
from data_loading.remote.download import RemoteOptions
from data_loading.remote.retry import FIRST_PATIENCE_S
from data_loading.remote.set_cache import SetCache
from data_loading.remote.store import disk_error, open_store
from data_loading.remote.stored_files import Run, SetGeometry, fetch_tokenizer, manifest_or_advice, rounded
from data_loading.remote.stored_readers import RemoteStarts, RemoteTokens, ResidentReader, RotatingReader
from data_loading.tokenizers.ids import IDS
from data_loading.tokenizers.load import load_tokenizer
from data_loading.tokenizers.read_files import holds_tokenizer, read_tokenizer
from data_loading.tokenizers.tokenizer import Tokenizer, TokenizerNotFound
from data_loading.tokens.npy import HEADER_BYTES
from data_loading.tokens.set_files import MANIFEST
from data_loading.tokens.tokens import Tokens
from data_loading.tokens.truncated_documents import refuse_cut
from data_loading.user_cache import cache_folder
from experiment_utils import atomic_files
from experiment_utils.errors import UserError

if TYPE_CHECKING:
    from conf import schema
    from data_loading.readers.choose_reader import ReaderOptions
    from data_loading.readers.reader import Reader

log = logging.getLogger("data_loading")

_SMALL_FILE_BYTES = 4096
_SMALL_FILES = 8
"""Folders and lock files of a set, apart from one small file for each shard."""


class RemoteSet(Tokens):
    """Tokens of s3://, r2:// or https://. Opening one downloads its manifest and tokenizer only."""

    name, n_tokens, file_bytes = "", 0, 0
    eot_id: int | None = None
    tokenizer_name = ""
    held_out: tuple[range, ...] | None = None
    sources: list[tuple[int, int]] = []  # noqa: RUF012  as in Tokens
    file_borders: list[int] = []  # noqa: RUF012

    def __init__(
        self, address: Address, manifest: dict[str, Any], folder: Path, options: RemoteOptions, own_bytes: int
    ) -> None:
        """folder: of this set in the cache. own_bytes: of its manifest and tokenizer there."""
        self.address, self.manifest, self.folder, self.options = address, manifest, folder, options
        self.geometry = SetGeometry(address.files, manifest)
        self.dtype, self.fingerprint = self.geometry.dtype, manifest["fingerprint"]
        self.small_bytes = own_bytes + _SMALL_FILE_BYTES * (len(self.geometry.parts) + _SMALL_FILES)
        """Most that the folder holds besides token files."""
        tokenizer, sources, val = manifest["tokenizer"], manifest["sources"], manifest.get("val")
        self.name, self.n_tokens, self.file_borders = address.uri, manifest["tokens"], self.geometry.borders
        self.vocab_size, self.eot_id = tokenizer["vocab_size"], tokenizer["eot_id"]
        self.tokenizer_name = str(tokenizer["name"])
        self.file_bytes = len(self.geometry.parts) * HEADER_BYTES + self.n_tokens * self.dtype.itemsize
        self.held_out = tuple(range(*part) for part in val["ranges"]) if val else None
        if all("tokens" in source and "documents" in source for source in sources):
            self.sources = [(source["tokens"], source["documents"]) for source in sources]
        self._connect()

    def _connect(self) -> None:
        self.cache = SetCache(self.address, self.geometry, self.folder, self.options)
        self.tokens = RemoteTokens(self.geometry, self.cache)
        self.documents = RemoteStarts(self.geometry, self.cache)
        self._resident: weakref.WeakKeyDictionary[Reader, int] = weakref.WeakKeyDictionary()

    def own_reader(self, options: ReaderOptions) -> tuple[Reader, str]:
        if options.reader == "memory":
            raise UserError(
                f"{self.name}: reader=memory holds a whole set, and shards of this one come and go. Use "
                "reader=auto, mmap or pread",
                code="reader-memory-of-remote",
            )
        plan, budget = options.plan, self.options.budget_bytes
        bound = "all of it is kept" if budget is None else f"at most {budget / 1e6:,.0f} MB on the disk"
        if plan is not None and not plan.is_held_out and not plan.is_everywhere:
            self._check_room()
            rotating = RotatingReader(self.geometry, self.cache, plan, options)
            return rotating, f"shards downloaded into {self.folder} ahead of use ({bound})"
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
        self._check_room(size, shards=2 if is_part else 0)
        resident = ResidentReader(self.geometry, self.cache, runs, options)
        self._resident[resident] = size
        return resident, f"downloaded into {self.folder} before it is read, and kept ({bound})"

    def check_held_out(self, ranges: Iterable[Sequence[range]]) -> None:
        """Check that the budget has room for these ranges of each split and for two shards of train.

        Raises:
            UserError: it has not; names the budget that is needed.
        """
        self._check_room(sum(_disk_bytes(self.geometry.runs(tokens)) for tokens in ranges))

    def _check_room(self, resident_bytes: int = 0, shards: int = 2) -> None:
        """Check that the budget has room for files that stay (of open readers, and more) and for shards."""
        budget, parts = self.options.budget_bytes, self.geometry.parts
        resident, shards = resident_bytes + sum(self._resident.values()), min(shards, len(parts))
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
        connected = ("cache", "tokens", "documents", "_resident")
        return {name: value for name, value in self.__dict__.items() if name not in connected}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._connect()


def _disk_bytes(runs: Iterable[Run]) -> int:
    return sum(rounded(run.file.file_bytes) for run in runs)


def open_remote(uri: str, options: RemoteOptions) -> RemoteSet:
    """Open the set at this address; its manifest and tokenizer are downloaded.

    Raises:
        UserError: no set, no permission, no answer, a damaged file, or no room on the disk; names which.
    """
    address = parse(uri)
    store = open_store(address, FIRST_PATIENCE_S)
    data, manifest = manifest_or_advice(store)
    root = options.cache or cache_folder()
    if root is None:
        raise UserError("no home folder for downloaded files. Set dataset.cache=FOLDER", code="no-home")
    root = root.expanduser().absolute()
    folder = root / f"{address.files.stem.name or address.root}.{hashlib.sha256(data).hexdigest()[:16]}"
    files: dict[str, bytes] = {}
    if not (folder / MANIFEST).exists():
        files = {f"tokenizer/{name}": file for name, file in fetch_tokenizer(store, manifest).items()}
        files[MANIFEST] = data
    there = [path.stat().st_size for path in (folder / MANIFEST, *folder.glob("tokenizer/*")) if not files]
    own_bytes = sum(map(rounded, [*map(len, files.values()), *there]))
    found = RemoteSet(address, manifest, folder, replace(options, cache=root), own_bytes)
    found._check_room()
    try:
        with Cache(root, options.budget_bytes).room(own_bytes + 2 * _SMALL_FILE_BYTES if files else 0):
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


def open_for_run(dataset: schema.Dataset, spec: schema.Tokenizer) -> tuple[list[RemoteSet], Tokenizer | None]:
    """Open the set of train, and that of val if it has its own; the tokenizer is None for ids alone.

    Raises:
        UserError: no set there, or it was made with another tokenizer than the run's.
    """
    if dataset.val_path is not None and not is_remote(dataset.val_path):
        raise UserError(
            f"dataset.val_path={dataset.val_path} is no address in a store, and dataset.path={dataset.path} "
            "is one. Give both as addresses, or leave val_path out: then a part of the training tokens is "
            "held out",
            code="val-path-not-uri",
        )
    cache = Path(dataset.cache) if dataset.cache else None
    options = RemoteOptions(cache, dataset.disk_budget, dataset.download_workers, dataset.part_size)
    sets = [open_remote(uri, options) for uri in (dataset.path, dataset.val_path) if uri is not None]
    tokenizer = None if spec.name == IDS else _tokenizer(spec, sets[0])
    for found in sets if tokenizer else ():
        assert tokenizer is not None
        made_with = found.manifest["tokenizer"]
        if made_with["content_hash"] != tokenizer.content_hash:
            raise UserError(
                f"{found.name} was made with tokenizer {made_with['name']} (content "
                f"{made_with['content_hash'][:12]}), this run asks for {tokenizer.name} (content "
                f"{tokenizer.content_hash[:12]}). Ask for tokenizer=custom "
                f"tokenizer.path={found.folder / 'tokenizer'}",
                code="tokenizer-differs",
            )
    return sets, tokenizer


def _tokenizer(spec: schema.Tokenizer, remote: RemoteSet) -> Tokenizer:
    """The configured tokenizer; if it is found nowhere, that of the set, if it has its name."""
    try:
        return load_tokenizer(spec)
    except TokenizerNotFound:
        copy, name = remote.folder / "tokenizer", remote.tokenizer_name
        if spec.path is not None or name not in (spec.name, spec.repo) or not holds_tokenizer(copy):
            raise
        log.info("tokenizer %s: taken from %s, found nowhere else", name, remote.name)
        return read_tokenizer(copy, name)
