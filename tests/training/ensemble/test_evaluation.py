"""Members evaluated in one pass have the losses of each by itself."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tiny_run import tiny_config

from conf.schema import Arch, Model
from data_loading import StreamingDataset, bytes_per_id, prepare_data
from models import build_model
from models.stacked import StackedModel
from training.devices.device import Device
from training.ensemble.evaluation import evaluate_together
from training.evaluation.evaluate import HeldOut, evaluate
from training.step.weight_average import Ema

CPU = Device("cpu", "fp32", 1)


@pytest.mark.parametrize("documents", ["ignored", "masked"])
@pytest.mark.parametrize("has_average", [False, True])
def test_losses_are_those_of_each_by_itself(has_average: bool, documents: str, tmp_path: Path) -> None:
    config = tiny_config(tmp_path, eval_tokens=200)
    data = prepare_data(config.dataset, config.tokenizer, tokenize=True, log=print)
    (val,), tokens = data.val_ranges, data.val.tokens
    assert len(tokens) > 0
    how: dict[str, Any] = {}
    if documents == "masked":
        import numpy as np

        starts = np.arange(0, val.stop, 7, dtype=np.uint64)
        data = dataclasses.replace(data, val=dataclasses.replace(data.val, documents=starts))
        how = {"documents": "masked"}
    val_set = StreamingDataset(data, "val", 16, 0, order="sequential", **how)
    held_out = HeldOut("val", 1.0, val_set, bytes_per_id(data.tokenizer))
    members: list[Any] = []
    for seed in range(3):
        generator = torch.Generator().manual_seed(seed)
        arch = Arch(dropout_residual=0.5)
        model = build_model(Model(d_model=16, n_layers=1, n_heads=1), arch, 257, 16, generator)
        average = Ema(model, 0.5) if has_average else None
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(1.1)
        if average is not None:
            average.after_step(1)
        plan = SimpleNamespace(budget=SimpleNamespace(micro_batch=4))
        training = dataclasses.replace(config.training, seq_len=16)
        run = SimpleNamespace(
            config=SimpleNamespace(training=training), plan=plan, device=CPU, loss_chunk=32, average=average
        )
        members.append(SimpleNamespace(model=model, run=run, val_sets=[held_out]))

    def alone(member: Any) -> Any:
        from training.step.weight_average import evaluated

        with evaluated(member.model, member.run.average):
            return evaluate(
                member.model, val_set, windows=13, batch_size=4, loss_chunk=32, device=CPU,
                bytes_per_id=held_out.bytes_per_id,
            )  # fmt: skip

    expected = [alone(member) for member in members]
    before = [parameter.detach().clone() for member in members for parameter in member.model.parameters()]
    stack = StackedModel([member.model for member in members])
    found = evaluate_together(members, stack)
    for (own,), other in zip(found, expected, strict=True):
        assert own.loss == pytest.approx(other.loss, rel=1e-6)
        assert (own.tokens, own.bytes_per_token) == (other.tokens, other.bytes_per_token)
    assert len({own.loss for (own,) in found}) == 3
    after = [parameter.detach() for member in members for parameter in member.model.parameters()]
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))
    assert stack.model.training
