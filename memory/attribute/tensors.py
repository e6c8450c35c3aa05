"""Storages of torch's tensors by what they are for: parameters, gradients, optimizer state, buffers, saved
for the backward pass, others. torch is found in sys.modules, never imported.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from memory.attribute.heap import Heap
from memory.attribute.holdings import Holding

_MOST_NODES = 200_000
"""Of autograd graphs, so that a walk ends."""


def tensor_holdings(heap: Heap, *, graphs: bool = True) -> list[Holding]:
    """Each storage once, under the first use in this order that it has. graphs: also walk the autograd graphs
    that tensors keep; not while a backward pass may run in another thread.
    """
    found: dict[tuple[str, int], Holding] = {}

    def add(kind: str, name: str, tensor: Any, module: str | None = None) -> None:
        for part in _plain_parts(tensor):
            holding = _holding(kind, name, part, module)
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
        if _is_loose_parameter(tensor):
            add("parameters", heap.locals.get(id(tensor), ""), tensor)
    if graphs:
        for name, tensor in _saved(heap):
            add("saved", name, tensor)
    for tensor in heap.tensors:
        add("tensors", heap.locals.get(id(tensor), ""), tensor)
    return list(found.values())


def _holding(kind: str, name: str, tensor: Any, module: str | None) -> Holding | None:
    try:
        storage = tensor.untyped_storage()
        size, address, device = storage.nbytes(), storage.data_ptr(), str(tensor.device)
        if not size or not address or device == "meta":
            return None
        what = f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"
        return Holding(kind, name, what, size, address, "anon" if device == "cpu" else device, None, module)
    except Exception:  # tensors without a storage: of FakeTensorMode, of functorch, of other backends
        return None


def _plain_parts(tensor: Any) -> tuple[Any, ...]:
    """A sparse tensor's parts; any other as it is."""
    if type(tensor).__name__ == "FakeTensor":
        return ()
    try:
        layout = str(tensor.layout)
        if layout == "torch.sparse_coo":
            return tensor._indices(), tensor._values()
        if layout in ("torch.sparse_csr", "torch.sparse_bsr"):
            return tensor.crow_indices(), tensor.col_indices(), tensor.values()
    except Exception:
        return ()
    return (tensor,)


def _roots(modules: list[Any]) -> Iterator[tuple[Any, str]]:
    """Modules that lie in no other, with a name each."""
    within = {
        id(child)
        for module in modules
        for child in (module.__dict__.get("_modules") or {}).values()
        if child is not None
    }
    roots = [module for module in modules if id(module) not in within]
    used: Counter[str] = Counter()
    for root in roots:
        name = type(root).__name__
        used[name] += 1
        yield root, name if used[name] == 1 else f"{name}#{used[name]}"


def _of_modules(modules: list[Any], call: str) -> Iterator[tuple[str, str, Any]]:
    """Name, name of the module, and the parameter or buffer that `call` gives, of all modules."""
    for root, prefix in _roots(modules):
        try:
            named = list(getattr(root, call)())
        except Exception:  # a module that was never initialised
            continue
        for path, value in named:
            module = path.rpartition(".")[0]
            yield f"{prefix}.{path}", f"{prefix}.{module}" if module else prefix, value


def _states(optimizer: Any, names: dict[int, tuple[str, str]]) -> Iterator[tuple[str, Any, str | None]]:
    """Tensors in the state of an optimizer: `AdamW.exp_avg of Model.layer.weight`."""
    kind = type(optimizer).__name__
    try:
        states = list(optimizer.state.items())
    except Exception:
        return
    for parameter, state in states:
        name, module = names.get(id(parameter), ("a parameter", None))
        for key, value in list(state.items()) if isinstance(state, dict) else []:
            if hasattr(value, "untyped_storage"):
                yield f"{kind}.{key} of {name}", value, module


def _is_loose_parameter(tensor: Any) -> bool:
    """One that belongs to no module."""
    return type(tensor).__name__ == "Parameter" and type(tensor).__module__.startswith("torch.nn")


def _saved(heap: Heap) -> Iterator[tuple[str, Any]]:
    """Tensors that graphs keep for a backward pass: `AddmmBackward0, kept by `loss` of train (loop.py:12)`.

    Read as they were packed: unpacking would run hooks, and with checkpointing compute anew.
    """
    seen: set[int] = set()
    nodes = 0
    kept: list[Any] = []
    # from a variable first, since its name tells most
    for tensor in sorted(heap.tensors, key=lambda one: id(one) not in heap.locals):
        node = getattr(tensor, "grad_fn", None)
        if node is None:
            continue
        by = heap.locals.get(id(tensor)) or f"a tensor {tuple(tensor.shape)}"
        waiting = [node]
        while waiting and nodes < _MOST_NODES:
            node = waiting.pop()
            if node is None or id(node) in seen:
                continue
            seen.add(id(node))
            kept.append(node)  # else its id may be given to another
            nodes += 1
            for attribute in _saved_names(type(node)):  # type: ignore[arg-type]
                for saved in _packed(node, attribute):
                    yield f"{type(node).__name__}, kept by {by}", saved
            waiting += [next_node for next_node, _ in getattr(node, "next_functions", ())]


@lru_cache(maxsize=1024)
def _saved_names(kind: type) -> tuple[str, ...]:
    return tuple(name for name in dir(kind) if name.startswith("_raw_saved_"))


def _packed(node: Any, attribute: str) -> list[Any]:
    try:
        value = getattr(node, attribute)
        parts = value if isinstance(value, list | tuple) else [value]
        tensors = [part.data for part in parts]
    except Exception:  # the graph was used and is empty
        return []
    return [tensor for tensor in tensors if hasattr(tensor, "untyped_storage")]
