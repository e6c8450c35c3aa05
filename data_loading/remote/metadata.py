"""The small files of a stored set: its manifest, and its tokenizer, compared with the manifest."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from data_loading.remote.retry import Vanished
from data_loading.remote.store import Store
from data_loading.tokenizers.read_files import TOKENIZER_FILES, holds_tokenizer, read_tokenizer
from data_loading.tokenizers.tiktoken import RANKS_FILE, TIKTOKEN_FILE
from data_loading.tokens.read_manifest import parse_manifest
from experiment_utils.errors import UserError


def fetch_manifest(store: Store) -> tuple[bytes, dict[str, Any]]:
    """Return the manifest as bytes and as an object.

    Raises:
        Vanished: there is no manifest.
        UserError: it is damaged, or the store does not answer.
    """
    files = store.address.files
    name = files.manifest.as_posix()
    data = bytes(store.read(name)[0])
    return data, parse_manifest(data, store.address.of(name), is_folder=files.is_folder)


def manifest_or_advice(store: Store) -> tuple[bytes, dict[str, Any]]:
    """Return the result of `fetch_manifest`. Raises UserError: there is no set; names the usual mistake."""
    try:
        return fetch_manifest(store)
    except Vanished as error:
        raise UserError(
            f"{store.address.uri}: no token set there ({error}). Give the folder that holds manifest.json, "
            "or the .npy that has a .npy.json next to it",
            code="no-token-set",
        ) from None


def fetch_tokenizer(store: Store, manifest: dict[str, Any]) -> dict[str, bytes]:
    """Return the files of the set's tokenizer by name; empty if it has none.

    Raises:
        UserError: they are damaged, or of another tokenizer than the manifest names.
    """
    folder = store.address.files.tokenizer.as_posix()
    found: dict[str, bytes] = {}
    for name in (*TOKENIZER_FILES, TIKTOKEN_FILE, RANKS_FILE):
        with suppress(Vanished):
            found[name] = bytes(store.read(f"{folder}/{name}")[0])
    with tempfile.TemporaryDirectory() as place:
        for name, data in found.items():
            (Path(place) / name).write_bytes(data)
        if not holds_tokenizer(Path(place)):
            return {}
        try:
            tokenizer = read_tokenizer(Path(place), manifest["tokenizer"]["name"])
        except UserError as error:
            message = str(error).replace(place, store.address.of(folder))
            raise UserError(message, code=error.code) from None
    expected = manifest["tokenizer"]["content_hash"]
    if tokenizer.content_hash != expected:
        raise UserError(
            f"{store.address.of(folder)} holds another tokenizer (content {tokenizer.content_hash[:12]}) "
            f"than the set was made with (content {expected[:12]}). Upload the set again",
            code="tokenizer-differs",
        )
    return found
