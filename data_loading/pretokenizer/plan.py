"""What the command would do, without doing it: `pretokenize_dataset.py ... --dry-run`."""

from __future__ import annotations

import hashlib
import math
import os
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_loading.pretokenizer.cuts import CutRule
from data_loading.pretokenizer.disk_space import device_of, free_bytes, held_bytes
from data_loading.pretokenizer.engines import Choice, choose_engine
from data_loading.pretokenizer.existing import base_of, goes_on, job_of, up_to_date
from data_loading.pretokenizer.forecast import Forecast, forecast
from data_loading.pretokenizer.inputs import Inputs
from data_loading.pretokenizer.job_memory import Held, JobMemory
from data_loading.pretokenizer.long_runs import long_run
from data_loading.pretokenizer.making import workers_for
from data_loading.pretokenizer.options import Options
from data_loading.pretokenizer.pool import cores
from data_loading.pretokenizer.source import Source
from data_loading.pretokenizer.special_tokens import probes
from data_loading.set_files import SetFiles
from data_loading.tiktoken_tokenizer import TiktokenTokenizer
from data_loading.tokenizer import JsonTokenizer, Tokenizer
from experiment_utils.errors import UserError
from experiment_utils.quantities import format_count, format_duration
from memory import format_bytes

_LABEL = 11
_KB = 1 << 10
_CHECKED_BYTES = 4 << 20


@dataclass(frozen=True)
class Plan:
    """Of one token set. state: what is at its place now. refusal: why the command would not begin.

    tokens: of a set that is up to date; then nothing else was looked at, and forecast is None.
    workers: processes; 0: none but this one. startup_s: until an engine is chosen. here_s_per_byte: what this
    process does for each byte of text besides encoding it: checksums, writing. disk_bytes, free_bytes:
    that the set takes, and that are there for it. held: memory while the samples were encoded.
    comparing: the most while engines were compared. may_shrink: cleaning may leave text out.
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
    startup_s: float = 0.0
    here_s_per_byte: float = 0.0
    tokenizer_bytes: int = 0
    free_bytes: int = 0
    held: Held | None = None
    comparing: Held | None = None
    may_shrink: bool = False

    @property
    def seconds(self) -> float | None:
        """From the beginning to the end; None where the text's length is not known."""
        found = self.forecast
        if found is None or found.text_bytes is None or not found.bytes_per_s:
            return None
        here_s = found.text_bytes * self.here_s_per_byte
        encoding_s = found.text_bytes / found.bytes_per_s
        at_once = min(cores(), self.workers + 1) if self.workers else 1
        working_s = max(here_s, encoding_s / max(1, self.workers), (here_s + encoding_s) / at_once)
        return self.startup_s + found.load_s + working_s

    @property
    def disk_bytes(self) -> int | None:
        found = self.forecast
        return None if found is None else found.disk_bytes(found.tokens, self.tokenizer_bytes)

    @property
    def most_disk_bytes(self) -> int | None:
        found = self.forecast
        return None if found is None else found.disk_bytes(found.at_most_tokens, self.tokenizer_bytes)


def make_plan(
    source: Source,
    tokenizer: Tokenizer,
    output: Path,
    options: Options,
    log: Callable[[str], None] = lambda line: None,
    before: Sequence[Plan] = (),
) -> Plan:
    """Look at samples of the source and at the place of the set; nothing is written.

    before: plans of sets that the same command makes first, which take room.

    Raises:
        UserError: the source cannot be read (twice), or no engine encodes it.
    """
    if not source.can_continue:
        raise UserError(
            f"--dry-run: {source.what} is gone once it was looked at. Write it to a file, and plan that",
            code="input-not-readable-twice",
        )
    inputs = source if isinstance(source, Inputs) else Inputs([source])
    for note in inputs.notes:
        log(note)
    files = SetFiles(output)
    state, refusal, tokens = _at_the_place(files, inputs, tokenizer, options)
    bare = Plan(inputs.what, inputs.total_bytes, output, tokenizer, state, refusal, tokens)
    if tokens is not None:
        return bare
    if refusal is None:
        parts = inputs.parts[:1] if inputs.is_limited else inputs.parts
        runs = (long_run(part, tokenizer.cut_rule, options.run_limit_bytes) for part in parts)
        refusal = next((str(run) for run in runs if run is not None), None)
    started = time.monotonic()
    with JobMemory() as comparing:
        choice = choose_engine(tokenizer, [*inputs.samples(), *probes(tokenizer)], log, options.engine)
    startup_s = time.monotonic() - started
    with JobMemory() as here:
        found = forecast(inputs, tokenizer, choice.engine)
    taken = sum(plan.disk_bytes or 0 for plan in before if device_of(plan.output) == device_of(output))
    return Plan(
        *(inputs.what, inputs.total_bytes, output, tokenizer, state, refusal),
        forecast=found,
        engine=choice,
        workers=workers_for(choice.engine, inputs, options),
        startup_s=startup_s,
        here_s_per_byte=_here_s_per_byte(found),
        tokenizer_bytes=_tokenizer_bytes(tokenizer),
        free_bytes=free_bytes(output) + held_bytes(files.partial) - taken,
        held=here.now and Held(here.now.main_bytes, found.worker_bytes, 1),
        comparing=comparing.peak,
        may_shrink=inputs.may_shrink,
    )


def _tokenizer_bytes(tokenizer: Tokenizer) -> int:
    """Of the copy in the set."""
    if isinstance(tokenizer, TiktokenTokenizer):
        return len(tokenizer.ranks) + _KB
    if not isinstance(tokenizer, JsonTokenizer):
        return _KB
    copied = sum(file.stat().st_size for file in tokenizer.files)
    has_json = any(file.name == "tokenizer.json" for file in tokenizer.files)
    return copied + (0 if has_json else len(tokenizer.json.encode()))


def _here_s_per_byte(found: Forecast) -> float:
    """Measured where it is much, which is the checksums; copying is taken to do a gigabyte a second."""
    data = bytes(_CHECKED_BYTES)
    started = time.perf_counter()
    hashlib.sha256(data)
    hashed_s = time.perf_counter() - started
    zlib.crc32(data)
    checked_s = time.perf_counter() - started
    written = (found.tokens or 0) * found.token_bytes / (found.text_bytes or 1)
    return (hashed_s + written * checked_s) / len(data) + (1 + written) * 1e-9


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
            return f"an unfinished attempt is there ({held}), which is gone on with", None, None
    except UserError as error:
        return "something else is there", str(error), None
    if base is not None:
        there = f"{base['tokens']:,} tokens in {len(base['shards']):,} shards"
        return f"a set is there ({there}), which grows", None, None
    return "nothing is there yet", None, None


def lines_of(plan: Plan) -> list[str]:
    """What a user is told."""
    size = "of unknown size" if plan.input_bytes is None else f"{plan.input_bytes / 1e6:,.1f} MB"
    told = [f"plan: {plan.what}, {size} -> {plan.output}", _line("output", plan.state)]
    if plan.refusal is not None:
        told.append(_line("refused", plan.refusal))
    if plan.tokens is not None:
        return [*told, _line("tokens", f"{plan.tokens:,}")]
    found, choice = plan.forecast, plan.engine
    assert found is not None
    assert choice is not None
    ids = f"{plan.tokenizer.vocab_size:,} ids, uint{8 * found.token_bytes}"
    told += [
        _line("tokenizer", f"{plan.tokenizer.name} ({ids})"),
        _line("engine", _engine(choice)),
        _line("cuts", _cuts(plan.tokenizer.cut_rule)),
        _line("tokens", _tokens(found) + (", before --clean and --dedup" if plan.may_shrink else "")),
    ]
    if found.documents is not None:
        told.append(_line("documents", _documents(found)))
    if found.text_bytes is not None and plan.input_bytes not in (None, round(found.text_bytes)):
        told.append(_line("text", f"about {found.text_bytes / 1e6:,.1f} MB, read out of the input"))
    return [
        *told,
        _line("time", _time(plan, found)),
        _line("disk", _disk(plan)),
        _line("memory", _memory(plan, choice)),
    ]


def _line(label: str, value: str) -> str:
    return f"  {label:<{_LABEL}}{value}"


def _engine(choice: Choice) -> str:
    told = f"{choice.facts['name']} {choice.facts['version']}"
    if "compared_bytes" in choice.facts:
        told += f", gave the ids of {choice.facts['reference']} on {choice.facts['compared_bytes']:,} bytes"
    return told


def _cuts(rule: CutRule) -> str:
    if not rule.exists:
        return f"none are safe ({rule.why_none}): each document is encoded whole"
    return rule.where


def _tokens(found: Forecast) -> str:
    of = f"from {found.sampled_bytes / 1e6:,.1f} MB"
    places = f"{found.places} place{'s' * (found.places != 1)}"
    if found.tokens is None:
        return "unknown: nothing tells how much text there is"
    if found.is_complete:
        return f"{found.tokens:,.0f} (all of it was encoded)"
    about = f"about {format_count(found.tokens)}"
    if found.is_limited:
        return f"{about}, as limited, if its beginning is like the samples ({of} at {places})"
    if found.error_tokens is None:
        where = "the start alone" if found.places == 1 else f"{found.places} starts alone"
        return f"{about}, {of} at {where}, so without an error"
    share = found.error_tokens / found.tokens if found.tokens else 0.0
    return (
        f"{format_count(found.tokens)} +- {format_count(math.ceil(found.error_tokens))} (95%, {share:.2%}), "
        f"{of} at {places}"
    )


def _documents(found: Forecast) -> str:
    assert found.documents is not None
    shown = format_count(round(found.documents))
    return shown if found.is_complete or found.documents == 1 else f"about {shown}"


def _time(plan: Plan, found: Forecast) -> str:
    speed = f"{found.bytes_per_s / 1e6:,.0f} MB/s a process, measured"
    processes = f"{plan.workers} processes" if plan.workers else "in this process"
    if plan.seconds is None:
        return f"unknown ({speed}; {processes})"
    beside = ", and what --clean and --dedup take before that" if plan.may_shrink else ""
    return f"about {format_duration(plan.seconds)}{beside} ({processes}; {speed})"


def _disk(plan: Plan) -> str:
    here = f"{format_bytes(plan.free_bytes)} free in {plan.output.parent}"
    needed, most = plan.disk_bytes, plan.most_disk_bytes
    if needed is None or most is None or plan.forecast is None:
        return f"unknown; {here}"
    least = plan.forecast.disk_bytes(plan.forecast.at_least_tokens) or 0
    told = f"{format_bytes(needed)}; {here}"
    if least > plan.free_bytes and plan.forecast.error_tokens is not None:
        return f"{told}: TOO LITTLE, the command would refuse. Make room, or --output on another disk"
    if most > plan.free_bytes:
        return f"{told}: it MAY NOT SUFFICE. Make room, or --output on another disk"
    return told


def _memory(plan: Plan, choice: Choice) -> str:
    bound = format_bytes(choice.engine.most_bytes)
    if plan.held is None:
        return f"not told by this system; at most {bound} a process"
    own, worker = plan.held.main_bytes, plan.held.workers_bytes
    is_compared = plan.comparing is not None and "compared_bytes" in choice.facts
    compared = f"; {plan.comparing} while engines are compared" if is_compared else ""
    if plan.workers:
        each = "worker" if plan.workers == 1 else "workers, each"
        told = f"{format_bytes(own)} + {plan.workers} {each} {format_bytes(worker)}, at most {bound}"
        return f"{told}{compared}"
    return f"about {format_bytes(own + worker)}{compared}"


def facts_of(plan: Plan) -> dict[str, Any]:
    """For `--json`; None where nothing tells. Sizes in bytes."""
    found, choice = plan.forecast, plan.engine
    return {
        "path": str(plan.output),
        "state": plan.state,
        "refusal": plan.refusal,
        "input_bytes": plan.input_bytes,
        "tokenizer": plan.tokenizer.name,
        "tokens": plan.tokens if found is None else _rounded(found.tokens),
        "tokens_error": 0 if found is None else _rounded(found.error_tokens),
        "documents": None if found is None else _rounded(found.documents),
        "text_bytes": None if found is None else _rounded(found.text_bytes),
        "is_limited": found is not None and found.is_limited,
        "sampled_bytes": 0 if found is None else found.sampled_bytes,
        "sample_places": 0 if found is None else found.places,
        "engine": None if choice is None else choice.facts,
        "workers": plan.workers,
        "seconds": None if plan.seconds is None else round(plan.seconds, 1),
        "disk_bytes": plan.disk_bytes,
        "free_bytes": plan.free_bytes if found is not None else free_bytes(plan.output),
        "memory_bytes": None if plan.held is None else plan.held.main_bytes,
        "worker_bytes": None if plan.held is None else plan.held.workers_bytes,
        "most_worker_bytes": None if choice is None else choice.engine.most_bytes,
    }


def _rounded(number: float | None) -> int | None:
    return None if number is None else round(number)
