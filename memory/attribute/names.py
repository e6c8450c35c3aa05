"""Whose an object is, told by what refers to it."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType, ModuleType
from typing import Any

from memory.attribute.heap import Heap, batches

_OWN = "its own attributes"


@dataclass(slots=True)
class _Referrer:
    """part: `.attribute`, `global name` of a module, or `[item]` of a container without a name."""

    holder: Any
    part: str

    @property
    def is_named(self) -> bool:
        return self.part.startswith((".", "global "))

    @property
    def name(self) -> str:
        if self.part.startswith("global "):
            return f"{self.holder.get('__name__', '?')}.{self.part.removeprefix('global ')}"
        return f"{type(self.holder).__name__}{self.part}"


def names_of(objects: list[Any], heap: Heap, steps: int = 3) -> dict[int, str]:
    """By id, who refers to each: `Loader.buffer`, `mymodule.CACHE['x']`, `Loader.parts[3]`.

    steps: a look over the whole heap for each: these, the containers that they are in, and theirs.
    """
    ours = {
        id(one) for one in (objects, heap.tensors, heap.arrays, heap.large, heap.modules, heap.optimizers)
    }
    wanted = {id(found): found for found in objects}
    levels: list[dict[int, _Referrer]] = []
    for _ in range(steps):
        ours |= {id(wanted), id(levels)}
        levels.append(_referrers(wanted, ours))
        ours.add(id(levels[-1]))
        wanted = {id(one.holder): one.holder for one in levels[-1].values() if not one.is_named}
    return {id(found): name for found in objects if (name := _name(id(found), levels, heap.locals))}


def _name(key: int, levels: list[dict[int, _Referrer]], variables: dict[int, str]) -> str:
    if not levels or key not in levels[0]:
        return ""
    found = levels[0][key]
    if found.is_named:
        return found.name
    if id(found.holder) in variables:
        return f"{variables[id(found.holder)]}{found.part}"
    above = levels[1].get(id(found.holder)) if len(levels) > 1 else None
    if above is not None and above.part == _OWN:
        return f"{type(above.holder).__name__}.{found.part[2:-2]}"
    return (_name(id(found.holder), levels[1:], variables) or f"a {type(found.holder).__name__}") + found.part


def _referrers(wanted: dict[int, Any], passed_over: set[int]) -> dict[int, _Referrer]:
    """By id: who refers to it and how, the attribute of an object before an item of a container.

    gc.get_referrers would compare every reference with each of them.
    """
    found: dict[int, _Referrer] = {}
    passed_over = passed_over | {id(wanted), id(found)}
    for holders, referents in batches() if wanted else ():
        if wanted.keys().isdisjoint(map(id, referents)):
            continue
        for holder in holders:
            if (
                not wanted.keys().isdisjoint(map(id, gc.get_referents(holder)))
                and type(holder) not in (FrameType, ModuleType, Heap, _Referrer)
                and id(holder) not in passed_over
                and holder is not holders
                and holder is not referents
            ):
                _add(found, holder, wanted)
    return found


def _add(found: dict[int, _Referrer], holder: Any, wanted: dict[int, Any]) -> None:
    for key, part in _parts(holder, wanted):
        one = _Referrer(holder, part)
        if key not in found or (one.is_named and not found[key].is_named):
            found[key] = one


def _parts(holder: Any, wanted: dict[int, Any]) -> Iterator[tuple[int, str]]:
    try:
        if type(holder) is dict:
            is_globals = "__name__" in holder and "__builtins__" in holder
            for name, value in list(holder.items()):
                if id(value) in wanted:
                    yield id(value), f"global {name}" if is_globals else f"[{name!r}]"[:60]
        elif type(holder) in (list, tuple):
            for number, value in enumerate(holder):
                if id(value) in wanted:
                    yield id(value), f"[{number}]"
        else:
            own = getattr(holder, "__dict__", None)
            if id(own) in wanted:
                yield id(own), _OWN
            for name, value in list(own.items()) if type(own) is dict else ():
                if id(value) in wanted:
                    yield id(value), f".{name}"
    except Exception:  # an object whose own code fails when it is looked at
        return
