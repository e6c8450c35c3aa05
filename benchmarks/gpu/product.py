"""The product's model, step, loss and estimate, taken apart so that they can be timed.

All that depends on the product's inner names is here and nowhere else in this folder.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import torch

from benchmarks.gpu.measure import DEVICE, ON_GPU
from conf.schema import Arch, Config, Model, Optimizer
from models import build_model, lm_loss, resolve_loss_chunk
from models.counts import flops_per_token
from training import step as training_step
from training.device import Device, measure_peak_flops
from training.optimizers import build_optimizer

__all__ = ["Step", "ensemble_probe", "lm_loss", "loss_chunk", "lstm_dtype", "measured_peak_tflops"]


def loss_chunk(vocab: int) -> int:
    """The chunk that a run takes by itself on this device."""
    return resolve_loss_chunk("auto", vocab, DEVICE, _gpu_bytes())


def _gpu_bytes() -> int | None:
    return torch.cuda.get_device_properties(0).total_memory if ON_GPU else None


class Step:
    """`step()` takes one of the product's steps. The batches are as its loader gives them."""

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
        compiled: Callable[[Any], None] | None = None,
        accumulation: int = 1,
        is_graphed: bool = False,
    ) -> None:
        self.vocab, self.batch, self.seq, self.accumulation = vocab, batch, seq, accumulation
        self.model_config, self.arch = Model(d_model=d_model), dataclasses.replace(Arch(), **(arch or {}))
        self.device = Device(device, precision, torch.get_num_threads(), is_deterministic=is_deterministic)
        torch.manual_seed(0)
        self.model = build_model(self.model_config, self.arch, vocab, seq).to(device)
        if compiled is not None:
            compiled(self.model)
        self.optimizer = build_optimizer(self.model, Optimizer(name=optimizer, lr=1e-3), device)
        self.chunk = chunk or loss_chunk(vocab)
        self.batches = self._endless(has_documents)
        scaler = {"scaler": torch.amp.GradScaler(device)} if precision == "fp16" else {}
        self._step: Any = training_step.Step(
            self.model, self.optimizer, self.device, accumulation, self.chunk, grad_clip=1.0, **scaler
        )
        if is_graphed:
            from training import graphed_step

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

    @property
    def flops(self) -> float:
        """Tokens of one step."""
        per_token = flops_per_token(self.model_config, self.arch, self.vocab, self.seq).total
        return per_token * self.batch * self.seq * self.accumulation

    def estimate_mib(self) -> dict[str, Any]:
        """Estimate of a run of this shape: GPU, host, and the GPU's parts."""
        from training.memory_parts import estimate_run

        precision = self.device.precision
        config = Config()
        config.model, config.arch = self.model_config, self.arch
        config.training = dataclasses.replace(
            config.training, seq_len=self.seq, effective_batch=self.batch * self.accumulation,
            micro_batch=self.batch, loss_chunk=self.chunk, device=DEVICE, precision=precision,
        )  # fmt: skip
        found = estimate_run(
            config, vocab_size=self.vocab, micro_batch=self.batch,
            kept={"device": DEVICE, "precision": precision},
        )  # fmt: skip
        parts = {name: size >> 20 for name, size in found.at_gpu_peak().items()}
        return {"gpu": found.gpu_bytes >> 20, "host": found.host_bytes >> 20, "parts": parts}


def lstm_dtype(step: Step, dtype: torch.dtype) -> str:
    """The dtype in which a run's LSTM computes under autocast to `dtype`."""
    from models.forward_pass import ForwardPass

    x = torch.randn(2, 4, step.model_config.d_model, device=DEVICE)
    with torch.autocast(DEVICE, dtype=dtype):
        return str(step.model.blocks[0].lstm(x, ForwardPass(step.model.positions, None, None)).dtype)


def measured_peak_tflops(precision: str) -> float:
    """The peak of which the product's MFU is a share."""
    return round((measure_peak_flops(Device(DEVICE, precision, 1)) or 0) / 1e12, 1)


def ensemble_probe(members: int, d_model: int, vocab: int, batch: int, seq: int) -> dict[str, Any]:
    """Number of members that would train together here, and the measured speedups."""
    from training.ensemble.probe import probe

    config = Config()
    config.model = Model(d_model=d_model)
    config.dataset = dataclasses.replace(
        config.dataset, path=f"synthetic:zipf:{vocab}:4M:0", name="synthetic"
    )
    config.tokenizer = dataclasses.replace(config.tokenizer, name="ids")
    config.training = dataclasses.replace(
        config.training, max_steps=100, seq_len=seq, effective_batch=batch, micro_batch=batch
    )
    choice = probe(config, members)
    return {"together": choice.together, "speedups": dict(choice.speedups)}
