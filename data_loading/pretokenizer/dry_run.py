"""Plan of a command without doing it: `pretokenize_dataset.py ... --dry-run`."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_loading.pretokenizer.disk_space import UNSURE, device_of, free_bytes, held_bytes
from data_loading.pretokenizer.engines.registry import choose_engine, most_memory_bytes
from data_loading.pretokenizer.inputs.concatenated import Inputs, as_inputs
from data_loading.pretokenizer.make_set import workers_for
from data_loading.pretokenizer.options import Options
from data_loading.pretokenizer.resume import base_of, goes_on, job_of, up_to_date
from data_loading.pretokenizer.token_forecast import Forecast, forecast
from data_loading.text_io.chunks import not_utf8
from data_loading.text_io.source import Source
from data_loading.tokenizers.special_tokens import probes
from data_loading.tokenizers.tiktoken import TiktokenTokenizer
from data_loading.tokenizers.tokenizer import JsonTokenizer, Tokenizer
from data_loading.tokens.set_files import SetFiles
from experiment_utils.errors import UserError
from experiment_utils.quantities import format_count, format_duration
from memory import format_bytes

_LABEL, _WIDTH = 11, 80
_KB = 1 << 10
_ROUGHLY = 1.1
"""Factor by which tokens of a text with samples all over are seldom wrong."""
_MOST_BYTES_PER_S = 400e6
"""Speed of reading, checksums and writing, which no encoder shortens."""


@dataclass(frozen=True)
class SetPlan:
    """The token set that a command would make.

    facts: for `--json`; None for what is not known, sizes in bytes. lines: the same as text of 80 columns
    (paths are not broken).
    """

    facts: dict[str, Any]
    lines: list[str]


def make_plan(
    source: Source | Inputs,
    tokenizer: Tokenizer,
    output: Path,
    options: Options,
    log: Callable[[str], None] = lambda line: None,
    before: Sequence[SetPlan] = (),
) -> SetPlan:
    """Look at samples of the source and at the place of the set; nothing is written.

    Args:
        before: Plans of sets that the same command makes first, which take room.

    Raises:
        UserError: the source cannot be read (twice), its first text is none, or no engine encodes it.
    """
    inputs, files = as_inputs(source), SetFiles(output)
    if not inputs.can_continue:
        raise UserError(
            "--dry-run reads samples, and standard input can be read once. Write it to a file, and plan that",
            code="input-not-readable-twice",
        )
    for note in inputs.notes:
        log(note)
    state, refusal, tokens = _at_the_place(files, inputs, tokenizer, options)
    size = "unknown size" if inputs.total_bytes is None else f"{inputs.total_bytes / 1e6:,.1f} MB"
    rows = {"input": f"{inputs.what}, {size}", "output": f"{output} ({state})", "refused": refusal or ""}
    facts: dict[str, Any] = {
        "path": str(output),
        "state": state,
        "refusal": refusal,
        "input_bytes": inputs.total_bytes,
        "tokenizer": tokenizer.name,
        "tokens": tokens,
        "is_exact": True,
        "documents": None,
        "text_bytes": None,
        "is_limited": False,
        "sampled_bytes": 0,
        "engine": None,
        "workers": 0,
        "seconds": None,
        "disk_bytes": None,
        "free_bytes": free_bytes(output),
        "most_memory_bytes": None,
    }
    if tokens is not None:
        rows["tokens"] = f"{tokens:,}"
        return SetPlan(facts, _lines(rows))
    _check_first_text(inputs)
    choice = choose_engine(tokenizer, [*inputs.samples(), *probes(tokenizer)], log, options.engine)
    workers = workers_for(choice.engine, inputs, options)
    found = forecast(inputs, tokenizer, choice.engine)
    same_disk = [plan.facts for plan in before if device_of(Path(plan.facts["path"])) == device_of(output)]
    facts["free_bytes"] += held_bytes(files.partial) - sum(plan["disk_bytes"] or 0 for plan in same_disk)
    seconds = None
    if found.text_bytes is not None and found.bytes_per_s:
        seconds = found.text_bytes / min(found.bytes_per_s * max(1, workers), _MOST_BYTES_PER_S)
    disk_bytes = None if found.disk_bytes is None else found.disk_bytes + _tokenizer_bytes(tokenizer)
    facts |= {
        "tokens": _rounded(found.tokens),
        "is_exact": found.is_complete,
        "documents": _rounded(found.documents),
        "text_bytes": _rounded(found.text_bytes),
        "is_limited": found.is_limited,
        "sampled_bytes": found.sampled_bytes,
        "engine": choice.facts,
        "workers": workers,
        "seconds": seconds,
        "disk_bytes": disk_bytes,
        "most_memory_bytes": most_memory_bytes(tokenizer, options.engine, workers),
    }
    rows |= _forecast_rows(facts, found, tokenizer, output, may_shrink=inputs.may_shrink)
    facts["seconds"] = None if seconds is None else round(seconds, 3)
    return SetPlan(facts, _lines(rows))


def _forecast_rows(
    facts: dict[str, Any], found: Forecast, tokenizer: Tokenizer, output: Path, *, may_shrink: bool
) -> dict[str, str]:
    """Rows of a set that is to be made. may_shrink: cleaning can leave text out."""
    about, rule = "" if found.is_complete else "about ", tokenizer.cut_rule
    more = " --clean and --dedup" if may_shrink else ""
    rows = {
        "tokenizer": f"{tokenizer.name} ({tokenizer.vocab_size:,} ids, uint{8 * found.token_bytes})",
        "engine": f"{facts['engine']['name']} {facts['engine']['version']}",
        "cuts": rule.where if rule.exists else f"none ({rule.why_none}): documents are encoded whole",
        "tokens": _tokens(found) + (more and f", before{more}"),
    }
    if "compared_bytes" in facts["engine"]:
        reference, compared = facts["engine"]["reference"], facts["engine"]["compared_bytes"]
        rows["engine"] += f", same ids as {reference} on {compared:,} bytes"
    if facts["documents"] is not None:
        rows["documents"] = f"{about if facts['documents'] != 1 else ''}{format_count(facts['documents'])}"
    if found.text_bytes is not None and facts["input_bytes"] not in (None, facts["text_bytes"]):
        rows["text"] = f"{about}{found.text_bytes / 1e6:,.1f} MB, read out of the input"
    speed = f"{max(1, facts['workers'])} x {found.bytes_per_s / 1e6:,.0f} MB/s, measured on the samples"
    seconds = facts["seconds"]
    rows["time"] = "unknown" if seconds is None else f"about {format_duration(seconds)}"
    rows["time"] += (more and f", and the time of{more}") + f" ({speed})"
    room = (facts["disk_bytes"], facts["free_bytes"])
    rows["disk"] = _disk(*room, output.parent, found, may_shrink=may_shrink)
    rows["memory"] = f"at most {format_bytes(facts['most_memory_bytes'])}"
    return rows


def _check_first_text(inputs: Inputs) -> None:
    """Read up to the first text, as the command does. Raises UserError if there is none, or it is bad."""
    with closing(inputs.with_duplicates.chunks()) as chunks:
        first = next((chunk for chunk in chunks if chunk.data), None)
    if first is None:
        raise UserError(f"{inputs.what} holds no text", code="no-text")
    if inputs.options["errors"] == "strict":
        try:
            first.data.decode()
        except UnicodeDecodeError as error:
            if error.end < len(first.data) or first.ends_document:  # else a character that goes on
                raise not_utf8([first]) from None


def _tokenizer_bytes(tokenizer: Tokenizer) -> int:
    """Size of the copy in the set."""
    if isinstance(tokenizer, TiktokenTokenizer):
        return len(tokenizer.ranks) + _KB
    if not isinstance(tokenizer, JsonTokenizer):
        return _KB
    has_json = any(file.name == "tokenizer.json" for file in tokenizer.files)
    copied = sum(file.stat().st_size for file in tokenizer.files)
    return copied + (0 if has_json else len(tokenizer.json.encode()))


def _at_the_place(
    files: SetFiles, inputs: Inputs, tokenizer: Tokenizer, options: Options
) -> tuple[str, str | None, int | None]:
    """(state of the output, why the command would be refused, tokens of a set that is up to date)."""
    folder = files.tokens.absolute().parent
    while not folder.exists():
        folder = folder.parent
    if not os.access(folder, os.W_OK):
        return "nothing can be written there", f"{folder} cannot be written", None
    if files.exists and options.overwrite:
        return "a set is there, which is replaced", None, None
    try:
        base, manifest = None, None
        if options.append:
            base, is_in_it = base_of(files, inputs, tokenizer, options)
            manifest = base if is_in_it else None
        else:
            manifest = up_to_date(files, inputs, tokenizer, options)
        if manifest is not None:
            return "up to date: nothing to do", None, manifest["tokens"]
        if goes_on(files, job_of(inputs, tokenizer, options, base), inputs, tokenizer, options):
            held = format_bytes(held_bytes(files.partial))
            return f"an unfinished attempt is there ({held}), which is resumed", None, None
    except UserError as error:
        return "something else is there", str(error), None
    if base is not None:
        there = f"{base['tokens']:,} tokens in {len(base['shards']):,} shards"
        return f"a set is there ({there}), which grows", None, None
    return "nothing is there yet", None, None


def _lines(rows: dict[str, str]) -> list[str]:
    indent = " " * (_LABEL + 2)
    lines = [
        line
        for label, value in rows.items()
        for line in textwrap.wrap(
            value, _WIDTH, initial_indent=f"  {label:<{_LABEL}}", subsequent_indent=indent,
            break_long_words=False, break_on_hyphens=False,
        )
    ]  # fmt: skip
    return ["plan", *lines]


def _tokens(found: Forecast) -> str:
    if found.tokens is None:
        return "unknown: the samples do not show it"
    if found.is_complete:
        return f"{found.tokens:,.0f} (all of it was encoded)"
    limited = ", as limited" if found.is_limited else ""
    return f"about {format_count(found.tokens)}{limited}, from samples of {found.sampled_bytes / 1e6:,.1f} MB"


def _disk(needed: int | None, free: int, folder: Path, found: Forecast, *, may_shrink: bool) -> str:
    here = f"{format_bytes(free)} free in {folder}"
    if needed is None:
        return f"unknown; {here}"
    size = f"about {format_bytes(needed)}; {here}"
    if needed * _ROUGHLY <= free:
        return size
    is_refused = needed > free * (1 if found.is_complete else UNSURE) and not may_shrink
    verdict = "TOO LITTLE, the command would refuse" if is_refused else "this can be too little"
    return f"{size}: {verdict}. Make room, or --output on another disk"


def _rounded(number: float | None) -> int | None:
    return None if number is None else round(number)
