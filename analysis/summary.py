"""The page that ends a run: how it went, whether it learned, where the memory went, what to do next."""

from __future__ import annotations

import bisect
import math
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.next_steps import after_run
from analysis.outcome import Outcome, how_to_go_on, outcome_of
from analysis.plots import draw_or_tell
from analysis.sweep import render_sweep
from analysis.terminal import STATE_STYLES, Terminal, commands, facts, heading, indented, table
from conf.composing.check import check
from conf.sizes import size_name
from experiment_utils.json_values import is_number, mapping, mappings
from experiment_utils.quantities import counted, format_count, format_duration, format_share
from experiment_utils.run_folder import RunFolder
from memory import format_bytes
from memory.leaks.format import leaks_in_record
from memory.report.data.stage_rows import StageRow, amount, stage_rows

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["render_run", "render_sweep", "run_page"]

_MILESTONES = 6
_STEPS_IN_MEAN = 10
_SPARKLINE_WIDTH = 60


def render_run(folder: Path, *, color: bool | None = None) -> str:
    """Draw the run's pictures and return its page, whatever its state.

    color: None asks stdout; see `Terminal.of_stdout`.
    """
    run = RunFolder(folder)
    return run_page(run, draw_or_tell(run.path), Terminal.of_stdout(color))


def run_page(run: RunFolder, pictures: Sequence[Path], terminal: Terminal) -> str:
    """The page of one run as text."""
    outcome = outcome_of(run)
    sections: list[list[RenderableType]] = [
        _outcome_section(run, outcome, terminal),
        _loss_section(run, terminal),
        _data_section(run),
        _sources_section(run),
        _memory_section(run),
        _files_section(run, pictures),
        [heading("Next"), commands(after_run(run, outcome), terminal.width)],
    ]
    return terminal.print(*(part for section in sections if section for part in (*section, "")))


def _outcome_section(run: RunFolder, outcome: Outcome, terminal: Terminal) -> list[RenderableType]:
    from rich.text import Text

    style = f"bold {STATE_STYLES.get(outcome.state, '')}"
    parts: list[RenderableType] = [Text(terminal.rule(run.name, outcome.state), style=style)]
    if not outcome.is_done:
        at = f" at {outcome.steps}" if outcome.step is not None else ""
        parts.append(indented(f"{outcome.state}{at}: {outcome.reason or 'no reason is given'}", style=style))
        if outcome.state in ("failed", "oom", "cancelled", "timeout"):
            parts.append(indented(how_to_go_on(run)))
    what = list(_what_it_was(run))
    return [*parts, facts(what)] if what else parts


def _what_it_was(run: RunFolder) -> Iterator[tuple[str, str]]:
    """The computation and its speed."""
    parameters, steps, tokens = run.number("parameters"), run.number("steps"), run.number("tokens")
    if parameters is not None and steps is not None and tokens is not None:
        size = size_name(check(run.config, rules=())[0].model)
        yield "model", f"{size}, {parameters:,} parameters"
        windows, seq_len = run.number("effective_batch"), run.number("training.seq_len")
        yield (
            "budget",
            f"{format_count(tokens)} tokens = {counted(steps, 'step')} of {windows} x {seq_len}",
        )
    seconds, speeds, peaks = (run.column(name) for name in ("seconds", "tokens_per_s", "mfu"))
    if not (seconds and speeds and math.isfinite(seconds[-1])):
        return
    threads = counted(run.number("auto.threads") or 0, "thread")
    where = f"{run.device} in {run.fact('auto.precision')}, {threads}"
    again = f", in {len(run.attempts)} attempts" if len(run.attempts) > 1 else ""
    yield "training", f"{format_duration(seconds[-1])} on {where}{again}"
    speed, mfu = _median_of_last_half(speeds), _median_of_last_half(peaks)
    of_peak = "" if mfu is None else f", {format_share(mfu)} of the device's peak"
    if speed is not None:
        yield "speed", f"{format_count(round(speed))} tokens/s{of_peak} (median of the last half)"


def _median_of_last_half(values: Sequence[float]) -> float | None:
    known = [value for value in values[len(values) // 2 :] if math.isfinite(value)]
    return statistics.median(known) if known else None


def _loss_section(run: RunFolder, terminal: Terminal) -> list[RenderableType]:
    steps, losses = run.column("step"), run.column("train_loss")
    if not (steps and losses):
        return []
    rows = table(("tokens", "right"), ("train loss", "right"), ("val loss", "right"), ("perplexity", "right"))
    for step, tokens, val_loss in _milestones(run):
        upto = bisect.bisect_right(steps, step)
        window = losses[max(0, upto - _STEPS_IN_MEAN) : upto]
        rows.add_row(
            f"{tokens:,.0f}",
            f"{sum(window) / len(window):.4f}" if window else "-",
            "-" if val_loss is None else f"{val_loss:.4f}",
            "-" if val_loss is None or not val_loss < 700 else f"{math.exp(val_loss):.4g}",
        )
    line = terminal.sparkline(losses, _SPARKLINE_WIDTH)
    return [
        heading("Loss, nats a token", f"train: mean of the last {_STEPS_IN_MEAN} steps"),
        indented(rows),
        indented(f"train loss {line} {losses[0]:.2f} -> {losses[-1]:.2f}"),
        *(indented(sentence, style=style) for sentence, style in _verdict(run)),
    ]


def _milestones(run: RunFolder) -> list[tuple[float, float, float | None]]:
    """(step, tokens, val loss) of a few evaluations up to the last, or of steps where there is none."""
    points: list[tuple[float, float, float | None]] = [
        (record["step"], record["tokens"], record["loss"]) for record in run.evals
    ]
    if not points:
        points = [
            (step, tokens, None)
            for step, tokens in zip(run.column("step"), run.column("tokens"), strict=True)
        ]
    every = -(-len(points) // _MILESTONES)
    return points[::-1][::every][::-1]


def _verdict(run: RunFolder) -> Iterator[tuple[str, str]]:
    """Whether it learned: the final loss and that of a model that counts pairs of tokens."""
    val_loss, bigram = run.number("results.val_loss"), run.number("results.bigram_val_loss")
    best, best_step = run.number("results.best.val_loss"), run.number("results.best.step")
    if val_loss is None:
        return
    if best is not None and best < val_loss:
        yield f"val loss {val_loss:.4f} at the end; the best was {best:.4f} at step {best_step or 0:,}", ""
    test_loss = run.number("results.test_loss")
    if test_loss is not None:
        yield f"test loss {test_loss:.4f}", ""
    floor = run.number("results.floor_loss")
    if floor is not None:
        yield f"val loss {val_loss:.4f}, floor {floor:.4f} ({val_loss - floor:.4f} above)", ""
    if bigram is None:
        return
    both = f"val loss {val_loss:.4f}, that of a bigram count model of the same train range {bigram:.4f}"
    if val_loss < bigram:
        yield f"It learned more than which token follows which: {both}.", "green"
    else:
        yield f"It has not yet learned more than which token follows which: {both}.", "yellow"


def _data_section(run: RunFolder) -> list[RenderableType]:
    """Facts about the data that the run read."""
    tokens, size = run.number("data.tokens"), run.number("data.file_bytes")
    if tokens is None or size is None:
        return []
    rows = [
        ("memory-mapped", f"{run.fact('data.path')}, {format_bytes(size)} on disk ({run.fact('data.dtype')})")
        if size
        else ("computed", f"{run.fact('data.path')}, no file ({run.fact('data.dtype')})"),
        ("costs in RAM", _cost_of_opening(run) if size else None),
        ("total tokens", f"{tokens:,}, tokenizer {run.fact('data.tokenizer')}"),
        ("train portion", _portion(run, "train", tokens)),
        ("val portion", _portion(run, "val", tokens)),
        ("test portion", _portion(run, "test", tokens)),
    ]
    return [heading("Data"), facts([(label, text) for label, text in rows if text is not None])]


def _sources_section(run: RunFolder) -> list[RenderableType]:
    """Tokens read of each source of a mixture, and the loss on it."""
    sources = mappings(run.fact("data.sources"))
    if not sources:
        return []
    losses = _last_val_losses(run)
    columns = ("weight", "tokens", "passes", "val loss")
    rows = table(("source", "left"), *((column, "right") for column in columns))
    for source in sources:
        name, read, passes = (source.get(key) for key in ("name", "read_tokens", "passes"))
        loss = losses.get(str(name))
        rows.add_row(
            str(name),
            str(source.get("weight")),
            f"{read:,}" if isinstance(read, int) else "-",
            f"{passes:.3g}" if is_number(passes) else "-",
            "-" if loss is None else f"{loss:.4f}",
        )
    return [heading("Sources", "tokens of the whole run, and how often each is read"), indented(rows)]


def _last_val_losses(run: RunFolder) -> dict[str, float]:
    """Loss on each source of a mixture in the last evaluation, by its name; empty without a mixture."""
    last = run.evals[-1]["step"] if run.evals else None
    named = {str(one.get("source")).partition("/")[2]: one for one in run.all_evals if one["step"] == last}
    return {name: record["loss"] for name, record in named.items() if name}


def _cost_of_opening(run: RunFolder) -> str | None:
    opened = [row for row in stage_rows(run.last_stage_records) if row.name == "open_dataset"]
    if not opened or opened[0].anon_change_bytes is None:
        return None
    change = _signed(opened[0].anon_change_bytes)
    return f"{change} when opened; pages read are cache, given back when memory is short"


def _portion(run: RunFolder, split: str, total: float) -> str | None:
    tokens, windows = run.number(f"data.{split}_tokens"), run.number(f"data.{split}_windows")
    if not tokens:
        return None
    cut = (
        f" = {counted(windows, 'sequence')} of {run.number('training.seq_len')}"
        if windows is not None
        else ""
    )
    return f"{tokens / total:.1%}: {tokens:,} tokens{cut}"


def _memory_section(run: RunFolder) -> list[RenderableType]:
    records = run.last_stage_records
    if not records:
        return []
    rows = stage_rows(records)
    has_gpu = any(row.gpu_peak_bytes is not None for row in rows)
    shown = table(
        ("stage", "left"), ("times", "right"), ("seconds", "right"), ("unreclaimable after", "right"),
        ("anon change", "right"), ("peak rss", "right"), *([("GPU peak", "right")] if has_gpu else []),
        ("", "left"),
    )  # fmt: skip
    for row in rows:
        gpu = [_bytes(row.gpu_peak_bytes)] if has_gpu else []
        shown.add_row(
            "  " * row.depth + row.name,
            f"{row.times:,}",
            f"{row.seconds:.2f}" if row.seconds or row.ended else "-",
            _bytes(row.unreclaimable_bytes),
            "-" if row.anon_change_bytes is None else _signed(row.anon_change_bytes),
            _bytes(row.peak_bytes),
            *gpu,
            _how_it_ended(row),
        )
    attempt = records[-1]["attempt"]
    note = f"of attempt {attempt}" if attempt > 1 else ""
    leaks = leaks_in_record(next((leak for r in reversed(records) if (leak := mapping(r.get("leak")))), {}))
    return [
        heading("Memory by stage", note),
        indented(shown),
        *([indented(f"Memory at the end: {', '.join(leaks)}", style="red")] if leaks else []),
        indented(_memory_words(run, records), style="dim"),
    ]


def _how_it_ended(row: StageRow) -> str:
    if not row.ended:
        return "did not end"
    return "" if row.error is None else row.error.partition(":")[0]


def _memory_words(run: RunFolder, records: list[dict[str, Any]]) -> str:
    """The meaning of the columns and the distance to the limit, from stages and samples."""
    snapshot = records[-1]["snapshot"]
    used = [found for record in records if (found := amount(record, "unreclaimable_bytes")) is not None]
    limit = amount(records[-1], "limit_bytes")
    seen = run.outcome
    if seen.get("attempt") == records[-1]["attempt"] and seen.get("limit_bytes") == limit:
        sampled = seen.get("peak_unreclaimable_bytes")
        used += [sampled] if isinstance(sampled, int) else []
    of = "the job" if snapshot.get("scope") == "job" else "the process and its children"
    words = (
        f"Unreclaimable (anon + shared{' + kernel' * (of == 'the job')}) of {of} is what an OOM kill looks at"
    )
    if used and limit:
        whose = "all memory of the host" if snapshot.get("limit_at") == "host" else "the limit"
        words += (
            f": at most {format_bytes(max(used))} of {format_bytes(limit)}, {whose} ({max(used) / limit:.1%})"
        )
    return (
        f"{words}. Peak rss is the kernel's high-water mark (VmHWM) of the main process; its mapped files "
        "are reclaimable."
    )


def _files_section(run: RunFolder, pictures: Sequence[Path]) -> list[RenderableType]:
    rows = [("run folder", str(run.path)), *((picture.stem, str(picture)) for picture in pictures)]
    return [heading("Files"), facts([*rows, *(("not whole", line) for line in run.damage)])]


def _bytes(n: int | None) -> str:
    return "-" if n is None else format_bytes(n)


def _signed(n: int) -> str:
    """`+0.1 MB`, `-35 MB`: a change never in less than megabytes, which is noise."""
    megabytes = n / 2**20
    if abs(megabytes) < 9.95:
        return f"{megabytes:+.1f} MB".replace("-0.0", "+0.0")
    return f"{'+' if n > 0 else ''}{format_bytes(n)}"
