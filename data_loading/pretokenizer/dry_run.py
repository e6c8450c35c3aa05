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
from data_loading.pretokenizer.engines.registry import Choice, choose_engine, most_memory_bytes
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
class Plan:
    """The token set that a command would make.

    state: what is at its place now. refusal: why the command would not begin. tokens: of a set that is up to
    date; then forecast is None. workers: encoders at work together; 0: one. free_bytes: room for the set.
    may_shrink: cleaning can leave text out.
    """

    what: str
    input_bytes: int | None
    output: Path
    tokenizer: Tokenizer
    state: str
    refusal: str | None = None
    tokens: int | None = None
    forecast: Forecast | None = None
    engine: Choice | None = None
    workers: int = 0
    free_bytes: int = 0
    memory_bytes: int = 0
    may_shrink: bool = False

    @property
    def seconds(self) -> float | None:
        """About how long it takes; None if the length of the text is not known."""
        found = self.forecast
        if found is None or found.text_bytes is None or not found.bytes_per_s:
            return None
        return found.text_bytes / min(found.bytes_per_s * max(1, self.workers), _MOST_BYTES_PER_S)

    @property
    def disk_bytes(self) -> int | None:
        """Size of the set, with its copy of the tokenizer."""
        found = None if self.forecast is None else self.forecast.disk_bytes
        return None if found is None else found + _tokenizer_bytes(self.tokenizer)


def make_plan(
    source: Source | Inputs,
    tokenizer: Tokenizer,
    output: Path,
    options: Options,
    log: Callable[[str], None] = lambda line: None,
    before: Sequence[Plan] = (),
) -> Plan:
    """Look at samples of the source and at the place of the set; nothing is written.

    Args:
        before: Plans of sets that the same command makes first, which take room.

    Raises:
        UserError: the source cannot be read (twice), its first text is none, or no engine encodes it.
    """
    inputs = as_inputs(source)
    if not inputs.can_continue:
        raise UserError(
            "--dry-run reads samples, and standard input can be read once. Write it to a file, and plan that",
            code="input-not-readable-twice",
        )
    for note in inputs.notes:
        log(note)
    files = SetFiles(output)
    state, refusal, tokens = _at_the_place(files, inputs, tokenizer, options)
    there = (inputs.what, inputs.total_bytes, output, tokenizer, state, refusal)
    if tokens is not None:
        return Plan(*there, tokens=tokens, free_bytes=free_bytes(output))
    _check_first_text(inputs)
    choice = choose_engine(tokenizer, [*inputs.samples(), *probes(tokenizer)], log, options.engine)
    workers = workers_for(choice.engine, inputs, options)
    taken = sum(plan.disk_bytes or 0 for plan in before if device_of(plan.output) == device_of(output))
    return Plan(
        *there,
        forecast=forecast(inputs, tokenizer, choice.engine),
        engine=choice,
        workers=workers,
        free_bytes=free_bytes(output) + held_bytes(files.partial) - taken,
        memory_bytes=most_memory_bytes(tokenizer, options.engine, workers),
        may_shrink=inputs.may_shrink,
    )


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
    """(what is there, why the command would be refused, tokens of the set if it is up to date)."""
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


def lines_of(plan: Plan) -> list[str]:
    """The plan as text of 80 columns; paths are not broken."""
    size = "unknown size" if plan.input_bytes is None else f"{plan.input_bytes / 1e6:,.1f} MB"
    rows = {"input": f"{plan.what}, {size}", "output": f"{plan.output} ({plan.state})"}
    rows["refused"] = plan.refusal or ""
    found, choice = plan.forecast, plan.engine
    if found is None or choice is None:
        rows["tokens"] = f"{plan.tokens:,}"
    else:
        about = "" if found.is_complete else "about "
        ids = f"{plan.tokenizer.vocab_size:,} ids, uint{8 * found.token_bytes}"
        rows["tokenizer"] = f"{plan.tokenizer.name} ({ids})"
        rows["engine"] = _engine(choice)
        rule = plan.tokenizer.cut_rule
        rows["cuts"] = rule.where if rule.exists else f"none ({rule.why_none}): documents are encoded whole"
        rows["tokens"] = _tokens(found) + (", before --clean and --dedup" if plan.may_shrink else "")
        if found.documents is not None:
            count = round(found.documents)
            rows["documents"] = f"{about if count != 1 else ''}{format_count(count)}"
        if found.text_bytes is not None and plan.input_bytes not in (None, round(found.text_bytes)):
            rows["text"] = f"{about}{found.text_bytes / 1e6:,.1f} MB, read out of the input"
        rows["time"] = _time(plan, found)
        rows["disk"] = _disk(plan)
        rows["memory"] = f"at most {format_bytes(plan.memory_bytes)}"
    return ["plan", *(line for label, value in rows.items() if value for line in _row(label, value))]


def _row(label: str, value: str) -> list[str]:
    indent = " " * (_LABEL + 2)
    return textwrap.wrap(
        value, _WIDTH, initial_indent=f"  {label:<{_LABEL}}", subsequent_indent=indent,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def _engine(choice: Choice) -> str:
    name = f"{choice.facts['name']} {choice.facts['version']}"
    if "compared_bytes" not in choice.facts:
        return name
    return f"{name}, same ids as {choice.facts['reference']} on {choice.facts['compared_bytes']:,} bytes"


def _tokens(found: Forecast) -> str:
    if found.tokens is None:
        return "unknown: the samples do not show it"
    if found.is_complete:
        return f"{found.tokens:,.0f} (all of it was encoded)"
    limited = ", as limited" if found.is_limited else ""
    return f"about {format_count(found.tokens)}{limited}, from samples of {found.sampled_bytes / 1e6:,.1f} MB"


def _time(plan: Plan, found: Forecast) -> str:
    speed = f"{max(1, plan.workers)} x {found.bytes_per_s / 1e6:,.0f} MB/s, measured on the samples"
    if plan.seconds is None:
        return f"unknown ({speed})"
    more = ", and the time of --clean and --dedup" if plan.may_shrink else ""
    return f"about {format_duration(plan.seconds)}{more} ({speed})"


def _disk(plan: Plan) -> str:
    here = f"{format_bytes(plan.free_bytes)} free in {plan.output.parent}"
    needed = plan.disk_bytes
    if needed is None:
        return f"unknown; {here}"
    size = f"about {format_bytes(needed)}; {here}"
    if needed * _ROUGHLY <= plan.free_bytes:
        return size
    is_exact = plan.forecast is not None and plan.forecast.is_complete
    is_refused = needed > plan.free_bytes * (1 if is_exact else UNSURE) and not plan.may_shrink
    verdict = "TOO LITTLE, the command would refuse" if is_refused else "this can be too little"
    return f"{size}: {verdict}. Make room, or --output on another disk"


def facts_of(plan: Plan) -> dict[str, Any]:
    """The plan for `--json`; None for what is not known. Sizes in bytes."""
    found, choice = plan.forecast, plan.engine
    return {
        "path": str(plan.output),
        "state": plan.state,
        "refusal": plan.refusal,
        "input_bytes": plan.input_bytes,
        "tokenizer": plan.tokenizer.name,
        "tokens": plan.tokens if found is None else _rounded(found.tokens),
        "is_exact": found is None or found.is_complete,
        "documents": None if found is None else _rounded(found.documents),
        "text_bytes": None if found is None else _rounded(found.text_bytes),
        "is_limited": found is not None and found.is_limited,
        "sampled_bytes": 0 if found is None else found.sampled_bytes,
        "engine": None if choice is None else choice.facts,
        "workers": plan.workers,
        "seconds": None if plan.seconds is None else round(plan.seconds, 1),
        "disk_bytes": plan.disk_bytes,
        "free_bytes": plan.free_bytes,
        "most_memory_bytes": plan.memory_bytes if found is not None else None,
    }


def _rounded(number: float | None) -> int | None:
    return None if number is None else round(number)
