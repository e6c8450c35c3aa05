"""The stored sets that a run's configuration names, and the tokenizer of the run."""

from __future__ import annotations

import logging
from pathlib import Path

from conf import schema
from data_loading.remote.address import is_remote
from data_loading.remote.remote_set import RemoteOptions, RemoteSet, open_remote
from data_loading.tokenizers.ids import IDS
from data_loading.tokenizers.load import load_tokenizer
from data_loading.tokenizers.read_files import holds_tokenizer, read_tokenizer
from data_loading.tokenizers.tokenizer import Tokenizer, TokenizerNotFound
from experiment_utils.errors import UserError

log = logging.getLogger("data_loading")


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
    if spec.name == IDS:
        return sets, None
    tokenizer = _tokenizer(spec, sets[0])
    for found in sets:
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
