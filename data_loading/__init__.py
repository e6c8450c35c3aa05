"""Text to token sets, token sets to batches.

    text --pretokenize--> X.npy + manifest --prepare_data--> Data --StreamingDataset--> batches

The names below are loaded where they are used: importing the package is instant.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from data_loading.catalogue import list_datasets as list_datasets
    from data_loading.data import Data as Data
    from data_loading.data import NotTokenized as NotTokenized
    from data_loading.dataset.baselines import bigram_loss as bigram_loss
    from data_loading.dataset.baselines import floor_loss as floor_loss
    from data_loading.dataset.batch_options import BatchOptions as BatchOptions
    from data_loading.dataset.streaming_dataset import StreamingDataset as StreamingDataset
    from data_loading.hub.loader import StreamLoader as StreamLoader
    from data_loading.hub.materializing import materialize as materialize
    from data_loading.hub.stream import HubStream as HubStream
    from data_loading.loader.loader import Loader as Loader
    from data_loading.lookup import load_tokenizer as load_tokenizer
    from data_loading.lookup import tokenizer_spec as tokenizer_spec
    from data_loading.mixture.data import MixedData as MixedData
    from data_loading.mixture.data import named_source as named_source
    from data_loading.mixture.data import prepare_run as prepare_run
    from data_loading.mixture.dataset import StreamingMixture as StreamingMixture
    from data_loading.open_split import open_held_out as open_held_out
    from data_loading.open_split import open_train as open_train
    from data_loading.open_split import train_schedule as train_schedule
    from data_loading.open_split import train_windows as train_windows
    from data_loading.opening import open_tokens as open_tokens
    from data_loading.prepare import prepare_data as prepare_data
    from data_loading.pretokenizer.job import pretokenize as pretokenize
    from data_loading.text_bytes import bytes_per_id as bytes_per_id
    from data_loading.token_set import open_token_set as open_token_set
    from data_loading.tokenizer import Tokenizer as Tokenizer
    from data_loading.tokens import Tokens as Tokens

_PLACES = {
    "BatchOptions": "dataset.batch_options",
    "Data": "data",
    "HubStream": "hub.stream",
    "Loader": "loader.loader",
    "MixedData": "mixture.data",
    "NotTokenized": "data",
    "StreamLoader": "hub.loader",
    "StreamingDataset": "dataset.streaming_dataset",
    "StreamingMixture": "mixture.dataset",
    "Tokenizer": "tokenizer",
    "Tokens": "tokens",
    "bigram_loss": "dataset.baselines",
    "bytes_per_id": "text_bytes",
    "list_datasets": "catalogue",
    "floor_loss": "dataset.baselines",
    "load_tokenizer": "lookup",
    "materialize": "hub.materializing",
    "named_source": "mixture.data",
    "open_held_out": "open_split",
    "open_token_set": "token_set",
    "open_tokens": "opening",
    "open_train": "open_split",
    "prepare_data": "prepare",
    "prepare_run": "mixture.data",
    "pretokenize": "pretokenizer.job",
    "tokenizer_spec": "lookup",
    "train_schedule": "open_split",
    "train_windows": "open_split",
}

__all__ = list(_PLACES)


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"data_loading.{_PLACES[name]}"), name)
