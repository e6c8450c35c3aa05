"""Samples of a text and of its tokens, encoded again with the reference tokenizer."""

from __future__ import annotations

import mmap
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from data_loading.audit.result import Finding
from data_loading.pretokenizer.manifest import is_limited
from data_loading.text_io.text_file import lines_equal_to
from data_loading.tokenizers.tokenizer import Tokenizer
from data_loading.tokens.set_files import SetFiles
from data_loading.tokens.shards import Shards

SAMPLES = 64
LEAST_SAMPLES = 4
"""Of each text, where there are many."""
SAMPLE_TOKENS = 4096
SAMPLE_BYTES = 16384
_READ_TOKENS = 1 << 24


def samples(
    files: SetFiles, manifest: dict[str, Any], tokens: Shards, starts: Shards, tokenizer: Tokenizer
) -> Iterator[Finding]:
    """Samples of the text, which must stand in the tokens, and of the tokens, encoded again from their text.

    Both begin and end where the text may be cut, so that they may be encoded by themselves.
    """
    if not tokenizer.cut_rule.exists:
        yield Finding("sample", None, f"this tokenizer allows no cut ({tokenizer.cut_rule.why_none})")
        return
    yield from _texts_in_tokens(files, manifest, tokens, tokenizer)
    yield _tokens_again(manifest, tokens, starts, tokenizer)


def _texts_in_tokens(
    files: SetFiles, manifest: dict[str, Any], tokens: Shards, tokenizer: Tokenizer
) -> Iterator[Finding]:
    """Of each plain text: samples all over it."""
    sources, before = manifest["sources"], 0
    for source in sources:
        path, length = files.tokens.parent / source["path"], source.get("tokens", len(tokens))
        if _is_plain(path, source, manifest):
            here = range(before, before + length)
            samples = max(LEAST_SAMPLES, SAMPLES // len(sources))
            yield _text_in_tokens(manifest, path, tokens, here, tokenizer, samples)
        before += length


def _is_plain(path: Path, source: dict[str, Any], manifest: dict[str, Any]) -> bool:
    """Whether what stands in the file of a source is what its tokens were made from, byte for byte."""
    options = manifest["options"]
    return (
        path.is_file()
        and path.stat().st_size == source["bytes"]
        and not {"skipped", "nulls", "compression", "read_bytes"} & source.keys()
        and not options.get("clean")
        and not options.get("dedup")
        and not is_limited(manifest)
        and (options.get("encoding", "utf-8"), options.get("errors", "strict")) == ("utf-8", "strict")
    )


def _text_in_tokens(
    manifest: dict[str, Any], text: Path, tokens: Shards, here: range, tokenizer: Tokenizer, samples: int
) -> Finding:
    """here: where the tokens of this text stand."""
    said = manifest["options"].get("document_separator")
    separator = None if said is None else said.encode()
    found, compared = 0, 0
    with open(text, "rb") as file:
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        for place in _places(len(content), samples):
            part = _safe_part(_of_one_document(content, place, separator), tokenizer)
            if not part:
                continue
            expected = tokenizer.encode(part.decode()).astype(tokens.dtype)
            compared += len(part)
            about = here.start + place * len(here) // len(content)
            if not _stand_in(tokens, expected, about):
                told = f"{part[:40].decode(errors='replace')!r}... of {text} (near byte {place:,})"
                return Finding("text sample", False, f"the ids of {told} are not in the tokens")
            found += 1
    of, places = _count(compared, "byte"), _count(found, "place")
    told = f"the ids of {of} from {places} of {text.name} are there" if found else "none can be cut out"
    return Finding("text sample", True if found else None, told)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"


def _stand_in(tokens: Shards, expected: np.ndarray, token: int) -> bool:
    """Whether the ids stand there; looked for first about where this token is."""
    blocks = range(0, len(tokens), _READ_TOKENS)
    about = token // _READ_TOKENS
    wanted = expected.tobytes()
    for block in sorted(blocks, key=lambda start: abs(start // _READ_TOKENS - about)):
        held = tokens[block : block + _READ_TOKENS + len(expected)].tobytes()
        at = held.find(wanted)
        while at >= 0 and at % tokens.dtype.itemsize:
            at = held.find(wanted, at + 1)
        if at >= 0:
            return True
    return False


def _tokens_again(manifest: dict[str, Any], tokens: Shards, starts: Shards, tokenizer: Tokenizer) -> Finding:
    appended, put_before = manifest["tokenizer"]["eot_appended"], "bos_id" in manifest["tokenizer"]
    compared = 0
    for place in _places(len(tokens)):
        document = bisect_right(starts, place) - 1
        last = starts[document + 1] if document + 1 < len(starts) else len(tokens)
        place = max(place, int(starts[document]) + put_before)
        ids = tokens[place : min(last - appended, place + SAMPLE_TOKENS)]
        part = _safe_part(tokenizer.decode(ids).encode(), tokenizer).decode()
        expected = tokenizer.encode(part)
        if not part or "\ufffd" in part or tokenizer.decode(expected) != part:
            continue  # cut inside a character, or a tokenizer that does not give back its text
        compared += len(expected)
        if not _holds(ids, expected):
            told = f"from token {place:,} on there are others than those of {part[:40]!r}..."
            return Finding("token sample", False, told)
    if not compared:
        return Finding("token sample", None, "this tokenizer does not give back its text")
    return Finding("token sample", True, f"{compared:,} decoded and encoded again are the same")


def _places(length: int, samples: int = SAMPLES) -> list[int]:
    """The beginning and places all over, the same ones each time."""
    return sorted({0, *map(int, np.random.default_rng(0).integers(0, length, samples))})


def _of_one_document(content: mmap.mmap, place: int, separator: bytes | None) -> bytes:
    """What follows a place of the text up to the end of a document, at most SAMPLE_BYTES.

    A place in a separator line stands for the document behind it.
    """
    if separator is None:
        return content[place : place + SAMPLE_BYTES]
    around = len(separator) + len("\n\r\n")  # so that a separator at either end is seen whole
    low = max(0, place - around)
    seen = content[low : place + SAMPLE_BYTES + around]
    begin, end = place - low, place - low + SAMPLE_BYTES
    at_line_start = low == 0 or content[low - 1 : low] == b"\n"
    for start, stop in lines_equal_to(separator, seen, at_line_start=at_line_start):
        if start > begin:
            end = min(end, start)
            break
        begin = max(begin, stop)
    return seen[begin:end]


def _safe_part(data: bytes, tokenizer: Tokenizer) -> bytes:
    """What of a sample may be encoded by itself; empty where nothing may."""
    from data_loading.tokenizers.cutting.cuts import first_cut, last_cut

    rule = tokenizer.cut_rule
    begin, end = first_cut(data, rule, 0), last_cut(data, rule, 0, len(data))
    return b"" if begin is None or end is None else data[begin + rule.drop_space : end]


def _holds(ids: np.ndarray, part: np.ndarray) -> bool:
    """Whether `part` stands somewhere in `ids`."""
    places = np.flatnonzero(ids[: len(ids) - len(part) + 1] == part[0])
    return any(np.array_equal(ids[place : place + len(part)], part) for place in places)
