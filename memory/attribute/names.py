"""Names of objects: the attribute, module global or container that refers to them."""

from __future__ import annotations

import gc
from collections import deque
from typing import Any

from memory.attribute.heap import CONTAINERS, Heap

_MOST_LEVELS = 3


def name_of(thing: Any, heap: Heap, levels: int = _MOST_LEVELS) -> str:
    """Name an object: `Loader.buffer`, `module.CACHE['x']`, `Loader.parts[3]`, a variable; empty if unknown.

    Args:
        levels: containers within containers that are followed; each is a look over the whole heap.
    """
    if id(thing) in heap.variables:
        return heap.variables[id(thing)]
    container, part = heap.containers.get(id(thing)), ""
    for holder in gc.get_referrers(thing):
        if type(holder) is dict:
            owner = namespace_name(holder)
            if owner and (name := _key(holder, thing)):
                return f"{owner}.{name}"
        elif type(holder) not in CONTAINERS:
            name = _key(_attributes(holder), thing)
            if name and not type(holder).__module__.startswith("memory.attribute"):
                return f"{type(holder).__name__}.{name}"
        is_own = any(holder is one for one in vars(heap).values())
        if container is None and type(holder) in CONTAINERS and not is_own:
            container = holder
    if container is None or not levels:
        return ""
    if type(container) is dict:
        part = f"[{_key(container, thing)!r}]"[:60]
    else:
        part = f"[{next((n for n, one in enumerate(container) if one is thing), 0)}]"
    return (name_of(container, heap, levels - 1) or f"a {type(container).__name__}") + part


def namespace_name(holder: dict[Any, Any]) -> str:
    """Name of the module or object whose attributes a dict holds; empty for any other dict."""
    if "__builtins__" in holder:
        return str(holder.get("__name__", "?"))
    for owner in gc.get_referrers(holder):
        if type(owner) not in (*CONTAINERS, deque) and _attributes(owner) is holder:
            return type(owner).__name__
    return ""


def _attributes(owner: Any) -> dict[str, Any]:
    try:
        found = owner.__dict__
        return found if type(found) is dict else {}
    except Exception:  # no attributes, or an object whose own code fails
        return {}


def _key(holder: dict[Any, Any], thing: Any) -> Any:
    return next((key for key, value in list(holder.items()) if value is thing), "")
