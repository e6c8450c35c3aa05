"""Text to token sets, token sets to batches.

A reader's path through this package; each part imports only those above it:

    text_io                      bytes of files -> text
       |
    tokenizers                   text -> ids
       |
    tokens                       token sets: ids on disk, as `Tokens`
       |
    readers                      how ids are read: mmap, pread, memory
       |
    dataset (mixture, packing)   `Tokens` -> splits -> windows in an order: `StreamingDataset`
       |
    loader                       a rank's batches, resumable: `Loader`
       |
       |   import_formats, synthetic, remote    other kinds of `Tokens`
       |   pretokenizer                         text -> token set
       |   hub -> hub_stream                    streamed datasets: `open_stream`
       |
    find                         path, name, URI or configuration -> `Tokens`: `open_tokens`, `prepare_data`

The names below are loaded at their first use: importing the package is fast. `StreamingDataset` given a path
calls `open_tokens` of this face.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from data_loading.dataset.baselines import bigram_loss as bigram_loss
    from data_loading.dataset.baselines import floor_loss as floor_loss
    from data_loading.dataset.batch_options import BatchOptions as BatchOptions
    from data_loading.dataset.split_data import Data as Data
    from data_loading.dataset.streaming_dataset import StreamingDataset as StreamingDataset
    from data_loading.find.catalogue import list_datasets as list_datasets
    from data_loading.find.from_config import open_held_out as open_held_out
    from data_loading.find.from_config import open_train as open_train
    from data_loading.find.from_config import train_schedule as train_schedule
    from data_loading.find.from_config import train_windows as train_windows
    from data_loading.find.locate import NotTokenized as NotTokenized
    from data_loading.find.mixed_data import MixedData as MixedData
    from data_loading.find.mixed_data import named_source as named_source
    from data_loading.find.mixed_data import prepare_run as prepare_run
    from data_loading.find.open_tokens import open_tokens as open_tokens
    from data_loading.find.prepare import prepare_data as prepare_data
    from data_loading.hub_stream.hub_stream import HubStream as HubStream
    from data_loading.hub_stream.materializing import materialize as materialize
    from data_loading.hub_stream.open_stream import open_stream as open_stream
    from data_loading.hub_stream.stream_loader import StreamLoader as StreamLoader
    from data_loading.loader.loader import Loader as Loader
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
    "Data": "dataset.split_data",
    "HubStream": "hub_stream.hub_stream",
    "Loader": "loader.loader",
    "MixedData": "find.mixed_data",
    "NotTokenized": "find.locate",
    "StreamLoader": "hub_stream.stream_loader",
    "StreamingDataset": "dataset.streaming_dataset",
    "StreamingMixture": "mixture.streaming_mixture",
    "Tokenizer": "tokenizers.tokenizer",
    "Tokens": "tokens.tokens",
    "bigram_loss": "dataset.baselines",
    "bytes_per_id": "tokenizers.bytes_per_token",
    "list_datasets": "find.catalogue",
    "floor_loss": "dataset.baselines",
    "load_tokenizer": "tokenizers.load",
    "materialize": "hub_stream.materializing",
    "named_source": "find.mixed_data",
    "open_held_out": "find.from_config",
    "open_stream": "hub_stream.open_stream",
    "open_token_set": "tokens.token_set",
    "open_tokens": "find.open_tokens",
    "open_train": "find.from_config",
    "prepare_data": "find.prepare",
    "prepare_run": "find.mixed_data",
    "pretokenize": "pretokenizer.job",
    "tokenizer_spec": "tokenizers.load",
    "train_schedule": "find.from_config",
    "train_windows": "find.from_config",
}

__all__ = list(_PLACES)


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)
