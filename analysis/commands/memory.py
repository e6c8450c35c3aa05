"""`python -m analysis memory STUDY`: what each size took of memory, and what the next job should ask for."""

from __future__ import annotations

import argparse

from analysis.commands.shared import new_parser, say_json, study_of
from analysis.memory_use import SizeMemory, memory_by_size
from experiment_utils.display import table
from experiment_utils.errors import UserError
from experiment_utils.exit_status import DONE
from experiment_utils.quantities import format_bytes

EXAMPLES = """\
examples:
  python -m analysis memory lr_sweep
  python -m analysis memory runs --where state=oom,done --json

peak: the highest unreclaimable memory (U) that a supervisor saw of any run of the size, of runs that no job
limits what they held themselves; estimate: what was estimated before it began; limit: the smallest;
unused: what no run of the size ever needed of it; ask: the peak and 15%, for slurm.mem. One run in full:
python -m memory report RUN."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = new_parser(subparsers, "memory", "what each size took of memory, and what to ask for", EXAMPLES)
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print it.

    Raises:
        UserError: foreign CSVs, which tell nothing of memory, or no run that does.
    """
    study = study_of(options)
    if not study.is_ours:
        raise UserError(f"{study.path}: CSVs of other programs tell nothing of memory")
    sizes = memory_by_size(study.runs)
    if all(size.peak_bytes is None for size in sizes):
        raise UserError(
            f"{study.path}: no run there has a record of its peak (outcome.json): none has ended yet, or "
            "they ran with memory.supervise=false; a single run: python -m memory report RUN"
        )
    if options.json:
        say_json({"version": 1, "study": study.path, "sizes": [_plain(size) for size in sizes]})
        return DONE
    titles = ("size", "runs", "needs", "estimate", "limit", "unused", "ask", "highest in")
    print("\n".join(table(titles, [_row(size) for size in sizes], right=range(1, 7))))
    for note in study.notes():
        print(f"note: {note}")
    return DONE


def _row(size: SizeMemory) -> tuple[str, ...]:
    amounts = (size.peak_bytes, size.estimate_bytes, size.limit_bytes, size.unused_bytes)
    stages = [name if value is None else f"{name} {format_bytes(value)}" for name, value in size.stages]
    return (
        size.name,
        str(len(size.runs)),
        *("-" if value is None else format_bytes(value) for value in amounts),
        size.asked_words,
        ", ".join(stages) or "-",
    )


def _plain(size: SizeMemory) -> dict[str, object]:
    return {
        "model": size.model, "batch_tokens": size.batch_tokens, "runs": [one.name for one in size.runs],
        "peak_bytes": size.peak_bytes, "least_peak_bytes": size.least_peak_bytes,
        "estimate_bytes": size.estimate_bytes, "limit_bytes": size.limit_bytes,
        "unused_bytes": size.unused_bytes, "ask_bytes": size.asked_bytes,
        "ask_is_too_little": size.is_too_little,
        "stages": [{"name": name, "highest_bytes": value} for name, value in size.stages],
    }  # fmt: skip
