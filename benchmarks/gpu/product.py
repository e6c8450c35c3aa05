"""The product's model, step, loss and estimate, so that they can be timed apart.

All that depends on the product's inner names is here and nowhere else in this folder.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import torch

from benchmarks.gpu.measure import DEVICE, ON_GPU
from conf.schema import Arch, Model, Optimizer
from models import build_model, resolve_loss_chunk
from training.devices.device import Device, measure_peak_flops
from training.optimizers import build_optimizer
from training.step import train_step as training_step


def loss_chunk(vocab: int) -> int:
    """The chunk that a run chooses on this device."""
    gpu_bytes = torch.cuda.get_device_properties(0).total_memory if ON_GPU else None
    return resolve_loss_chunk("auto", vocab, DEVICE, gpu_bytes)


class Step:
    """One of the product's steps is `step()`. Batches are like those of its loader."""

    def __init__(
        self,
        d_model: int,
        vocab: int,
        batch: int,
        seq: int,
        *,
        arch: dict[str, Any] | None = None,
        optimizer: str = "adamw",
        chunk: int | None = None,
        precision: str = "bf16",
        device: str = DEVICE,
        is_deterministic: bool = False,
        has_documents: bool = False,
        accumulation: int = 1,
        is_graphed: bool = False,
    ) -> None:
        self.vocab, self.batch, self.seq, self.accumulation = vocab, batch, seq, accumulation
        shape = Model(d_model=d_model), dataclasses.replace(Arch(), **(arch or {}))
        self.device = Device(device, precision, torch.get_num_threads(), is_deterministic=is_deterministic)
        torch.manual_seed(0)
        self.model = build_model(*shape, vocab, seq).to(device)
        self.optimizer = build_optimizer(self.model, Optimizer(name=optimizer, lr=1e-3), device)
        self.chunk = chunk or loss_chunk(vocab)
        self.batches = self._endless(has_documents)
        scaler = {"scaler": torch.amp.GradScaler(device)} if precision == "fp16" else {}
        self._step: Any = training_step.Step(
            self.model, self.optimizer, self.device, accumulation, self.chunk, grad_clip=1.0, **scaler
        )
        if is_graphed:
            from training.step import graphed_step

            graphs, marker = graphed_step.CudaGraphs(), graphed_step.marker_of(self.device)
            self._step = graphed_step.GraphedStep(self._step, graphs, marker)
            for _ in range(2 * graphed_step.WARM_UP + 3 * graphed_step.TIMED):  # until it has chosen
                self.step()

    def _endless(self, has_documents: bool) -> Iterator[dict[str, torch.Tensor]]:
        generator = torch.Generator().manual_seed(1)
        batches = []
        for _ in range(8):
            ids = torch.randint(self.vocab, (self.batch, self.seq + 1), generator=generator)
            one = {"input_ids": ids[:, :-1], "labels": ids[:, 1:]}
            if has_documents:
                places = torch.arange(self.seq) % max(2, self.seq // 3)
                one["position_ids"] = places.expand(self.batch, self.seq).contiguous()
            batches.append(one)
        while True:
            yield from batches

    def step(self) -> Any:
        return self._step.take(self.batches, 1e-3)

    @property
    def shape(self) -> tuple[int, int]:
        """Blocks and heads of the model."""
        return len(self.model.blocks), self.model.blocks[0].attention.heads[0]


def measured_peak_tflops(precision: str) -> float:
    """Peak TFLOP/s by which the product divides for its MFU."""
    return round((measure_peak_flops(Device(DEVICE, precision, 1)) or 0) / 1e12, 1)
