"""Who holds the memory of this process, at this moment."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from memory.attribute.heap import Heap, walk
from memory.attribute.holdings import Holding, array_holdings, object_holdings, place
from memory.attribute.maps import Maps
from memory.attribute.names import name_of, namespace_name
from memory.attribute.tensors import tensor_holdings
from memory.measure.cuda_allocator import read_gpu
from memory.measure.process import read_process

VERSION = 1
KINDS = ("parameters", "gradients", "optimizer", "buffers", "saved", "tensors", "arrays", "objects")
_OUTSIDE = "held outside Python, as by a graph for the backward pass"


@dataclass
class Attribution:
    """All amounts in bytes."""

    time_s: float
    pid: int
    facts: dict[str, Any] = field(default_factory=dict)
    """Facts of the caller, such as `when` and `step`."""
    anon_bytes: int | None = None
    """This and the next three as the kernel counts them for the process; None without /proc."""
    file_bytes: int | None = None
    shmem_bytes: int | None = None
    rss_bytes: int | None = None
    kinds: list[dict[str, Any]] = field(default_factory=list)
    """Sums of what was found: `{"kind", "where", "count", "bytes", "resident_bytes"}`."""
    modules: list[dict[str, Any]] = field(default_factory=list)
    """The same by module: `{"module", "bytes", "parameters", "gradients", "optimizer", "buffers"}`."""
    largest: list[dict[str, Any]] = field(default_factory=list)
    """Single storages, arrays and objects; items of one container together."""
    cuda: dict[str, int] | None = None
    unexplained_bytes: int | None = None
    """anon_bytes less all that was found."""
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Record for memory.attribution.json."""
        return {"version": VERSION, **{name: getattr(self, name) for name in self.__dataclass_fields__}}

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> Attribution:
        """Read what `to_json` wrote, also of another version: unknown keys are left out."""
        known = {key: record[key] for key in cls.__dataclass_fields__ if key in record}
        return cls(**{"time_s": 0.0, "pid": 0} | known)


def attribute(*, count: int = 15, graphs: bool = True, **facts: Any) -> Attribution:
    """Look at everything in this process: about a second with torch loaded. Never raises.

    Args:
        count: how many of the largest, and of modules.
        graphs: also walk autograd graphs; not while another thread runs a backward pass.
        facts: kept with the answer.
    """
    started = time.perf_counter()
    found = Attribution(time.time(), os.getpid(), facts)
    try:
        _measure(found)
        _find(found, count, graphs)
    except Exception as error:
        found.notes.append(f"{type(error).__name__}: {error}")
    found.seconds = round(time.perf_counter() - started, 4)
    return found


def largest(count: int = 20, *, graphs: bool = False) -> list[dict[str, Any]]:
    """The largest storages, arrays and objects of this process with their names. Never raises.

    Safe while a backward pass runs, so a black box can call it at any time.
    """
    try:
        heap = walk()
        return [holding.to_json() for holding in _largest(_holdings(heap, graphs), heap, count, levels=1)]
    except Exception as error:
        return [{"kind": "error", "name": f"{type(error).__name__}: {error}", "bytes": 0}]


def _measure(found: Attribution) -> None:
    process = read_process(found.pid)
    for name in ("anon_bytes", "file_bytes", "shmem_bytes", "rss_bytes"):
        setattr(found, name, getattr(process, name, None))
    if found.anon_bytes is None:
        found.notes.append("no /proc that splits memory: how much is left is unknown")
    gpu = read_gpu()
    if gpu is not None:
        names = ("allocated_bytes", "reserved_bytes", "peak_bytes")
        found.cuda = {name: getattr(gpu, name) for name in names}


def _find(found: Attribution, count: int, graphs: bool) -> None:
    heap = walk()
    holdings = _holdings(heap, graphs)
    groups: dict[tuple[str, str], list[Holding]] = defaultdict(list)
    modules: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for holding in holdings:
        groups[holding.kind, holding.where].append(holding)
        if holding.module is not None:
            modules[holding.module][holding.kind] += holding.bytes
    found.kinds = [
        {
            "kind": kind,
            "where": where,
            "count": len(group),
            "bytes": sum(one.bytes for one in group),
            "resident_bytes": sum(one.held_bytes for one in group),
        }
        for (kind, where), group in sorted(groups.items(), key=lambda item: KINDS.index(item[0][0]))
    ]
    ranked = sorted(modules.items(), key=lambda item: -sum(item[1].values()))[:count]
    found.modules = [{"module": name, "bytes": sum(kinds.values()), **kinds} for name, kinds in ranked]
    found.largest = [holding.to_json() for holding in _largest(holdings, heap, count)]
    if found.anon_bytes is not None:
        explained = sum(of["resident_bytes"] for of in found.kinds if of["where"] == "anon")
        found.unexplained_bytes = found.anon_bytes - explained


def _holdings(heap: Heap, graphs: bool) -> list[Holding]:
    found = tensor_holdings(heap, graphs=graphs)
    found += array_holdings(heap, found)
    found += object_holdings(heap)
    place(found, Maps())
    return found


def _largest(holdings: Iterable[Holding], heap: Heap, count: int, levels: int = 3) -> list[Holding]:
    """The largest holdings, named; items of one container are one, since a leak is often many small ones."""
    groups: dict[tuple[str, str, int], list[Holding]] = defaultdict(list)
    for holding in holdings:
        container = None if holding.name else heap.containers.get(id(holding.thing))
        groups[holding.kind, holding.where, id(holding if container is None else container)].append(holding)
    merged = []
    for group in groups.values():
        container = heap.containers.get(id(group[0].thing))
        if len(group) == 1 or (type(container) is dict and namespace_name(container)):
            merged += group
            continue
        size, held = sum(one.bytes for one in group), sum(one.held_bytes for one in group)
        first = group[0]
        what = f"{len(group):,} items of a {type(container).__name__}, the first: {first.what}"
        merged.append(Holding(first.kind, "", what, size, 0, first.where, held, None, container))
    found = sorted(merged, key=lambda holding: -holding.held_bytes)[:count]
    for holding in found:
        holding.name = holding.name or name_of(holding.thing, heap, levels) or _OUTSIDE
    return found
