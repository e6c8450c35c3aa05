"""Names of text files: suffixes by kind, suffixes of compression, the token set of a text."""

from __future__ import annotations

from pathlib import Path

from data_loading.text_io.compression import SUFFIXES

DEFAULT_FOLDER = Path("Datasets")
TEXT_SUFFIXES = (".txt",)
JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
TABLE_SUFFIXES = (".parquet", ".arrow")


def bare_name(name: str) -> str:
    """The name of a file without the suffix of a compression."""
    return next((name[: -len(end)] for end in SUFFIXES if name.lower().endswith(end)), name)


def has_known_suffix(name: str) -> bool:
    """Whether a folder's file of this name is one of its texts (a plain .json can be anything)."""
    bare = bare_name(name).lower()
    if name.lower().endswith((".json", *TABLE_SUFFIXES)):
        return name.lower().endswith(".parquet")
    return bare.endswith((*TEXT_SUFFIXES, *JSON_SUFFIXES))


def tokens_for(text: Path) -> Path:
    """X.npy for X.txt, X.jsonl.zst ...; for a text of another name, that name with .npy added."""
    name = bare_name(text.name)
    known = (*TEXT_SUFFIXES, *JSON_SUFFIXES, *TABLE_SUFFIXES)
    suffix = next((suffix for suffix in known if name.lower().endswith(suffix)), "")
    return text.with_name((name[: -len(suffix)] if suffix else text.name) + ".npy")
