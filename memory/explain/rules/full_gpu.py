"""A GPU without room: by size, by fragmentation, by a leak, or because others hold the device."""

from __future__ import annotations

from collections.abc import Iterable

from experiment_utils.quantities import format_bytes
from memory.explain.evidence.run_facts import RunFacts
from memory.explain.rules.errors import error_line, sure
from memory.explain.rules.table_row import CERTAIN, LIKELY, NO, AdviceOf, TableRow
from memory.explain.signals import Signals
from memory.explain.verdict.advice import smaller_steps
from memory.explain.verdict.evidence_lines import ended_line, stage_line
from memory.explain.verdict.explanation import Advice


def _gpu_cause(s: Signals) -> tuple[str, str]:
    """The cause of a GPU without room, and what says so."""
    if s.gpu_leak_bytes:
        return "leak", f"tensors on it grew by {format_bytes(s.gpu_leak_bytes)} a step (memory.jsonl)"
    oom, unknown = s.gpu, ("unknown", "no number says what held it")
    if oom is None:
        return unknown
    asked, idle, total, held = oom.asked_bytes, oom.unallocated_bytes, oom.total_bytes, oom.allocated_bytes
    if total and oom.others_bytes > 0.25 * total:
        return "neighbours", f"other processes hold {format_bytes(oom.others_bytes)} of it"
    if asked and idle is not None and idle >= max(asked, 0.1 * (held or 0)):
        return "fragmentation", f"torch holds {format_bytes(idle)} that no tensor uses, but not in one piece"
    if asked and idle and held and idle > 0.25 * held:
        return "fragmentation", f"{format_bytes(idle)} are idle in torch's pool, in pieces too small"
    if asked and total and asked > total:
        return "size", "this one tensor is larger than the device"
    return ("growth", f"tensors held {format_bytes(held)} already") if held else unknown


def _gpu(s: Signals, cause: str) -> str:
    is_gpu = s.error.kind.startswith("gpu") and s.end != "ok" and _gpu_cause(s)[0] == cause
    return sure(s, LIKELY if s.error.kind == "gpu_handle" else CERTAIN) if is_gpu else NO


def _says_gpu(s: Signals) -> str:
    asked = s.gpu.asked_bytes if s.gpu else None
    return f"The GPU had no room{f' for {format_bytes(asked)} more' if asked else ''}: {_gpu_cause(s)[1]}"


def _gpu_lines(s: Signals) -> Iterable[str | None]:
    yield from error_line(s)
    if s.gpu is None:
        return
    amounts = {
        "asked for": s.gpu.asked_bytes, "free": s.gpu.free_bytes, "tensors": s.gpu.allocated_bytes,
        "idle in torch's pool": s.gpu.unallocated_bytes, "other processes": s.gpu.others_bytes or None,
        "device": s.gpu.total_bytes,
    }  # fmt: skip
    known = [f"{name} {format_bytes(amount)}" for name, amount in amounts.items() if amount is not None]
    where = "in that message" if s.error.kind == "gpu_message" else "at the last stage (memory.jsonl)"
    yield f"{where}: {', '.join(known)}" if len(known) > 1 else None


def _gpu_advice(*first: Advice) -> AdviceOf:
    def advice(facts: RunFacts) -> Iterable[Advice]:
        yield from first
        steps = smaller_steps(facts, gpu=True)
        yield from steps
        if not steps and not facts.is_ours:
            yield Advice("a smaller batch with more gradient accumulation: the same step")

    return advice


_SEGMENTS = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
ROWS = tuple(
    TableRow(
        f"gpu_{cause}", f"the last error is of a full GPU, and {sign}",
        lambda s, cause=cause: _gpu(s, cause), _says_gpu,  # type: ignore[misc]
        "oom_gpu", None if cause == "unknown" else cause, (ended_line, stage_line), _gpu_lines,
        _gpu_advice(*first), "main",
    )
    for cause, sign, first in (
        ("leak", "the run's own watch found that tensors on the device grow by step", ()),
        ("neighbours", "other processes, listed or not accounted for by torch, hold a quarter of the device",
         (Advice("take a device that is free, or end the process that holds it", "nvidia-smi"),)),
        ("fragmentation", "torch's pool holds as much idle memory as was asked for, or a quarter of all "
            "tensors",
         (Advice("let segments grow, so that free memory is in one piece", _SEGMENTS),)),
        ("size", "one tensor is larger than the device", ()),
        ("growth", "tensors of the run held the device", ()),
        ("unknown", "neither the message nor a stage record has a number", ()),
    )
)  # fmt: skip
