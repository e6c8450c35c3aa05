"""prepare_data: tokens ready to read, in one call, from a configuration or from a text in memory."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, overload

from conf import AUTO, schema
from data_loading.dataset.splits import Share
from data_loading.find.auto_tokenize import stdlib_place, token_set
from data_loading.find.in_memory_text import tokens_of_text
from data_loading.find.locate import Place, locate
from data_loading.find.open_ids import ids_of, open_ids_alone
from data_loading.find.open_source import open_uri, scheme_of
from data_loading.find.prepared_data import Data, split_data
from data_loading.find.train_val_files import foreign_paths, open_sides
from data_loading.find.unused_keys import refuse_unused
from data_loading.hub.hub_uri import PREFIX as HUB
from data_loading.remote.address import is_remote
from data_loading.remote.remote_set import RemoteSet, open_for_run
from data_loading.tokenizers.ids import IDS
from data_loading.tokenizers.load import load_tokenizer
from data_loading.tokenizers.run_tokenizer import tokenizer_for
from data_loading.tokenizers.tokenizer import Tokenizer
from data_loading.tokens.tokens import Tokens
from experiment_utils.errors import UserError

_log = logging.getLogger("data_loading")


@overload
def prepare_data(source: schema.Dataset, tokenizer: schema.Tokenizer, **how: Any) -> Data: ...
@overload
def prepare_data(
    source: str | Iterable[str],
    tokenizer: str | Path | Tokenizer = ...,
    *,
    val: Share | None = ...,
    test: Share = ...,
) -> Data: ...
def prepare_data(source: Any, tokenizer: Any = "bytes", **how: Any) -> Data:
    """Tokens, split, for `StreamingDataset`.

    source: the text itself (str), or documents (list of str), never a path: tokenized here, held in memory.
    Or the dataset of a configuration: found on disk or elsewhere, tokenized where needed, verified.

    Of a text: tokenizer: its name, its folder, or what `load_tokenizer` gave. val, test: what is held out, as
    a fraction (float) or in tokens (int); val: None: a tenth.

    Of a configuration: tokenize: make missing token files (where dataset.auto_tokenize allows it); two
    processes do not both do it: the second waits for the first. log: takes lines about it. versions:
    fingerprints of the sets that a run began with, train and val: it goes on with these where more was
    appended since. is_alone: keys that would do nothing to what is found are refused; of a mixture another
    source may need them.

    Raises:
        NotTokenized: there is only a text, and it is not to be tokenized now.
        UserError: no text, a path instead, not enough of it to be split; nothing found, or what was found
            does not fit the text, the tokenizer or itself.
    """
    if isinstance(source, schema.Dataset):
        return _of_configuration(source, tokenizer, **how)
    return _of_text(source, tokenizer, **how)


def _of_text(
    text: str | Iterable[str], tokenizer: str | Path | Tokenizer, *, val: Share | None = None, test: Share = 0
) -> Data:
    return split_data(tokens_of_text(text, tokenizer), None, None, val, test)


def _of_configuration(
    dataset: schema.Dataset,
    tokenizer: schema.Tokenizer,
    *,
    tokenize: bool,
    log: Callable[[str], None] = _log.info,
    versions: Sequence[str] = (),
    is_alone: bool = True,
) -> Data:
    if is_of_hub(dataset):
        from data_loading.hub.hub_data import settle_hub

        found = settle_hub(dataset, tokenizer, tokenize=tokenize, log=log, versions=versions)
        if isinstance(found, Data):
            return found
        dataset = found
    sets, loaded = _opened(dataset, tokenizer, tokenize=tokenize, log=log, versions=versions)
    if is_alone:
        refuse_unused(dataset, sets)
    data = split_data(sets[0], sets[1] if len(sets) > 1 else None, loaded or ids_of(sets), *shares(dataset))
    if isinstance(data.train, RemoteSet):
        held_out = [data.ranges_of(split) for split in data.splits if split != "train"]
        data.train.check_held_out([ranges for tokens, ranges in held_out if tokens is data.train])
    return data


def _opened(
    dataset: schema.Dataset,
    tokenizer: schema.Tokenizer,
    *,
    tokenize: bool,
    log: Callable[[str], None],
    versions: Sequence[str],
) -> tuple[Sequence[Tokens], Tokenizer | None]:
    """(train and val, or one set; the tokenizer of the run, None where only ids are wanted)."""
    if dataset.path is not None and is_remote(dataset.path):
        return open_for_run(dataset, tokenizer)
    uri = dataset.path if dataset.path is not None and scheme_of(dataset.path) is not None else None
    foreign = (None, None) if uri is not None and dataset.dtype == AUTO else foreign_paths(dataset)
    if uri is None and not any(foreign):
        is_stdlib = dataset.source == "stdlib"
        found = (stdlib_place(dataset, tokenizer), None) if is_stdlib else locate(dataset)
        places = _at_versions(found, versions)
        loaded = None if tokenizer.name == IDS else tokenizer_for(tokenizer, places[0])
        return _of_places(places, dataset, tokenizer, loaded, tokenize=tokenize, log=log), loaded
    loaded = None if tokenizer.name == IDS else load_tokenizer(tokenizer)
    known = loaded.vocab_size if loaded else None
    if uri is not None:
        return _of_uris(uri, dataset.val_path, known), loaded

    def of_paths(side: schema.Dataset) -> Sequence[Tokens]:
        return _of_places(locate(side), side, tokenizer, loaded, tokenize=tokenize, log=log)

    return open_sides(dataset, foreign, known, of_paths), loaded


def _of_places(
    places: Sequence[Place | None],
    dataset: schema.Dataset,
    spec: schema.Tokenizer,
    loaded: Tokenizer | None,
    *,
    tokenize: bool,
    log: Callable[[str], None],
) -> Sequence[Tokens]:
    """The sets of ours at these places. loaded: None: only their ids are wanted."""
    there = [place for place in places if place]
    if loaded is None:
        return open_ids_alone(there, dataset)
    return [token_set(dataset, place, loaded, spec, tokenize=tokenize, log=log) for place in there]


def _of_uris(train: str, val: str | None, vocab_size: int | None) -> list[Tokens]:
    if val is not None and scheme_of(val) is None:
        raise UserError(
            f"dataset.val_path={val} is a path, and dataset.path={train} is none. Give both as paths or both "
            "as URIs, or leave val_path out: then a part of the training tokens is held out",
            code="val-path-not-uri",
        )
    return [open_uri(uri, vocab_size) for uri in (train, val) if uri is not None]


def is_of_hub(dataset: schema.Dataset) -> bool:
    """Whether it may be read from the hub: its path is `hf://...`, or it has none and is known there."""
    return dataset.source == "hf" or (dataset.path or "").startswith(HUB)


def shares(dataset: schema.Dataset) -> tuple[Share, Share]:
    """What is held out as val and test, as `split_data` takes it."""
    val = dataset.val_fraction if dataset.val_tokens is None else dataset.val_tokens
    test = dataset.test_fraction if dataset.test_tokens is None else dataset.test_tokens
    return val, test


def _at_versions(places: tuple[Place, Place | None], versions: Sequence[str]) -> tuple[Place, Place | None]:
    train, val = places
    if versions and train.version is None:
        train = replace(train, version=versions[0])
    if len(versions) > 1 and val is not None and val.version is None:
        val = replace(val, version=versions[1])
    return train, val
