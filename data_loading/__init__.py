"""Text to token sets, token sets to batches.

    text --pretokenize--> X.npy + manifest --prepare_data--> Data --StreamingDataset--> batches

The names below are loaded where they are used: importing the package is instant.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from data_loading.dataset.baselines import bigram_loss as bigram_loss
    from data_loading.dataset.baselines import floor_loss as floor_loss
    from data_loading.dataset.batch_options import BatchOptions as BatchOptions
    from data_loading.dataset.streaming_dataset import StreamingDataset as StreamingDataset
    from data_loading.find.catalogue import list_datasets as list_datasets
    from data_loading.find.from_config import open_held_out as open_held_out
    from data_loading.find.from_config import open_train as open_train
    from data_loading.find.from_config import train_schedule as train_schedule
    from data_loading.find.from_config import train_windows as train_windows
    from data_loading.find.open_source import open_tokens as open_tokens
    from data_loading.find.prepare import prepare_data as prepare_data
    from data_loading.find.prepared_data import Data as Data
    from data_loading.find.prepared_data import NotTokenized as NotTokenized
    from data_loading.hub.materializing import materialize as materialize
    from data_loading.hub.stream import HubStream as HubStream
    from data_loading.hub.stream_loader import StreamLoader as StreamLoader
    from data_loading.loader.loader import Loader as Loader
    from data_loading.mixture.mixed_data import MixedData as MixedData
    from data_loading.mixture.mixed_data import named_source as named_source
    from data_loading.mixture.mixed_data import prepare_run as prepare_run
    from data_loading.mixture.streaming_mixture import StreamingMixture as StreamingMixture
    from data_loading.pretokenizer.job import pretokenize as pretokenize
    from data_loading.tokenizers.bytes_per_token import bytes_per_id as bytes_per_id
    from data_loading.tokenizers.load import load_tokenizer as load_tokenizer
    from data_loading.tokenizers.load import tokenizer_spec as tokenizer_spec
    from data_loading.tokenizers.tokenizer import Tokenizer as Tokenizer
    from data_loading.tokens.token_set import open_token_set as open_token_set
    from data_loading.tokens.tokens import Tokens as Tokens

_PLACES = {
    "BatchOptions": "dataset.batch_options",
    "Data": "find.prepared_data",
    "HubStream": "hub.stream",
    "Loader": "loader.loader",
    "MixedData": "mixture.mixed_data",
    "NotTokenized": "find.prepared_data",
    "StreamLoader": "hub.stream_loader",
    "StreamingDataset": "dataset.streaming_dataset",
    "StreamingMixture": "mixture.streaming_mixture",
    "Tokenizer": "tokenizers.tokenizer",
    "Tokens": "tokens.tokens",
    "bigram_loss": "dataset.baselines",
    "bytes_per_id": "tokenizers.bytes_per_token",
    "list_datasets": "find.catalogue",
    "floor_loss": "dataset.baselines",
    "load_tokenizer": "tokenizers.load",
    "materialize": "hub.materializing",
    "named_source": "mixture.mixed_data",
    "open_held_out": "find.from_config",
    "open_token_set": "tokens.token_set",
    "open_tokens": "find.open_source",
    "open_train": "find.from_config",
    "prepare_data": "find.prepare",
    "prepare_run": "mixture.mixed_data",
    "pretokenize": "pretokenizer.job",
    "tokenizer_spec": "tokenizers.load",
    "train_schedule": "find.from_config",
    "train_windows": "find.from_config",
}

__all__ = list(_PLACES)


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"data_loading.{_PLACES[name]}"), name)
