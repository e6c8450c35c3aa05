"""Encodings by their names: what the package tiktoken, where it is installed, makes of them."""

from __future__ import annotations

import logging
import textwrap
from typing import Any

from data_loading.tokenizers.tiktoken import TiktokenTokenizer, checked, ranks_text
from data_loading.tokenizers.tokenizer import TokenizerNotFound
from experiment_utils.errors import UserError
from experiment_utils.extras import PACKAGE_MISSING, install_command

log = logging.getLogger("data_loading")

PREFIX = "tiktoken:"
OF_OPENAI = ("r50k_base", "p50k_base", "p50k_edit", "cl100k_base", "o200k_base", "o200k_harmony")
"""Names that are known even where the package is not installed. `gpt2` alone is the Hugging Face one."""


def full_name(name: str) -> str | None:
    """`tiktoken:NAME` of an encoding that was named with or without the prefix; None for another thing.

    Raises:
        UserError: it has the prefix, and tiktoken has no such encoding.
    """
    if name.startswith(PREFIX):
        known = _names()
        if known and name.removeprefix(PREFIX) not in known:
            raise _unknown(name, known)
        return name
    is_one = name in OF_OPENAI or ("/" not in name and name in _names())
    return PREFIX + name if is_one else None


def load_encoding(full: str) -> TiktokenTokenizer:
    """The tokenizer `tiktoken:NAME`. tiktoken fetches the ranks of its own encodings once, into its cache.

    Raises:
        TokenizerNotFound: tiktoken is not installed, has no such encoding, or cannot fetch its ranks.
        UserError: the encoding cannot be used.
    """
    name = full.removeprefix(PREFIX)
    try:
        import tiktoken
    except ImportError as error:
        raise TokenizerNotFound(
            f"tokenizer {full} needs the package tiktoken ({error}): {install_command('tiktoken')}",
            code=PACKAGE_MISSING,
        ) from None
    if name not in _names():
        raise _unknown(full, _names())
    log.info("tokenizer %s: asking tiktoken, which fetches ranks that are not in its cache", full)
    try:
        encoding: Any = tiktoken.get_encoding(name)
    except OSError as error:  # requests raises kinds of it, too
        raise TokenizerNotFound(_unfetched(full, error)) from error
    except Exception as error:  # any package can define an encoding
        why = str(error).partition("\n")[0]
        raise UserError(
            f"tokenizer {full}: tiktoken cannot make it ({type(error).__name__}: {why}). If this is a "
            "damaged download, try again",
            code="tiktoken-encoding-broken",
        ) from error
    found = checked(
        TiktokenTokenizer(
            full, encoding._pat_str, dict(encoding._special_tokens), ranks_text(encoding._mergeable_ranks)
        )
    )
    if found.unused_ids:
        log.info(
            "tokenizer %s: %s ids, of which %s are unused",
            *(full, f"{found.vocab_size:,}", f"{found.unused_ids:,}"),
        )
    return found


def _names() -> list[str]:
    """Names of the encodings of tiktoken; empty if it is not installed."""
    try:
        import tiktoken
    except ImportError:
        return []
    try:
        return sorted(tiktoken.list_encoding_names())
    except Exception as error:  # any package can be a plugin of tiktoken
        raise UserError(
            f"tiktoken cannot list its encodings: {error}. One of the packages that add encodings to it "
            "(modules of tiktoken_ext) is broken: uninstall it",
            code="tiktoken-plugin-broken",
        ) from error


def _unknown(full: str, known: list[str]) -> TokenizerNotFound:
    choices = ", ".join(PREFIX + name for name in known)
    return TokenizerNotFound(f"tokenizer {full}: tiktoken has no encoding of that name. Choices: {choices}")


def _unfetched(full: str, error: OSError) -> str:
    name = full.removeprefix(PREFIX)
    why = textwrap.shorten(str(error), 200, placeholder=" ...")
    return (
        f"tokenizer {full}: its ranks are not in tiktoken's cache and cannot be fetched "
        f"({type(error).__name__}: {why})\n"
        "On a machine with network, fetch them and copy the folder here:\n"
        "  TIKTOKEN_CACHE_DIR=tiktoken_cache python -c "
        f"'import tiktoken; tiktoken.get_encoding(\"{name}\")'\n"
        "then set TIKTOKEN_CACHE_DIR=tiktoken_cache here too"
    )
