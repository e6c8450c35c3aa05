"""The small files of a set in a store: its manifest, and its tokenizer, held against the manifest."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from data_loading.remote.retry import Vanished
from data_loading.remote.store import Store
from data_loading.tiktoken_tokenizer import TIKTOKEN_FILE
from data_loading.token_set import parse_manifest
from data_loading.tokenizer_files import TOKENIZER_FILES, holds_tokenizer, read_tokenizer
from experiment_utils import atomic_files
from experiment_utils.errors import UserError

_USUAL = (*TOKENIZER_FILES, TIKTOKEN_FILE)


def fetch_manifest(store: Store) -> tuple[bytes, dict[str, Any]]:
    """The manifest as it lies there, and what it says.

    Raises:
        Vanished: there is none.
        UserError: it is damaged, or the store does not answer.
    """
    files = store.address.files
    name = files.manifest.as_posix()
    data, _ = store.read(name)
    return data, parse_manifest(data, store.address.of(name), is_folder=files.is_folder)


def manifest_or_advice(store: Store) -> tuple[bytes, dict[str, Any]]:
    """As `fetch_manifest`; where there is none, what could be meant instead."""
    try:
        return fetch_manifest(store)
    except Vanished as error:
        raise UserError(
            f"{store.address.uri}: no token set there ({error}). Give the folder that holds manifest.json, "
            "or the .npy that has a .npy.json beside it",
            code="no-token-set",
        ) from None


def fetch_tokenizer(store: Store, manifest: dict[str, Any]) -> dict[str, bytes]:
    """The files of the set's tokenizer by name; empty where it has none.

    Raises:
        UserError: they are damaged, or of another tokenizer than the manifest names.
    """
    folder = store.address.files.tokenizer.as_posix()
    found = {name: store.read(f"{folder}/{name}")[0] for name in store.names(folder, _USUAL)}
    with tempfile.TemporaryDirectory() as place:
        for name, data in found.items():
            (Path(place) / name).write_bytes(data)
        if not holds_tokenizer(Path(place)):
            return {}
        try:
            tokenizer = read_tokenizer(Path(place), manifest["tokenizer"]["name"])
        except UserError as error:
            told = str(error).replace(place, store.address.of(folder))
            raise UserError(told, code=error.code) from None
    if tokenizer.content_hash != manifest["tokenizer"]["content_hash"]:
        raise UserError(
            f"{store.address.of(folder)} holds another tokenizer (content {tokenizer.content_hash[:12]}) "
            f"than the set was made with (content {manifest['tokenizer']['content_hash'][:12]}). Upload the "
            "set again",
            code="tokenizer-differs",
        )
    return found


def write_files(folder: Path, files: dict[str, bytes]) -> None:
    """Each whole or not at all. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        with atomic_files.atomic_file(folder / name) as file:
            file.write(data)
