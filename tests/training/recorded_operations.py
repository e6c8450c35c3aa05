"""Graphs on a CPU: records the operations of a call and computes them again on the same tensors.

As in a CUDA graph, a recording changes nothing, what Python does is not repeated, and a value that Python
reads of a tensor is an error.
"""

from __future__ import annotations

import contextlib
import copy
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

READS_OF_THE_HOST = ("_local_scalar_dense", "nonzero", "equal", "is_nonzero")


class RecordedOperations:
    """`graphed_step.Graphs` that needs no GPU. fails: an error that each recording ends with."""

    def __init__(self, fails: BaseException | None = None) -> None:
        self.fails = fails
        self.warm_ups = 0
        self.replays: list[str] = []
        self._recordings: weakref.WeakSet[_Recorder] = weakref.WeakSet()
        self.kept_when_freed: list[int] = []
        """Recordings that were still referenced at each call of `free`."""

    def warming_up(self) -> contextlib.AbstractContextManager[None]:
        self.warm_ups += 1
        return contextlib.nullcontext()

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        recorder = _Recorder()
        self._recordings.add(recorder)
        try:
            with recorder:
                work()
                if self.fails is not None:
                    raise copy.copy(self.fails)  # whose frames end with it
        finally:
            recorder.undo()

        name = work.__name__  # like a CUDA graph, a recording does not hold what it recorded

        def replay() -> None:
            self.replays.append(name)
            recorder.replay()

        return replay

    def free(self) -> None:
        self.kept_when_freed.append(len(self._recordings))


class _Recorder(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self._done: list[tuple[Any, Any, Any, Any]] = []
        self._before: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func._schema.name.split("::")[1] in READS_OF_THE_HOST:
            raise RuntimeError("operation not permitted when stream is capturing")
        for tensor in _written(func, args):
            self._before.setdefault(id(tensor), (tensor, tensor.detach().clone()))
        result = func(*args, **kwargs)
        is_view = any(
            returned.alias_info is not None and not returned.alias_info.is_write
            for returned in func._schema.returns
        )
        if not is_view:
            self._done.append((func, args, kwargs, result))
        return result

    @torch.no_grad()
    def undo(self) -> None:
        for tensor, before in self._before.values():
            tensor.copy_(before)
        self._before.clear()

    @torch.no_grad()
    def replay(self) -> None:
        for func, args, kwargs, before in self._done:
            now = func(*args, **kwargs)
            if not _written(func, args):
                for place, value in zip(_tensors(before), _tensors(now), strict=True):
                    place.copy_(value)


def _written(func: Any, args: Any) -> list[torch.Tensor]:
    found = []
    for argument, value in zip(func._schema.arguments, args, strict=False):
        if argument.alias_info is not None and argument.alias_info.is_write:
            found += _tensors(value)
    return found


def _tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]
