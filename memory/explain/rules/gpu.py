"""CUDA out of memory: by size, by fragmentation, by a leak, or because others hold the device."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from experiment_utils.json_values import mapping, unsigned
from experiment_utils.quantities import format_bytes
from memory.constants import CUDA_CONTEXT
from memory.explain.advice import run_with_us, smaller_steps
from memory.explain.facts import Facts
from memory.explain.finding import Advice, Finding, Victim
from memory.explain.telling import all_of, ended_line, stage_line
from memory.explain.testimony import Said, by_the_run
from memory.explain.wordings import GPU_OOM, HOST_PINNED, GpuMessage, gpu_message

_OTHER_REASONS = re.compile("CUBLAS_STATUS_NOT_INITIALIZED")
"""Said where there is no room for a handle of cuBLAS, and also where the driver or the library is broken."""


def gpu_out_of_memory(facts: Facts) -> Iterator[Finding]:
    """torch's message, of any version; one that was caught, and trained on after, is no death."""
    said = by_the_run(facts, GPU_OOM)
    oom = None if said is None else gpu_message(said.words)
    if said is None or oom is None:
        return
    if _is_of_host(said.words, oom):
        yield _host_pinned(facts, said, oom)
        return
    recorded = _recorded(facts)
    oom = oom if recorded is None or oom.allocated_bytes is not None else _with(oom, recorded)
    leak = _leak(facts)
    cause, why = ("leak", leak) if leak else _why(oom)
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
    surely = "certain" if known and not _OTHER_REASONS.search(said.match[0]) else "likely"
    yield Finding(
        rule="gpu_out_of_memory",
        says="The GPU had no "
        f"room{f' for {format_bytes(oom.asked_bytes)} more' if oom.asked_bytes else ''}: {why}",
        confidence="possible"
        if facts.signal in ("SIGKILL", "SIGTERM")
        else said.at_most(surely),
        verdict="oom_gpu",
        cause=cause,
        victim=Victim(True, unsigned(facts.outcome.get("pid"))) if facts.outcome else None,
        evidence=all_of(
            f"{oom.line} ({facts.log_name})", _balance(oom, recorded), ended_line(facts), stage_line(facts),
        ),
        advice=tuple(advice),
    )  # fmt: skip


def _is_of_host(words: str, oom: GpuMessage) -> bool:
    """Whether the bare words came out of the frame that locks pages of the host (cudaHostAlloc)."""
    if oom.total_bytes is not None or "CUDA error: out of memory" not in oom.line:
        return False
    last_frame = words[: words.rfind(oom.line)].rpartition('File "')[2]
    return HOST_PINNED.search(last_frame) is not None


def _host_pinned(facts: Facts, said: Said, oom: GpuMessage) -> Finding:
    return Finding(
        rule="gpu_out_of_memory",
        says="The host refused page-locked memory (cudaHostAlloc, in pin_memory). The GPU's ran out only if "
        "an error of an earlier call was reported late",
        confidence=said.at_most("likely"),
        verdict="memory_error",
        victim=Victim(True, unsigned(facts.outcome.get("pid"))) if facts.outcome else None,
        evidence=all_of(f"{oom.line} ({facts.log_name})", ended_line(facts), stage_line(facts)),
        advice=(
            Advice("see what limits locked memory and memory of the job", "ulimit -l; python -m memory"),
            Advice("read batches into memory that is not locked", "DataLoader(pin_memory=False)"),
            Advice("report an error where it arises", "CUDA_LAUNCH_BLOCKING=1"),
        ),
    )


def _recorded(facts: Facts) -> GpuMessage | None:
    """The device as the last stage recorded it; None where no record has one."""
    for record in reversed(facts.records):
        gpu = mapping(mapping(record.get("snapshot")).get("gpu"))
        total, free = unsigned(gpu.get("total_bytes")), unsigned(gpu.get("free_bytes"))
        allocated, reserved = unsigned(gpu.get("allocated_bytes")), unsigned(gpu.get("reserved_bytes"))
        if total is None or allocated is None or reserved is None:
            continue
        others = 0 if free is None else max(0, total - free - reserved - CUDA_CONTEXT.in_bytes)
        return GpuMessage(None, total, free, allocated, max(0, reserved - allocated), None, others, "")
    return None


def _with(oom: GpuMessage, recorded: GpuMessage) -> GpuMessage:
    """A message without numbers, with those that were recorded."""
    return replace(recorded, asked_bytes=oom.asked_bytes, line=oom.line)


def _leak(facts: Facts) -> str | None:
    """Growth on the device by step, as the run itself found it at its last look."""
    looks = (mapping(record.get("leak")) for record in reversed(facts.records))
    leak = mapping(next((look for look in looks if look), {}).get("gpu"))
    slope = unsigned(leak.get("slope_bytes_per_step"))
    if leak.get("is_leak") is not True or not slope:
        return None
    return f"tensors on it grew by {format_bytes(slope)} a step (memory.jsonl)"


def _why(oom: GpuMessage) -> tuple[str | None, str]:
    """The cause, and what says so."""
    asked, idle, total = oom.asked_bytes, oom.unallocated_bytes, oom.total_bytes
    if total and oom.others_bytes > 0.25 * total:
        return "neighbours", f"other processes hold {format_bytes(oom.others_bytes)} of it"
    worth = 0.1 * (oom.allocated_bytes or 0)
    if asked and idle is not None and idle >= max(asked, worth):
        return "fragmentation", f"torch holds {format_bytes(idle)} that no tensor uses, but not in one piece"
    if asked and idle and oom.allocated_bytes and idle > 0.25 * oom.allocated_bytes:
        return "fragmentation", f"{format_bytes(idle)} lie idle in torch's pool, in pieces too small"
    if asked and total and asked > total:
        return "size", "this one tensor is larger than the device"
    if oom.allocated_bytes:
        return "growth", f"tensors held {format_bytes(oom.allocated_bytes)} already"
    return None, "no number says what held it"


def _balance(oom: GpuMessage, recorded: GpuMessage | None) -> str | None:
    is_recorded = recorded is not None and oom.total_bytes == recorded.total_bytes and not oom.asked_bytes
    where = "at the last stage (memory.jsonl)" if is_recorded else "in that message"
    parts = {
        "asked for": oom.asked_bytes, "free": oom.free_bytes, "tensors": oom.allocated_bytes,
        "idle in torch's pool": oom.unallocated_bytes, "other processes": oom.others_bytes or None,
        "device": oom.total_bytes,
    }  # fmt: skip
    known = [f"{name} {format_bytes(amount)}" for name, amount in parts.items() if amount is not None]
    return f"{where}: " + ", ".join(known) if len(known) > 1 else None
