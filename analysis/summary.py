"""The page that ends a run: how it went, whether it learned, its data and memory, what to do next."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.next_steps import after_run
from analysis.outcome import Outcome, how_to_go_on, outcome_of
from analysis.plots import draw_or_tell
from analysis.sweep import render_sweep
from analysis.terminal import STATE_STYLES, Terminal, commands, facts, heading, indented
from conf.composing.check import check
from conf.sizes import size_name
from experiment_utils.display import table
from experiment_utils.json_values import integer, is_number, mapping, mappings
from experiment_utils.quantities import counted, format_count, format_duration, format_share
from experiment_utils.run_folder import RunFolder
from memory import format_bytes
from memory.leaks.format import leaks_in_record
from memory.measure.host import run_memory
from memory.report.data.stage_rows import amount, stage_rows

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["render_run", "render_sweep", "run_page"]

_SPARKLINE_WIDTH = 36


def render_run(folder: Path, *, color: bool | None = None) -> str:
    """Draw the run's pictures and return its page, whatever its state.

    color: None asks stdout; see `Terminal.of_stdout`.
    """
    run = RunFolder(folder)
    return run_page(run, draw_or_tell(run.path), Terminal.of_stdout(color))


def run_page(run: RunFolder, pictures: Sequence[Path], terminal: Terminal) -> str:
    """The page of one run as text."""
    outcome = outcome_of(run)
    what = [*_what_it_was(run), *_losses(run, terminal), *_data(run), *_memory(run), *_files(run, pictures)]
    parts: list[RenderableType] = [*_outcome_lines(run, outcome, terminal), facts(what), *_sources(run), ""]
    return terminal.print(*parts, heading("Next"), commands(after_run(run, outcome), terminal.width))


def _outcome_lines(run: RunFolder, outcome: Outcome, terminal: Terminal) -> list[RenderableType]:
    from rich.text import Text

    style = f"bold {STATE_STYLES.get(outcome.state, '')}"
    parts: list[RenderableType] = [Text(terminal.rule(run.name, outcome.state), style=style)]
    if not outcome.is_done:
        at = f" at {outcome.steps}" if outcome.step is not None else ""
        parts.append(indented(f"{outcome.state}{at}: {outcome.reason or 'no reason is given'}", style=style))
        if outcome.state in ("failed", "oom", "cancelled", "timeout"):
            parts.append(indented(how_to_go_on(run)))
    return parts


def _what_it_was(run: RunFolder) -> Iterator[tuple[str, str]]:
    """The computation and its speed."""
    parameters, steps, tokens = run.number("parameters"), run.number("steps"), run.number("tokens")
    if parameters is not None and steps is not None and tokens is not None:
        size = size_name(check(run.config, rules=())[0].model)
        windows, seq_len = run.number("effective_batch"), run.number("training.seq_len")
        budget = f"{format_count(tokens)} tokens = {counted(steps, 'step')} of {windows} x {seq_len}"
        yield "model", f"{size}, {parameters:,} parameters; {budget}"
    seconds, speeds, peaks = (run.column(name) for name in ("seconds", "tokens_per_s", "mfu"))
    if not (seconds and speeds and math.isfinite(seconds[-1])):
        return
    threads = counted(run.number("auto.threads") or 0, "thread")
    where = f"{run.device} in {run.fact('auto.precision')}, {threads}"
    again = f", in {len(run.attempts)} attempts" if len(run.attempts) > 1 else ""
    speed, mfu = _median_of_last_half(speeds), _median_of_last_half(peaks)
    of_peak = "" if mfu is None else f", {format_share(mfu)} of the device's peak"
    pace = "" if speed is None else f"; {format_count(round(speed))} tokens/s{of_peak}"
    yield "training", f"{format_duration(seconds[-1])} on {where}{again}{pace}"


def _median_of_last_half(values: Sequence[float]) -> float | None:
    known = [value for value in values[len(values) // 2 :] if math.isfinite(value)]
    return statistics.median(known) if known else None


def _losses(run: RunFolder, terminal: Terminal) -> Iterator[tuple[str, str]]:
    """Losses in nats a token, and whether the model learned: its loss and that of counting pairs."""
    losses = run.column("train_loss")
    if not (run.column("step") and losses):
        return
    line = terminal.sparkline(losses, _SPARKLINE_WIDTH)
    yield "train loss", f"{line} {losses[0]:.2f} -> {losses[-1]:.2f} nats a token"
    val_loss, bigram = run.number("results.val_loss"), run.number("results.bigram_val_loss")
    best, best_step = run.number("results.best.val_loss"), run.number("results.best.step")
    if val_loss is not None:
        perplexity = f" (perplexity {math.exp(val_loss):.4g})" if val_loss < 700 else ""
        parts = [f"{val_loss:.4f}{perplexity}"]
        if bigram is not None:
            parts.append(f"{'better' if val_loss < bigram else 'not better'} than token pairs ({bigram:.4f})")
        if best is not None and best < val_loss:
            parts.append(f"the best was {best:.4f} at step {best_step or 0:,}")
        yield "val loss", ", ".join(parts)
    test_loss, floor = run.number("results.test_loss"), run.number("results.floor_loss")
    if test_loss is not None:
        yield "test loss", f"{test_loss:.4f} on {run.number('data.test_tokens') or 0:,} tokens"
    if floor is not None and val_loss is not None:
        yield "floor", f"{floor:.4f}, {val_loss - floor:.4f} below the val loss"


def _data(run: RunFolder) -> Iterator[tuple[str, str]]:
    """Facts about the data that the run read."""
    tokens, size = run.number("data.tokens"), run.number("data.file_bytes")
    if tokens is None or size is None:
        return
    path = run.fact("data.path")
    if not size:
        yield "data", f"{path}, computed: no file"
        return
    cost = next((row.anon_change_bytes for row in _rows(run) if row.name == "open_dataset"), None)
    opened = "" if cost is None else f" ({_signed(cost)} to open)"
    yield "data", f"{path}, {format_bytes(size)} mapped{opened}"


def _sources(run: RunFolder) -> list[RenderableType]:
    """Tokens read of each source of a mixture, and the loss on it."""
    sources = mappings(run.fact("data.sources"))
    if not sources:
        return []
    losses, rows = _last_val_losses(run), []
    for source in sources:
        name, read, passes = (source.get(key) for key in ("name", "read_tokens", "passes"))
        loss = losses.get(str(name))
        rows.append(
            (
                str(name),
                str(source.get("weight")),
                f"{read:,}" if isinstance(read, int) else "-",
                f"{passes:.3g}" if is_number(passes) else "-",
                "-" if loss is None else f"{loss:.4f}",
            )
        )
    titles = ("source", "weight", "tokens", "passes", "val loss")
    return ["", *table(titles, rows, right=range(1, 5), indent="  ")]


def _last_val_losses(run: RunFolder) -> dict[str, float]:
    """Loss on each source of a mixture in the last evaluation, by its name; empty without a mixture."""
    last = run.evals[-1]["step"] if run.evals else None
    named = {str(one.get("source")).partition("/")[2]: one for one in run.all_evals if one["step"] == last}
    return {name: record["loss"] for name, record in named.items() if name}


def _memory(run: RunFolder) -> Iterator[tuple[str, str]]:
    """The run's memory at its highest, a leak, and a stage that did not end."""
    records, seen = run.last_stage_records, run.outcome
    if not records:
        return
    peak, limit = _peak_of(records), amount(records[-1], "limit_bytes")
    limit_at = records[-1]["snapshot"].get("limit_at")
    if seen.get("attempt") == records[-1]["attempt"] and seen.get("limit_bytes") == limit:
        u, own = integer(seen.get("peak_unreclaimable_bytes")), integer(seen.get("peak_own_bytes"))
        sampled = run_memory(u, own, limit_at)
        peak = max(filter(None, (peak, sampled)), default=None)
    if peak is not None:
        whose = "the host's " if limit_at == "host" else ""
        of = f" of {whose}{format_bytes(limit)} ({format_share(peak / limit)})" if limit else ""
        gpu = max((row.gpu_peak_bytes for row in _rows(run) if row.gpu_peak_bytes is not None), default=None)
        yield "memory", f"at most {format_bytes(peak)}{of}" + (f", GPU {format_bytes(gpu)}" if gpu else "")
    leaks = leaks_in_record(next((leak for r in reversed(records) if (leak := mapping(r.get("leak")))), {}))
    if leaks:
        yield "", f"at the end: {', '.join(leaks)}"
    for row in _rows(run):
        if not row.ended or row.error is not None:
            how = "did not end" if row.error is None else f"failed: {row.error.partition(':')[0]}"
            yield "stage", f"{row.name} {how}"


def _rows(run: RunFolder) -> Any:
    return stage_rows(run.last_stage_records)


def _peak_of(records: Sequence[dict[str, Any]]) -> int | None:
    """The run's memory at its highest, by the records of its stages."""
    found = []
    for record in records:
        anon, shmem = amount(record, "anon_bytes"), amount(record, "shmem_bytes")
        own = None if anon is None else anon + (shmem or 0)
        limit_at = record["snapshot"].get("limit_at")
        found.append(run_memory(amount(record, "unreclaimable_bytes"), own, limit_at))
    return max(filter(None, found), default=None)


def _files(run: RunFolder, pictures: Sequence[Path]) -> Iterator[tuple[str, str]]:
    yield "files", ", ".join([f"{run.path}/", *(picture.name for picture in pictures)])
    yield from (("not whole", line) for line in run.damage)


def _signed(n: int) -> str:
    """`+0.1 MB`, `-35 MB`: a change never in less than megabytes, which is noise."""
    megabytes = n / 2**20
    if abs(megabytes) < 9.95:
        return f"{megabytes:+.1f} MB".replace("-0.0", "+0.0")
    return f"{'+' if n > 0 else ''}{format_bytes(n)}"
