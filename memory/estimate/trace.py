"""A training step on shapes alone: what tensors would take, without one of them being allocated.

The model and its step come in as functions. torch's FakeTensorMode runs them on tensors without content, and
torch.distributed._tools.mem_tracker.MemTracker adds up what would live at the worst moment. What happens
inside one operation, such as the logits of a fused loss, it cannot see. Takes seconds, so results are kept in
the user's cache folder, by shape and version of torch.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from experiment_utils.atomic_files import write_bytes

log = logging.getLogger("memory")

_VERSION = 1
_NAMES = {
    "Parameter": "parameters",
    "Buffer": "parameters",
    "Gradient": "gradients",
    "Activation": "activations",
    "Temp": "backward pass",
    "Optstate": "optimizer state",
    "Other": "other tensors",
}
"""MemTracker's kinds, in the words of an estimate."""


@dataclass(frozen=True)
class Traced:
    """Bytes of tensors by name at the peak of a step, and their sum; from_cache: no step was run for it."""

    parts: dict[str, int]
    peak_bytes: int
    from_cache: bool = False


def traced(
    build: Callable[[], tuple[Any, Any]],
    step: Callable[[Any, Any], None],
    *,
    shape: dict[str, Any],
    cache: Path | None = None,
) -> Traced:
    """Run a step on shapes alone, or remember what came out before.

    build: makes (model, optimizer). step: takes a training step with them; it is run twice, as optimizers
    make their state in the first. Both are called with fake tensors in force. shape: all that decides the
    result, JSON values; the key of the cache. cache: a folder; None: highwater/traces in the user's cache.

    Raises:
        Whatever build and step raise.
    """
    path = (cache or _cache_folder()) / f"{_key(shape)}.json"
    with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        found = json.loads(path.read_text(encoding="utf-8"))
        return Traced({str(k): int(v) for k, v in found["parts"].items()}, int(found["peak_bytes"]), True)
    result = _trace(build, step)
    _keep(path, {**asdict(result), "shape": shape})
    return result


def _trace(build: Callable[[], tuple[Any, Any]], step: Callable[[Any, Any], None]) -> Traced:
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed._tools.mem_tracker import MemTracker

    with FakeTensorMode():
        model, optimizer = build()
        tracker = MemTracker()
        tracker.track_external(model, optimizer)
        with tracker:
            for number in range(2):
                step(model, optimizer)
                if number == 0:
                    tracker.reset_mod_stats()
        snapshot = tracker.get_tracker_snapshot("peak")
    parts: dict[str, int] = {}
    total = 0
    for amounts in snapshot.values():
        for kind, amount in amounts.items():
            name = getattr(kind, "value", str(kind))
            if name == "Total":
                total += int(amount)
            elif amount:
                told = _NAMES.get(name, "other tensors")
                parts[told] = parts.get(told, 0) + int(amount)
    return Traced(parts, total)


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "highwater" / "traces"


def _key(shape: dict[str, Any]) -> str:
    from importlib import metadata

    whole = {"version": _VERSION, "torch": metadata.version("torch"), "shape": shape}
    return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()[:32]


def _keep(path: Path, content: dict[str, Any]) -> None:
    """A cache that cannot be written costs the next plan some seconds, nothing more."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(str(path), json.dumps(content).encode())
    except OSError as error:
        log.info("traces are not kept: %s", error)
