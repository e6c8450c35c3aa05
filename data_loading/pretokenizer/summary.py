"""Summary of a set that was made: what it holds, how it was made, and the next command."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from conf.composing.overrides import typed_at
from conf.schema import DEFAULT_EFFECTIVE_BATCH, Dataset, Tokenizer, Training
from data_loading.dataset.splits import other_ranges
from data_loading.pretokenizer.job import Result
from data_loading.pretokenizer.manifest import is_limited, text_bytes_of
from data_loading.tokenizers.load import KNOWN
from data_loading.tokens.read_manifest import read_manifest
from data_loading.tokens.set_files import SetFiles, other_halves
from memory import format_bytes

DTYPES = {"<u2": "uint16", "<u4": "uint32"}


def facts_of(result: Result) -> dict[str, Any]:
    """Facts of the result for `--json`."""
    return {
        "path": str(result.path),
        "made": result.made,
        "tokens": result.manifest["tokens"],
        "text_tokens": result.text_tokens,
        "documents": result.manifest["documents"],
        "text_bytes": result.text_bytes,
        "file_bytes": result.file_bytes,
        "shards": len(result.manifest.get("shards", [])) or None,
        "val": result.manifest.get("val"),
        "dtype": result.manifest["dtype"],
        "tokenizer": result.manifest["tokenizer"],
        "engine": result.manifest["engine"],
        "fingerprint": result.manifest["fingerprint"],
        "seconds": round(result.seconds, 3),
        "peak_memory_bytes": result.peak_bytes,
    }


def summary_of(result: Result) -> str:
    """Lines of 80 columns (paths are not broken): the set, the text, the ids, and how it was made."""
    manifest = result.manifest
    size = f"{format_bytes(result.file_bytes)} ({DTYPES[manifest['dtype']]})"
    if "shards" in manifest:
        size += f", {_count(len(manifest['shards']), 'shard')}"
    what = f"{_count(result.text_tokens, 'token')} of text in {_count(manifest['documents'], 'document')}"
    rows: dict[str, str] = {}
    if not _is_partly_read(result):
        read_bytes, is_text = text_bytes_of(manifest), "text_field" not in manifest["options"]
        each = read_bytes / max(1, result.text_tokens)
        rows["text" if is_text else "input"] = format_bytes(read_bytes) + (
            f", {each:.2f} bytes per token" if is_text else ""
        )
    rows["tokenizer"] = _tokenizer(manifest["tokenizer"])
    if "val" in manifest:
        ranges = manifest["val"]["ranges"]
        held_out = _count(sum(stop - start for start, stop in ranges), "token")
        rows["held out"] = held_out if len(ranges) > 1 else f"the last {held_out}"
    rows["made"] = _made(result)
    return "\n".join(
        [f"{result.path}: {what}, {size}", *(f"  {name:<11}{value}" for name, value in rows.items())]
    )


def _tokenizer(facts: dict[str, Any]) -> str:
    around = [f"end-of-text id {facts['eot_id']} after"] if facts["eot_appended"] else []
    around += [f"begin-of-text id {facts['bos_id']} before"] if "bos_id" in facts else []
    return facts["name"] + (f", {' and '.join(around)} each document" if around else "")


def _made(result: Result) -> str:
    if not result.made:
        return "up to date: nothing to do (--overwrite makes it again)"
    rate = "" if _is_partly_read(result) else f" ({result.text_bytes / 1e6 / result.seconds:.1f} MB/s)"
    memory = "" if result.peak_bytes is None else f", at most {format_bytes(result.peak_bytes)} of memory"
    return f"in {result.seconds:.1f} s{rate} by engine {result.manifest['engine']['name']}{memory}"


def _is_partly_read(result: Result) -> bool:
    """Whether a limit ended a source that does not know how much of it was read."""
    return is_limited(result.manifest) and "read_bytes" not in result.manifest["sources"][-1]


def next_command(results: list[Result], spec: Tokenizer, *, is_usual_stdlib: bool) -> str:
    """The command that trains on the set, or why there is none.

    is_usual_stdlib: a run finds the set without its path.
    """
    if is_usual_stdlib:
        train = [] if spec.name == "bytes" else _overrides(spec)
    else:
        keys = ("dataset.path", "dataset.val_path")
        paths = [
            f"{key}={typed_at(key, str(result.path))}" for key, result in zip(keys, results, strict=False)
        ]
        manifests = [result.manifest for result in results]
        halves = _halves(results[0].path) if len(results) == 1 else None
        if halves is not None:
            stem, manifests = halves
            paths = [f"dataset.path={typed_at('dataset.path', str(stem))}"]
        fitting = _fitting(manifests)
        if fitting is None:
            return "too short to train on: two tokens are needed to train on and two to hold out"
        train = ["dataset=text", *paths, *_overrides(spec), *fitting]
    return f"next: {shlex.join(['python', 'experiments.py', 'model=32d', *train])}"


def _halves(path: Path) -> tuple[Path, list[dict[str, Any]]] | None:
    """X, and the manifests of X_train and X_validation: the set is one of them, the other is there."""
    others = [other.tokens for other in other_halves(SetFiles(path)) if other.exists]
    if len(others) != 1:
        return None
    train, val = sorted((path, others[0]), key=lambda half: not SetFiles(half).stem.name.endswith("_train"))
    manifests = [manifest for half in (train, val) if (manifest := read_manifest(half)) is not None]
    stem = SetFiles(train).stem
    return (stem.with_name(stem.name.removesuffix("_train")), manifests) if len(manifests) == 2 else None


def _fitting(manifests: list[dict[str, Any]]) -> list[str] | None:
    """Options for a text that is too short for the usual windows and batches; None if none helps."""
    to_train, held_out = _lengths(manifests)
    shortest = min(max(to_train, default=0), max(held_out, default=0)) - 1
    if shortest < 1:
        return None
    seq_len = min(Training().seq_len, 1 << (shortest.bit_length() - 1))
    batch = min(DEFAULT_EFFECTIVE_BATCH, sum((length - 1) // seq_len for length in to_train))
    needed = {"seq_len": (seq_len, Training().seq_len), "effective_batch": (batch, DEFAULT_EFFECTIVE_BATCH)}
    return [f"training.{key}={fits}" for key, (fits, usual) in needed.items() if fits != usual]


def _lengths(manifests: list[dict[str, Any]]) -> tuple[list[int], list[int]]:
    """Tokens of each stretch to train on, and of each that is held out."""
    tokens = [manifest["tokens"] for manifest in manifests]
    if len(tokens) == 2:
        return [tokens[0]], [tokens[1]]
    if "val" in manifests[0]:
        val = [range(*given) for given in manifests[0]["val"]["ranges"]]
        return [len(part) for part in other_ranges(tokens[0], val)], [len(part) for part in val]
    held_out = round(tokens[0] * Dataset().val_fraction)
    return [tokens[0] - held_out], [held_out]


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"


def _overrides(spec: Tokenizer) -> list[str]:
    """Options of `experiments.py` for the same tokenizer."""
    if spec.path is not None:
        return ["tokenizer=custom", f"tokenizer.path={typed_at('tokenizer.path', spec.path)}"]
    if spec.name not in KNOWN:
        return ["tokenizer=custom", f"tokenizer.repo={spec.repo}"]
    return [f"tokenizer={spec.name}"]
