"""Counts what one training step gives a GPU to do, on a machine without a GPU.

    with fake_cuda():
        model = build_model(...).to("cuda")       # shapes and dtypes, no data
        ids = pinned(torch.zeros((32, 129), dtype=torch.int64))
        step()                                    # the first step creates the optimizer's state
        counts = count(step)

Fake tensors take the code paths of their device, `is_cuda` and `device.type` included. The counts are the
same with the CPU and the CUDA build of torch. Some parts of torch need a real device and are replaced here:
the guard that switches the current device, the backward engine in C++ (streams), `Module.to`, and the choice
of an attention kernel (flash if there is no mask).
"""

from __future__ import annotations

import contextlib
import ctypes
import heapq
import itertools
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.optim import optimizer as torch_optimizer
from torch.utils import _foreach_utils
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

CUDA = torch.device("cuda:0")

NO_KERNEL = {"_unsafe_view", "lift_fresh"}
"""Operations that start no kernel and are not views by their schema."""

SCALAR_READS = {"_local_scalar_dense": 1, "equal": True, "is_nonzero": True}
"""Operations that hand a value of the device to Python, and what they return here."""

CUDA_ONLY_KERNELS = ("_fused_rms_norm", "_fused_rms_norm_backward", "silu_backward")
"""Operations that the CPU build of torch would take apart, because it has no kernel of them."""

_LIBRARY = torch.library.Library("aten", "IMPL")


@dataclass
class Counts:
    """Operations that one call gave to the device."""

    operations: int = 0  # kernels and copies launched
    syncs: int = 0  # times the host waited for the device
    copies: int = 0  # between host and device, synchronous or not
    by_name: Counter[str] = field(default_factory=Counter)  # operations
    syncs_by_name: Counter[str] = field(default_factory=Counter)

    def add(self, name: str, *, is_sync: bool = False) -> None:
        self.operations += 1
        self.by_name[name] += 1
        if is_sync:
            self.syncs += 1
            self.syncs_by_name[name] += 1


@contextlib.contextmanager
def fake_cuda() -> Iterator[None]:
    """Make torch.device("cuda") a device whose tensors have no data. All tensors made inside are fake."""
    replacements: tuple[tuple[Any, str, Any], ...] = (
        (Tensor, "backward", backward),
        (nn.Module, "_apply", _apply),
        (nn.functional, "scaled_dot_product_attention", _attention),
        (torch.cuda, "is_bf16_supported", lambda *_, **__: True),
        (torch.cuda, "get_device_capability", lambda *_: (9, 0)),
        (torch.cuda, "current_device", lambda: 0),
        (torch.cuda.amp.common, "amp_definitely_not_available", lambda *_: False),
        *(
            (module, "_foreach_supported_types", [*module._foreach_supported_types, FakeTensor])
            for module in (_foreach_utils, torch_optimizer)
        ),
    )
    with contextlib.ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore", UserWarning)
        stack.enter_context(_cuda_guard())
        stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        stack.enter_context(_Counting())
        for target, name, replacement in replacements:
            stack.enter_context(mock.patch.object(target, name, replacement))
        yield


def count(step: Callable[[], Any]) -> Counts:
    """Counts of one call of `step`, inside `fake_cuda()`."""
    modes = torch.utils._python_dispatch._get_current_dispatch_mode_stack()
    (mode,) = (mode for mode in modes if isinstance(mode, _Counting))
    mode.counts = counts = Counts()
    step()
    return counts


def pinned(tensor: Tensor) -> Tensor:
    """Mark the memory of a host tensor, and so of all its views, as page-locked."""
    tensor.untyped_storage()._is_page_locked = True  # type: ignore[attr-defined]
    return tensor


def is_pinned(tensor: Tensor) -> bool:
    return getattr(tensor.untyped_storage(), "_is_page_locked", False)


def backward(root: Tensor, gradient: Tensor | None = None, *_: object, **__: object) -> None:
    """Compute gradients as `Tensor.backward()`, node by node in the same order, in Python."""
    start = torch.autograd.graph.get_gradient_edge(root)
    waits_for: Counter[Any] = Counter()
    seen, stack = {start.node}, [start.node]
    while stack:
        for node, _index in stack.pop().next_functions:
            waits_for[node] += 1
            if node is not None and node not in seen:
                seen.add(node)
                stack.append(node)
    waiting: dict[Any, list[Tensor | None]] = {}
    numbers = itertools.count()
    ready: list[tuple[int, int, Any]] = []

    def give(node: Any, index: int, gradient: Tensor | None) -> None:
        gradients = waiting.setdefault(node, [None] * max(1, len(node._input_metadata)))
        if gradient is not None:
            expected = node._input_metadata[index]
            gradient = gradient.sum_to_size(expected.shape).to(expected.dtype)
            before = gradients[index]
            gradients[index] = gradient if before is None else before + gradient
        waits_for[node] -= 1
        if waits_for[node] <= 0:
            heapq.heappush(ready, (-node._sequence_nr(), next(numbers), node))

    with torch.no_grad():
        give(start.node, start.output_nr, torch.ones_like(root) if gradient is None else gradient)
        while ready:
            node = heapq.heappop(ready)[2]
            inputs = waiting.pop(node)
            outputs: tuple[Tensor | None, ...] = ()
            if any(one is not None for one in inputs):
                outputs = _run(node, inputs)
            following = [(after, index) for after, index in node.next_functions if after is not None]
            for (after, index), output in itertools.zip_longest(following, outputs):
                give(after, index, output)


def _run(node: Any, inputs: list[Tensor | None]) -> tuple[Tensor | None, ...]:
    """Gradients of those inputs of a function that need one."""
    if isinstance(node, torch.autograd.function.BackwardCFunction):
        outputs, needed = node.apply(*inputs), node.needs_input_grad
    else:
        outputs, needed = node(*inputs), [after is not None for after, _ in node.next_functions]
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    return tuple(itertools.compress(outputs, needed))


class _Counting(TorchDispatchMode):
    """Sees each operation before FakeTensorMode does."""

    def __init__(self) -> None:
        super().__init__()
        self.counts = Counts()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        name = func._schema.name.split("::")[1]
        if str(kwargs.get("device", "")) == "meta":
            kwargs["device"] = CUDA  # "cuda" without an index, to which the meta device's guard gave its name
        inputs = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        is_on_device = any(leaf.is_cuda for leaf in inputs)
        if name == "is_pinned":
            return is_pinned(inputs[0])
        if name == "_pin_memory":
            copy = torch.empty_strided(inputs[0].size(), inputs[0].stride(), dtype=inputs[0].dtype)
            return pinned(copy)
        if is_on_device and name in (*SCALAR_READS, "nonzero"):
            self.counts.add(name, is_sync=True)
            if name == "nonzero":
                return inputs[0].new_empty((1, inputs[0].dim()), dtype=torch.int64)
            return SCALAR_READS[name]
        result = func(*args, **kwargs)
        outputs = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        if not (is_on_device or any(leaf.is_cuda for leaf in outputs)) or not _has_kernel(func, name):
            return result
        if name in ("_to_copy", "copy_"):
            source, target = (args[0], result) if name == "_to_copy" else (args[1], args[0])
            is_asynchronous = kwargs.get("non_blocking", (*args, False)[2] if name == "copy_" else False)
            if source.device.type != target.device.type:
                self.counts.copies += 1
                is_sync = not (is_asynchronous and _is_direct(source, target))
                self.counts.add(f"copy to {target.device.type}", is_sync=is_sync)
                return result
        self.counts.add(name)
        return result


def _has_kernel(func: Any, name: str) -> bool:
    aliases = [returned.alias_info for returned in func._schema.returns]
    is_view = any(alias is not None and not alias.is_write for alias in aliases)
    is_query = func._schema.name.startswith("prim::")
    return not (is_view or is_query or "empty" in name or name in NO_KERNEL)


def _is_direct(source: Tensor, target: Tensor) -> bool:
    """Whether a copy between host and device needs no temporary one, which is pageable (torch's Copy.cu)."""
    host = source if target.is_cuda else target
    is_same = source.dtype == target.dtype and source.is_contiguous() and target.is_contiguous()
    return is_same and is_pinned(host)


@contextlib.contextmanager
def _cuda_guard() -> Iterator[None]:
    """Let C++ code switch to a CUDA device that does not exist.

    For a CUDA build without a GPU, FakeTensorMode installs a guard that does nothing. The CPU build has none,
    so the one of the meta device takes its place in torch's table of guards.
    """
    if torch.backends.cuda.is_built():
        yield
        return
    for name in CUDA_ONLY_KERNELS if not _LIBRARY._op_impls else ():
        _LIBRARY.impl(name, lambda *_: None, "CUDA")  # never called: a fake tensor has no kernel
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
    guards = (ctypes.c_void_p * 21).in_dll(library, "_ZN3c104impl26device_guard_impl_registryE")
    cuda, meta = 1, 14  # c10::DeviceType
    guards[cuda] = guards[meta]
    try:
        yield
    finally:
        guards[cuda] = None


def _apply(module: nn.Module, function: Callable[[Tensor], Tensor], recurse: bool = True) -> nn.Module:
    """Convert parameters and buffers as `Module.to`, which cannot replace fake ones. Tied ones stay tied."""
    converted: dict[Tensor, Tensor] = {}
    for part in module.modules():
        for values in (part._parameters, part._buffers):
            for name, old in values.items():
                if old is None:
                    continue
                if old not in converted:
                    with torch.no_grad():
                        new = function(old)
                    is_parameter = isinstance(old, nn.Parameter)
                    converted[old] = nn.Parameter(new, old.requires_grad) if is_parameter else new
                values[name] = converted[old]
    return module


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    **_: object,
) -> Tensor:
    kernels = torch.ops.aten
    if attn_mask is None:
        return kernels._scaled_dot_product_flash_attention(query, key, value, dropout_p, is_causal)[0]
    return kernels._scaled_dot_product_efficient_attention(
        query, key, value, attn_mask, True, dropout_p, is_causal
    )[0]
