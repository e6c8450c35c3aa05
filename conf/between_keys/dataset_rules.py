"""Rules between keys of `dataset=`; those of a mixture: `conf.between_keys.mixture_rules`."""

from __future__ import annotations

import codecs

from conf.schema import AUTO, Config, Dataset
from experiment_utils.errors import Problem

OF_THE_HUB = ("hub_split", "text_field", "materialize", "materialize_tokens", "buffer_windows")
"""Keys of hf:// alone."""
STORES = ("s3://", "r2://", "https://", "http://")


def known_encoding(config: Config) -> list[Problem]:
    """Python knows the encoding, and it is one of text."""
    name = config.dataset.encoding
    try:
        is_text = codecs.lookup(name)._is_text_encoding
    except (LookupError, ValueError):
        is_text = False
    if is_text:
        return []
    return [
        Problem(
            "dataset.encoding",
            f"Python knows no text encoding `{name}`; usual: utf-8, latin-1, cp1252, utf-16",
        )
    ]


def one_held_out_share(config: Config) -> list[Problem]:
    """Each split is given once: by its own files, in tokens, or as a share."""
    dataset, problems = config.dataset, []
    if dataset.val_path is not None and dataset.val_tokens is not None:
        problems.append(
            Problem(
                "dataset.val_tokens",
                f"val is all of dataset.val_path={dataset.val_path}. Take one of the two away (=null)",
            )
        )
    if dataset.val_path is not None and dataset.val_fraction != Dataset().val_fraction:
        problems.append(
            Problem(
                "dataset.val_fraction",
                f"val is all of dataset.val_path={dataset.val_path}. Take one of the two away",
            )
        )
    if dataset.val_tokens is not None and dataset.val_fraction != Dataset().val_fraction:
        problems.append(
            Problem(
                "dataset.val_tokens",
                f"dataset.val_fraction={dataset.val_fraction} is given too: each says how much is held out. "
                "Take one away",
            )
        )
    if dataset.test_tokens is not None and dataset.test_fraction:
        problems.append(
            Problem(
                "dataset.test_tokens",
                f"dataset.test_fraction={dataset.test_fraction} is given too: each says how much is held "
                "out. Take one away (test_tokens=null or test_fraction=0)",
            )
        )
    return problems


def only_of_stores(config: Config) -> list[Problem]:
    """What is said of fetching goes with something that is fetched."""
    dataset, plain = config.dataset, Dataset()
    paths = [dataset.path, dataset.val_path, *dataset.sources]
    if any(path is not None and path.startswith(STORES) for path in paths):
        return []
    return [
        Problem(f"dataset.{name}", f"it is of token sets in stores ({', '.join(STORES)}). Take it away")
        for name in ("disk_budget", "download_workers", "part_size")
        if getattr(dataset, name) != getattr(plain, name)
    ]


def text_of_stdlib(config: Config) -> list[Problem]:
    """Python's own source code is read as it is, and a part of it is held out."""
    dataset, plain = config.dataset, Dataset()
    return [
        Problem(
            f"dataset.{name}", "dataset=stdlib is Python's own source code: it would do nothing. Take it away"
        )
        for name in ("document_separator", "encoding", "errors", "val_path")
        if dataset.source == "stdlib" and getattr(dataset, name) != getattr(plain, name)
    ]


def options_of_an_order(config: Config) -> list[Problem]:
    """What an order needs to be told, and that packed rows have no files."""
    dataset, problems, plain = config.dataset, [], Dataset()
    for name, order in (("block_windows", "shuffled_blocks"), ("shard_windows", "shuffled_shards")):
        if getattr(dataset, name) != getattr(plain, name) and dataset.order != order:
            problems.append(
                Problem(
                    f"dataset.{name}",
                    f"it is of dataset.order={order}, and the order is {dataset.order}. Take one away",
                )
            )
    if dataset.documents == "separate" and dataset.order == "shuffled_shards":
        problems.append(
            Problem(
                "dataset.order",
                "documents=separate are packed over the whole split, so that no file is read by itself. Take "
                "dataset.order=shuffled, or dataset.documents=masked",
            )
        )
    return problems


def bound_of_a_map(config: Config) -> list[Problem]:
    """max_resident bounds what mmap maps, and other readers map nothing."""
    dataset = config.dataset
    if dataset.max_resident is None or dataset.reader in (AUTO, "mmap"):
        return []
    return [
        Problem(
            "dataset.max_resident",
            f"it bounds what dataset.reader=mmap maps; {dataset.reader} maps nothing. Take one of them away",
        )
    ]


def files_of_computed_tokens(config: Config) -> list[Problem]:
    """Nothing is asked of tokens that are computed which is done with files, or with documents they lack."""
    dataset = config.dataset
    if dataset.path is None or not dataset.path.startswith("synthetic:"):
        return []
    problems = [
        Problem(
            f"dataset.{name}",
            f"the tokens of dataset.path={dataset.path} are computed, there is no file to read. Take it away",
        )
        for name, default in (("reader", AUTO), ("max_resident", None), ("verify", "set"))
        if getattr(dataset, name) != default
    ]
    if dataset.documents != "across" and not dataset.path.startswith("synthetic:copy"):
        problems.append(
            Problem(
                "dataset.documents",
                f"of computed tokens only synthetic:copy has documents, not {dataset.path}",
            )
        )
    return problems


def windows_of_one_kind(config: Config) -> list[Problem]:
    """Shifted windows and streams have stride, shift and order of their own; whole documents no stride."""
    dataset, problems = config.dataset, []
    if dataset.windows == "plain" and dataset.documents == "separate" and dataset.stride is not None:
        problems.append(
            Problem("dataset.stride", "dataset.documents=separate are cut where they end. Take it away")
        )
    if dataset.windows == "plain":
        return problems
    if dataset.documents != "across":
        problems.append(
            Problem(
                "dataset.documents",
                f"{dataset.documents} goes with dataset.windows=plain, not {dataset.windows}. Take one away",
            )
        )
    for name, default in (("stride", None), ("shift", 1)):
        if getattr(dataset, name) != default:
            problems.append(
                Problem(f"dataset.{name}", f"dataset.windows={dataset.windows} has its own. Take it away")
            )
    if dataset.windows == "streams" and dataset.order in ("shuffled_blocks", "shuffled_shards"):
        problems.append(Problem("dataset.order", "dataset.windows=streams is read in rows. Take it away"))
    return problems


def only_of_the_hub(config: Config) -> list[Problem]:
    """What says something of hf:// is given with it."""
    dataset, plain = config.dataset, Dataset()
    is_hub = dataset.source == "hf" or (dataset.path or "").startswith("hf://")
    problems = [
        Problem(
            f"dataset.{name}",
            "it is of datasets of the hub, and this is none (dataset.path=hf://ORG/NAME). Take it away",
        )
        for name in OF_THE_HUB
        if not is_hub and getattr(dataset, name) != getattr(plain, name)
    ]
    if is_hub and dataset.materialize_tokens is not None and not dataset.materialize:
        problems.append(
            Problem(
                "dataset.materialize_tokens",
                "a stream is read as far as the budget needs. Take it away, or add dataset.materialize=true",
            )
        )
    return problems


def one_line_separator(config: Config) -> list[Problem]:
    """The document separator is one line that is not empty."""
    separator = config.dataset.document_separator
    if separator is None or (separator and "\n" not in separator and "\r" not in separator):
        return []
    return [
        Problem(
            "dataset.document_separator", "expected the one line that stands between two documents, or null"
        )
    ]
