"""Storages of torch's tensors by use: parameters, gradients, optimizer state, buffers, saved for the backward
pass, others. torch is found in sys.modules and never imported.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from memory.attribute.heap import Heap
from memory.attribute.holdings import Holding

_MOST_NODES = 200_000
"""Nodes of autograd graphs that are visited."""


def tensor_holdings(heap: Heap, *, graphs: bool = True) -> list[Holding]:
    """Each storage once, under its first use in this order: parameters, gradients, optimizer state, buffers,
    parameters outside of modules, saved for the backward pass, other tensors.

    Args:
        graphs: also walk autograd graphs; not while another thread runs a backward pass.
    """
    found: dict[tuple[str, int], Holding] = {}

    def add(kind: str, name: str, tensor: Any, module: str | None = None) -> None:
        holding = _holding(kind, name, tensor, module)
        if holding is not None:
            found.setdefault((holding.where, holding.address), holding)

    parameters = list(_of_modules(heap.modules, "named_parameters"))
    names: dict[int, tuple[str, str]] = {}
    for name, module, parameter in parameters:
        names.setdefault(id(parameter), (name, module))
        add("parameters", name, parameter, module)
    for name, module, parameter in parameters:
        add("gradients", f"{name}.grad", getattr(parameter, "grad", None), module)
    for optimizer in heap.optimizers:
        for name, state, owner in _states(optimizer, names):
            add("optimizer", name, state, owner)
    for name, module, buffer in _of_modules(heap.modules, "named_buffers"):
        add("buffers", name, buffer, module)
    for tensor in heap.tensors:
        if type(tensor).__name__ == "Parameter" and type(tensor).__module__.startswith("torch.nn"):
            add("parameters", "", tensor)
    if graphs:
        for name, tensor in _saved(heap):
            add("saved", name, tensor)
    for tensor in heap.tensors:
        add("tensors", "", tensor)
    return list(found.values())


def _holding(kind: str, name: str, tensor: Any, module: str | None) -> Holding | None:
    try:
        if type(tensor).__name__ == "FakeTensor":
            return None
        storage = tensor.untyped_storage()
        size, address, device = storage.nbytes(), storage.data_ptr(), str(tensor.device)
        if not size or not address or device == "meta":
            return None
        what = f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"
        where = "anon" if device == "cpu" else device
        return Holding(kind, name, what, size, address, where, None, module, tensor)
    except Exception:  # no tensor, or one without a storage: sparse, of functorch, of other backends
        return None


def _of_modules(modules: list[Any], call: str) -> Iterator[tuple[str, str, Any]]:
    """Name, name of the module, and value of each parameter or buffer of the outermost modules."""
    inner = {id(child) for one in modules for child in (one.__dict__.get("_modules") or {}).values()}
    used: Counter[str] = Counter()
    for root in (one for one in modules if id(one) not in inner):
        name = type(root).__name__
        used[name] += 1
        prefix = name if used[name] == 1 else f"{name}#{used[name]}"
        try:
            named = list(getattr(root, call)())
        except Exception:  # a module that was never initialised
            continue
        for path, value in named:
            module = path.rpartition(".")[0]
            yield f"{prefix}.{path}", f"{prefix}.{module}" if module else prefix, value


def _states(optimizer: Any, names: dict[int, tuple[str, str]]) -> Iterator[tuple[str, Any, str | None]]:
    """Tensors in the state of an optimizer: `AdamW.exp_avg of Model.layer.weight`."""
    try:
        states = list(optimizer.state.items())
    except Exception:
        return
    for parameter, state in states:
        name, module = names.get(id(parameter), ("a parameter", None))
        for key, value in list(state.items()) if isinstance(state, dict) else []:
            yield f"{type(optimizer).__name__}.{key} of {name}", value, module


def _saved(heap: Heap) -> Iterator[tuple[str, Any]]:
    """Tensors that graphs keep for a backward pass: `AddmmBackward0, kept by `loss` of train (loop.py:12)`.

    They are read as they were packed: unpacking would run hooks, and recompute with checkpointing.
    """
    seen: set[int] = set()
    kept: list[Any] = []
    # a variable first, since its name says the most
    for tensor in sorted(heap.tensors, key=lambda one: id(one) not in heap.variables):
        by = heap.variables.get(id(tensor)) or f"a tensor {tuple(tensor.shape)}"
        waiting = [getattr(tensor, "grad_fn", None)]
        while waiting and len(kept) < _MOST_NODES:
            node = waiting.pop()
            if node is None or id(node) in seen:
                continue
            seen.add(id(node))
            kept.append(node)  # else its id could be reused
            for attribute in _saved_names(type(node)):  # type: ignore[arg-type]
                for saved in _packed(node, attribute):
                    yield f"{type(node).__name__}, kept by {by}", saved
            waiting += [following for following, _ in getattr(node, "next_functions", ())]


@lru_cache(maxsize=1024)
def _saved_names(kind: type) -> tuple[str, ...]:
    return tuple(name for name in dir(kind) if name.startswith("_raw_saved_"))


def _packed(node: Any, attribute: str) -> list[Any]:
    try:
        value = getattr(node, attribute)
        return [part.data for part in (value if isinstance(value, list | tuple) else [value])]
    except Exception:  # the graph was used and is empty
        return []
