"""CUDA out of memory: by size, by fragmentation, or because others hold the device."""

from __future__ import annotations

from collections.abc import Iterator

from memory.explain.advice import run_with_us, smaller_steps
from memory.explain.facts import Facts
from memory.explain.finding import Advice, Finding, Victim
from memory.explain.telling import all_of, ended_line, stage_line
from memory.explain.testimony import by_the_run
from memory.explain.values import number
from memory.explain.wordings import GPU_OOM, GpuMessage, gpu_message
from memory.format import format_bytes


def gpu_out_of_memory(facts: Facts) -> Iterator[Finding]:
    """torch's message, of any version; one that was caught, and trained on after, is no death."""
    said = by_the_run(facts, GPU_OOM)
    told = None if said is None else gpu_message(said.words)
    if said is None or told is None:
        return
    cause, why = _why(told)
    advice = list(smaller_steps(facts, gpu=True))
    if not advice and not facts.is_ours:
        advice.append(Advice("a smaller batch, and as many more steps of gradients added up: the same step"))
        advice += [] if facts.samples else [run_with_us()]
    if cause == "fragmentation":
        setting = Advice(
            "let segments grow, so that free memory is in one piece",
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        )
        advice.insert(0, setting)
    elif cause == "neighbours":
        advice.insert(0, Advice("take a device that is free, or end the process that holds it", "nvidia-smi"))
    known = facts.exit_code not in (None, 0) or facts.state == "failed"
    yield Finding(
        rule="gpu_out_of_memory",
        says="The GPU had no "
        f"room{f' for {format_bytes(told.asked_bytes)} more' if told.asked_bytes else ''}: {why}",
        confidence="possible"
        if facts.signal in ("SIGKILL", "SIGTERM")
        else said.at_most("certain" if known else "likely"),
        verdict="oom_gpu",
        cause=cause,
        victim=Victim(True, number(facts.outcome.get("pid"))) if facts.outcome else None,
        evidence=all_of(
            f"{told.line} ({facts.log_name})", _balance(told), ended_line(facts), stage_line(facts),
        ),
        advice=tuple(advice),
    )  # fmt: skip


def _why(told: GpuMessage) -> tuple[str, str]:
    """The cause, and what says so."""
    asked, idle, total = told.asked_bytes, told.unallocated_bytes, told.total_bytes
    if total and told.others_bytes > 0.25 * total:
        return "neighbours", f"other processes hold {format_bytes(told.others_bytes)} of it"
    worth = 0.1 * (told.allocated_bytes or 0)
    if asked and idle is not None and idle >= max(asked, worth):
        return "fragmentation", f"torch holds {format_bytes(idle)} that no tensor uses, but not in one piece"
    if asked and idle and told.allocated_bytes and idle > 0.25 * told.allocated_bytes:
        return "fragmentation", f"{format_bytes(idle)} lie idle in torch's pool, in pieces too small"
    if asked and total and asked > total:
        return "size", "this one tensor is larger than the device"
    if told.allocated_bytes:
        return "growth", f"tensors held {format_bytes(told.allocated_bytes)} already"
    return "growth", "tensors took all of it"


def _balance(told: GpuMessage) -> str | None:
    parts = {
        "asked for": told.asked_bytes, "free": told.free_bytes, "tensors": told.allocated_bytes,
        "idle in torch's pool": told.unallocated_bytes, "other processes": told.others_bytes or None,
        "device": told.total_bytes,
    }  # fmt: skip
    known = [f"{name} {format_bytes(amount)}" for name, amount in parts.items() if amount is not None]
    return "in that message: " + ", ".join(known) if len(known) > 1 else None
