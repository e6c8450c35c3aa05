"""prepare_data: tokens with their splits, in one call, from a configuration or from a text in memory."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, overload

from conf import schema
from data_loading.dataset.split_data import Data, split_data
from data_loading.dataset.splits import Share
from data_loading.find.auto_tokenize import stdlib_place, token_set
from data_loading.find.in_memory_text import tokens_of_text
from data_loading.find.locate import DatasetFiles, locate
from data_loading.find.open_tokens import Found, find, open_found, refuse_dtype, scheme_of
from data_loading.find.run_tokenizer import tokenizer_for
from data_loading.find.verify_set import refuse_unused
from data_loading.hub.hub_uri import PREFIX as HUB
from data_loading.remote.address import is_remote
from data_loading.remote.remote_set import RemoteSet, open_for_run
from data_loading.tokenizers.document_ends import named_bos_id
from data_loading.tokenizers.ids import IDS, IdsTokenizer
from data_loading.tokenizers.load import load_tokenizer
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
    """Return tokens with their splits, for `StreamingDataset`.

    Args:
        source: A text itself (str) or documents (list of str), never a path: it is tokenized here and kept in
            memory. Or the dataset of a configuration: it is found, tokenized if needed, and verified.
        tokenizer: Of a text: a name, a folder, or what `load_tokenizer` returned. Of a configuration: its
            tokenizer.
        **how: Of a text: `val` and `test`, as in `StreamingDataset`. Of a configuration: `tokenize`: make
            missing token files, if dataset.auto_tokenize allows it; a second process waits for the first.
            `log`: takes lines about that. `versions`: fingerprints of the sets that a run began with, so
            that it reads these also if more was appended since. `is_alone`: refuse keys that would do nothing
            to what was found; False for a mixture, whose other sources may need them.

    Raises:
        NotTokenized: there is only a text, and it is not to be tokenized now.
        UserError: no text, a path instead, or not enough of it to be split; nothing found, or it does not fit
            the text, the tokenizer or itself.
    """
    if isinstance(source, schema.Dataset):
        return _from_configuration(source, tokenizer, **how)
    return _from_text(source, tokenizer, **how)


def _from_text(
    text: str | Iterable[str], tokenizer: str | Path | Tokenizer, *, val: Share | None = None, test: Share = 0
) -> Data:
    return split_data(tokens_of_text(text, tokenizer), val=val, test=test)


def _from_configuration(
    dataset: schema.Dataset,
    tokenizer: schema.Tokenizer,
    *,
    tokenize: bool,
    log: Callable[[str], None] = _log.info,
    versions: Sequence[str] = (),
    is_alone: bool = True,
) -> Data:
    if is_of_hub(dataset):
        from data_loading.find.hub_data import settle_hub

        found = settle_hub(dataset, tokenizer, tokenize=tokenize, log=log, versions=versions)
        if isinstance(found, Data):
            return found
        dataset = found
    sets, loaded = _opened(dataset, tokenizer, tokenize=tokenize, log=log, versions=versions)
    if is_alone:
        refuse_unused(dataset, sets)
    val, test = dataset.val_fraction, dataset.test_fraction
    data = split_data(
        sets[0],
        sets[1] if len(sets) > 1 else None,
        loaded or IdsTokenizer(max(found.vocab_size for found in sets)),
        val if dataset.val_tokens is None else dataset.val_tokens,
        test if dataset.test_tokens is None else dataset.test_tokens,
        bos_id=named_bos_id(loaded) if loaded else None,
    )
    if isinstance(data.train, RemoteSet):
        held_out = [data.ranges_of(split) for split in data.splits if split != "train"]
        data.train.check_held_out([ranges for tokens, ranges in held_out if tokens is data.train])
    return data


def is_of_hub(dataset: schema.Dataset) -> bool:
    """Return whether it can be on the hub: its path is `hf://...`, or its source is the hub."""
    return dataset.source == "hf" or (dataset.path or "").startswith(HUB)


def _opened(
    dataset: schema.Dataset,
    spec: schema.Tokenizer,
    *,
    tokenize: bool,
    log: Callable[[str], None],
    versions: Sequence[str],
) -> tuple[Sequence[Tokens], Tokenizer | None]:
    """Return one set, or train and val, and the tokenizer of the run; None for ids alone."""
    if dataset.path is not None and is_remote(dataset.path):
        return open_for_run(dataset, spec)
    train, val = find_sides(dataset, spec)
    first = _replace_version(train[0], versions, 0)
    train = [first, *(_replace_version(one, versions, 1) for one in train[1:])]
    val = [_replace_version(one, versions, 1) for one in val]
    if spec.name == IDS:
        loaded = None
    else:
        loaded = tokenizer_for(spec, first) if isinstance(first, DatasetFiles) else load_tokenizer(spec)

    def opened(found: Found) -> Sequence[Tokens]:
        if not isinstance(found, DatasetFiles):
            return open_found(found, loaded.vocab_size if loaded else None, dataset.dtype)
        if loaded is not None:
            return [token_set(dataset, found, loaded, spec, tokenize=tokenize, log=log)]
        if not found.is_tokenized:
            raise UserError(
                f"tokenizer=ids makes no tokens of a text, and {found.text or dataset.source} has none yet. "
                "Use another tokenizer, such as tokenizer=bytes",
                code="ids-need-tokens",
            )
        return open_found(found)

    trained = [tokens for one in train for tokens in opened(one)]
    held_out = [tokens for one in val for tokens in opened(one)]
    if len(held_out) > 1:
        raise UserError(
            f"dataset.val_path={dataset.val_path} is a train set and a val set; give the one to be held out",
            code="val-path-is-pair",
        )
    return (trained if not held_out else [trained[0], *held_out]), loaded


def find_sides(
    dataset: schema.Dataset, tokenizer: schema.Tokenizer
) -> tuple[Sequence[Found], Sequence[Found]]:
    """Return what dataset.path or the name means, and what dataset.val_path means (empty without one).

    Raises:
        UserError: nothing there, it can mean several things, or only one of both is a URI.
    """
    train: Sequence[Found]
    val: Sequence[Found] = []
    is_stdlib = dataset.source == "stdlib" and (dataset.path is None or scheme_of(dataset.path) is None)
    if is_stdlib:
        train = [stdlib_place(dataset, tokenizer)]
    else:
        train = locate(dataset) if dataset.path is None else find(dataset.path, dataset.dtype)
    if dataset.val_path is not None and not is_stdlib:
        if (scheme_of(dataset.path or "") is None) != (scheme_of(dataset.val_path) is None):
            raise UserError(
                f"dataset.path={dataset.path} and dataset.val_path={dataset.val_path}: one is a URI, the "
                "other is a path. Give two paths or two URIs, or leave val_path out: then a part of the "
                "training tokens is held out",
                code="val-path-not-uri",
            )
        train, val = train[:1], find(dataset.val_path, dataset.dtype, "dataset.val_path")
        if len(val) > 1:
            raise UserError(
                f"dataset.val_path={dataset.val_path} is two files; give the one to be held out",
                code="val-path-is-pair",
            )
    given = dataset.path or dataset.name
    refuse_dtype(f"dataset.dtype={dataset.dtype}", given, dataset.dtype, [*train, *val])
    return train, val


def _replace_version(found: Found, versions: Sequence[str], number: int) -> Found:
    """Return the set as it was when the run began."""
    if isinstance(found, DatasetFiles) and found.version is None and number < len(versions):
        return replace(found, version=versions[number])
    return found
