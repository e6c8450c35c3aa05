"""Who holds the memory of this process, at this moment."""

from __future__ import annotations

import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from memory.attribute.allocators import allocation_sites, cuda_sums, read_malloc
from memory.attribute.arrays import array_holdings, data_address, object_holdings
from memory.attribute.heap import Heap, walk
from memory.attribute.holdings import Holding, place
from memory.attribute.maps import Maps, read_maps
from memory.attribute.names import names_of
from memory.attribute.tensors import tensor_holdings
from memory.measure.process import read_process

VERSION = 1
_OUTSIDE = "held outside Python, as by a graph for the backward pass"
_MOST_NAMED = 1000
KINDS = ("parameters", "gradients", "optimizer", "buffers", "saved", "tensors", "arrays", "objects")


@dataclass
class Attribution:
    """All amounts in bytes. facts: what the caller told, such as `when` and `step`.

    anon_bytes, file_bytes, shmem_bytes, rss_bytes: of the process, as the kernel tells; None without /proc.
    kinds: sums of what was found, `{"kind", "where", "count", "bytes", "resident_bytes"}`. modules: the same
    of each module's parameters, gradients, optimizer state and buffers. largest: single storages, arrays and
    objects. maps: by kind of mapping; files: the mapped files with the most in memory. sites: lines of Python
    code, None where nothing traces them. unexplained_bytes: anon less all that was found; likely: where it
    lies, `{"owner", "bytes", "is_exact"}`.
    """

    time_s: float
    pid: int
    facts: dict[str, Any] = field(default_factory=dict)
    anon_bytes: int | None = None
    file_bytes: int | None = None
    shmem_bytes: int | None = None
    rss_bytes: int | None = None
    kinds: list[dict[str, Any]] = field(default_factory=list)
    modules: list[dict[str, Any]] = field(default_factory=list)
    largest: list[dict[str, Any]] = field(default_factory=list)
    maps: dict[str, dict[str, int]] = field(default_factory=dict)
    files: list[dict[str, Any]] = field(default_factory=list)
    malloc: dict[str, int] | None = None
    sites: list[dict[str, Any]] | None = None
    cuda: dict[str, int] | None = None
    objects: dict[str, Any] = field(default_factory=dict)
    unexplained_bytes: int | None = None
    likely: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """For a file."""
        return {"version": VERSION, **{name: getattr(self, name) for name in self.__dataclass_fields__}}

    @classmethod
    def of_json(cls, record: dict[str, Any]) -> Attribution:
        """Of what `to_json` wrote, also by another version: what is not known is left out."""
        return cls(
            **{"time_s": 0.0, "pid": 0} | {k: record[k] for k in cls.__dataclass_fields__ if k in record}
        )


def attribute(*, count: int = 15, graphs: bool = True, **facts: Any) -> Attribution:
    """Look at everything in this process: 0.3 to 1 s where torch is loaded. Never raises.

    Args:
        count: of the largest, of modules, files and sites.
        graphs: also walk autograd graphs; not while another thread runs a backward pass.
        facts: kept with the answer.
    """
    started = time.perf_counter()
    found = Attribution(time.time(), os.getpid(), facts)
    for part in (_measure, _hold, _account):
        try:
            part(found, count, graphs)
        except Exception as error:
            found.notes.append(f"{part.__name__.strip('_')}: {type(error).__name__}: {error}")
    found.__dict__.pop("_held", None)
    found.seconds = round(time.perf_counter() - started, 4)
    return found


def largest(count: int = 20, *, graphs: bool = False) -> list[dict[str, Any]]:
    """The largest storages, arrays and objects of this process with their names; for a black box: quick, and
    safe while a backward pass runs. Never raises.
    """
    try:
        maps = read_maps(os.getpid(), amounts=False)
        holdings = _holdings(walk(sizes=False), maps, graphs, steps=2)[0]
        return [holding.to_json() for holding in _ranked(_together(holdings))[:count]]
    except Exception as error:
        return [{"kind": "error", "name": f"{type(error).__name__}: {error}", "bytes": 0}]


def _measure(found: Attribution, count: int, graphs: bool) -> None:
    process = read_process(found.pid)
    if process is not None:
        found.anon_bytes, found.file_bytes = process.anon_bytes, process.file_bytes
        found.shmem_bytes, found.rss_bytes = process.shmem_bytes, process.rss_bytes
    if found.anon_bytes is None:
        found.notes.append("no /proc that splits memory: what was found cannot be held against the whole")
    found.malloc, found.sites, found.cuda = read_malloc(), allocation_sites(count), cuda_sums()


def _hold(found: Attribution, count: int, graphs: bool) -> None:
    maps = read_maps(found.pid)
    heap = walk()
    holdings, maps_of = _holdings(heap, maps, graphs)
    found.maps, found.files = maps.by_kind(), maps.files(count)
    sums: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0])
    of_modules: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for holding in holdings:
        amounts = sums[holding.kind, holding.where]
        amounts[0] += 1
        amounts[1] += holding.bytes
        amounts[2] += holding.held_bytes
        if holding.module is not None:
            of_modules[holding.module][holding.kind] += holding.bytes
    found.kinds = [
        {"kind": kind, "where": where, "count": n, "bytes": size, "resident_bytes": held}
        for (kind, where), (n, size, held) in sorted(sums.items(), key=lambda item: KINDS.index(item[0][0]))
    ]
    ranked = sorted(of_modules.items(), key=lambda item: -sum(item[1].values()))[:count]
    found.modules = [{"module": name, "bytes": sum(of.values()), **of} for name, of in ranked]
    found.largest = [holding.to_json() for holding in _ranked(_together(holdings))[:count]]
    found.objects = {
        "containers": heap.objects,
        "python_bytes": heap.python_bytes,
        "blocks": sys.getallocatedblocks() if hasattr(sys, "getallocatedblocks") else None,
        "by_type": heap.by_type,
    }
    found.__dict__["_held"] = (holdings, maps_of)


def _account(found: Attribution, count: int, graphs: bool) -> None:
    """What of anon was not found, and where it must lie: mappings whose kind is known, less what was found in
    them.
    """
    if found.anon_bytes is None:
        return
    holdings, maps = found.__dict__["_held"]
    held = [holding for holding in holdings if holding.where == "anon"]
    found.unexplained_bytes = found.anon_bytes - sum(holding.held_bytes for holding in held)
    if not maps.has_amounts:
        found.notes.append("smaps cannot be read: where the rest lies is not known")
        return
    inside: dict[str, int] = defaultdict(int)
    for holding in held:
        mapping = maps.at(holding.address)
        inside["anonymous" if mapping is None else mapping.kind] += holding.held_bytes
    anon = {kind: of["anon_bytes"] for kind, of in found.maps.items()}
    of_malloc = anon.get("heap", 0) + anon.get("arena", 0)
    rest_of_malloc = max(0, of_malloc - inside["heap"] - inside["arena"])
    free = min(rest_of_malloc, (found.malloc or {}).get("free_bytes", 0))
    maps_left = max(0, anon.get("anonymous", 0) - inside["anonymous"])
    python = min(maps_left, found.objects.get("python_bytes", 0))
    rows = [
        ("libraries' own data and private writes to mapped files", anon.get("file", 0), True),
        ("stacks of threads", anon.get("stack", 0), True),
        ("free, kept by malloc (at most)", free, False),
        ("malloc's heap and arenas: small objects of Python and of libraries", rest_of_malloc - free, True),
        ("small objects of Python (estimated)", python, False),
        ("anonymous maps of their own: buffers and pools of libraries", maps_left - python, False),
    ]
    found.likely = [
        {"owner": owner, "bytes": size, "is_exact": is_exact} for owner, size, is_exact in rows if size > 0
    ]


def _holdings(heap: Heap, maps: Maps, graphs: bool, steps: int = 3) -> tuple[list[Holding], Maps]:
    found = tensor_holdings(heap, graphs=graphs)
    found += array_holdings(heap, found)
    found += object_holdings(heap)
    place(found, maps)
    _name(found, heap, steps)
    return found, maps


def _together(holdings: Iterable[Holding]) -> list[Holding]:
    """Items of one list or dict as one: `Loader.cache, 400 items`; a leak is often many small ones."""
    groups: dict[tuple[str, str, str], list[Holding]] = defaultdict(list)
    for holding in holdings:
        holder = holding.name.rpartition("[")[0] if holding.name.endswith("]") else ""
        groups[(holding.kind, holding.where, holder) if holder else ("", "", str(id(holding)))].append(
            holding
        )
    found = []
    for (_, _, holder), group in groups.items():
        if len(group) == 1:
            found.append(group[0])
            continue
        size, held = sum(one.bytes for one in group), sum(one.held_bytes for one in group)
        what = f"the first: {group[0].what}"
        name = f"{holder}, {len(group):,} items"
        found.append(Holding(group[0].kind, name, what, size, 0, group[0].where, held))
    return found


def _name(found: list[Holding], heap: Heap, steps: int) -> None:
    """Names for the largest of those that have none: who refers to them."""
    nameless = {holding.address: holding for holding in _ranked(h for h in found if not h.name)[:_MOST_NAMED]}
    if not nameless:
        return
    objects: list[Any] = []
    addresses: list[int] = []
    for thing, address in _addressed(heap):
        if address in nameless:
            objects.append(thing)
            addresses.append(address)
    names = names_of(objects, heap, steps)
    for thing, address in zip(objects, addresses, strict=True):
        nameless[address].name = nameless[address].name or names.get(id(thing), "")
    for holding in nameless.values():
        holding.name = holding.name or _OUTSIDE


def _addressed(heap: Heap) -> Iterable[tuple[Any, int]]:
    for tensor in heap.tensors:
        try:
            yield tensor, tensor.untyped_storage().data_ptr()
        except Exception:
            continue
    for array in heap.arrays:
        try:
            yield array, int(array.__array_interface__["data"][0])
        except Exception:
            continue
    for large in heap.large:
        yield large, data_address(large)


def _ranked(holdings: Iterable[Holding]) -> list[Holding]:
    return sorted(holdings, key=lambda holding: -holding.held_bytes)
