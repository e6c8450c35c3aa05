"""Forward and backward pass of several runs as one CUDA graph: gradients and losses have fixed places."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING

from conf.between_keys.gpu_rules import graph_obstacle
from training.devices.device_batches import on_device
from training.step import graphed_step
from training.step.graphed_step import WARM_UP, Graphs, Work

if TYPE_CHECKING:
    from conf import Config
    from training.devices.device import Device
    from training.step.train_step import Batch

log = logging.getLogger("training")


def may_be_graphed(config: Config, device: Device) -> bool:
    """Whether steps of this configuration can be CUDA graphs on this device, and the config allows it."""
    return device.kind == "cuda" and config.training.cuda_graph is not False and not graph_obstacle(config)


def graphs_for(config: Config, device: Device) -> Graphs | None:
    """Graphs for the runs of an ensemble; None: their passes are eager."""
    return graphed_step.CudaGraphs() if may_be_graphed(config, device) else None


class GraphedPasses:
    """Runs the same work on each micro-batch: eagerly at first, then as a graph, with the same numbers."""

    def __init__(self, device: Device, graphs: Graphs | None) -> None:
        self._device, self._graphs = device, graphs
        self._taken = 0
        self._replay: Work | None = None
        self._batch: Batch = {}

    def take(self, work: Callable[[Batch], None], batch: Batch) -> None:
        """Run the work on a micro-batch, on the device. It writes to the same tensors each time."""
        if self._replay is None and self._graphs is not None and self._taken == WARM_UP:
            self._record(work, batch)
        if self._replay is not None:
            on_device(batch, self._device, self._batch)
            self._replay()
            return
        with nullcontext() if self._graphs is None else self._graphs.warming_up():
            work(on_device(batch, self._device))
        self._taken += 1

    def release(self) -> bool:
        """Free the graph and make no other; returns whether there was one."""
        was_there, graphs = self._replay is not None, self._graphs
        self._replay, self._graphs, self._batch = None, None, {}
        if graphs is not None:
            graphs.free()
        return was_there

    def _record(self, work: Callable[[Batch], None], batch: Batch) -> None:
        assert self._graphs is not None
        place = {name: tensor.clone() for name, tensor in on_device(batch, self._device).items()}

        def on_its_place() -> None:
            work(place)

        try:
            self._replay, self._batch = self._graphs.record(on_its_place), place
        except RuntimeError as error:
            reason = str(error).strip().partition("\n")[0]
            log.warning("training.cuda_graph: the pass of all runs cannot be recorded (%s)", reason)
        if self._replay is None:
            self.release()
