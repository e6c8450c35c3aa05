"""Sets to export: small ones on disk, and any documents in memory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from data_loading.export_formats import load_format
from data_loading.export_formats.contents import GPT2_CONTENT, Contents
from data_loading.export_formats.export import contents_of
from data_loading.export_formats.export_files import ExportWriter
from data_loading.pretokenizer.job import Options, pretokenize
from data_loading.text_io.text_file import TextFile
from data_loading.tokenizers.tokenizer import BytesTokenizer
from data_loading.tokens.token_set import TokenSet

EOT = BytesTokenizer.eot_id


def set_of(
    documents: Sequence[Sequence[int]],
    *,
    eot: int | None = EOT,
    vocab_size: int = 257,
    content: str = "0" * 64,
) -> TokenSet:
    """The set of these documents, in memory. eot: appended to each."""
    ends = [] if eot is None else [eot]
    whole = [[*ids, *ends] for ids in documents]
    starts = np.cumsum([0, *map(len, whole)])[:-1].astype("<u8")
    tokens = np.concatenate(whole).astype("<u2" if vocab_size <= 1 << 16 else "<u4")
    tokenizer = {
        "name": "mine", "content_hash": content, "vocab_size": vocab_size, "eot_id": eot,
        "eot_appended": eot is not None,
    }  # fmt: skip
    manifest = {"tokenizer": tokenizer, "sources": [{"path": "a.txt"}]}
    return TokenSet(Path("a.npy"), tokens, starts, manifest, vocab_size, "f" * 64)


def gpt2_set(documents: Sequence[Sequence[int]]) -> TokenSet:
    """A set that says that it is of GPT-2's tokenizer."""
    return set_of(documents, eot=50_256, vocab_size=50_257, content=GPT2_CONTENT)


def written(name: str, folder: Path, *sets: TokenSet) -> Contents:
    """Write sets in a format into `folder`, as `a`."""
    folder.mkdir(exist_ok=True)
    format_ = load_format(name)
    contents = contents_of(format_, sets, Path(f"a.{name}"))
    format_.write(contents, BytesTokenizer(), ExportWriter(folder))
    return contents


def tokenized(text: Path, words: str) -> Path:
    """The set, on disk, of a text with these words, each a document."""
    text.write_text("\n-\n".join(words.split()))
    output = text.with_suffix(".npy")
    pretokenize(
        TextFile(text, document_separator="-"),
        BytesTokenizer(),
        output,
        Options(overwrite=True, engine="bytes"),
    )
    return output


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """a.npy: 120 documents, so that val begins with one."""
    return tokenized(tmp_path / "a.txt", " ".join(f"word{n}" for n in range(120)))
