"""Table of the datasets that are known by a short name, with their repositories on the hub.

Sizes are the publishers' own figures, rounded.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Known:
    """A dataset on the hub."""

    name: str
    what: str
    repository: str
    config: str | None = None
    """Configuration (`subset`) that is read; None: the default one."""
    revision: str | None = None
    """None: the newest."""
    splits: tuple[str, ...] = ("train",)
    """Splits as published."""
    text_field: str = "text"
    size: str = ""
    """Expected size, as text."""
    licence: str | None = None
    tokenizer: str = "gpt2"
    """Tokenizer of `conf/dataset/NAME.yaml`."""
    needs: str | None = None
    """Package that is needed in addition to `datasets`."""


_PARQUET = "refs/convert/parquet"
"""The hub's own copy of a dataset whose publisher has only a script, which `datasets` no longer runs."""

_TABLE = (
    Known(
        "fineweb", "web pages of Common Crawl, filtered and deduplicated", "HuggingFaceFW/fineweb",
        size="15T tokens, 44 TB", licence="odc-by",
    ),
    Known(
        "fineweb-edu", "the educational pages of fineweb", "HuggingFaceFW/fineweb-edu",
        size="1.3T tokens", licence="odc-by",
    ),
    Known(
        "pile", "the Pile without its copyrighted parts", "monology/pile-uncopyrighted",
        splits=("train", "validation", "test"), size="about 177M documents", needs="zstandard",
    ),
    Known(
        "tiny_shakespeare", "40,000 lines of Shakespeare's plays", "karpathy/tiny_shakespeare",
        revision=_PARQUET, splits=("train", "validation", "test"), size="1.1 MB",
    ),
    Known(
        "shakespeare", "the same text as tiny_shakespeare, by the other name in use",
        "karpathy/tiny_shakespeare", revision=_PARQUET, splits=("train", "validation", "test"), size="1.1 MB",
    ),
    Known(
        "wikitext103", "good and featured articles of Wikipedia", "Salesforce/wikitext",
        config="wikitext-103-raw-v1", splits=("train", "validation", "test"), size="100M words, 540 MB",
        licence="cc-by-sa-3.0",
    ),
    Known(
        "openwebtext", "pages that Reddit linked to, as WebText had them", "Skylion007/openwebtext",
        size="8M documents, 40 GB", licence="cc0-1.0",
    ),
    Known(
        "c4", "English pages of Common Crawl of April 2019, cleaned", "allenai/c4", config="en",
        splits=("train", "validation"), size="365M documents, 305 GB compressed", licence="odc-by",
    ),
    Known(
        "dclm", "DCLM-baseline: Common Crawl, filtered by a model of quality",
        "mlfoundations/dclm-baseline-1.0-parquet", size="4T tokens, 3B documents", licence="cc-by-4.0",
    ),
)  # fmt: skip

REGISTRY = {known.name: known for known in _TABLE}


def known_repository(repository: str) -> Known | None:
    """Return the entry of a repository; None without one."""
    return next((known for known in _TABLE if known.repository == repository), None)
