"""Hugging Face's Trainer with its GPT2LMHeadModel, all settings that are not of the shape its defaults."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from turns import Job, Turns


class Windows:
    """Windows of the ids, one after the other; the model shifts the labels itself."""

    def __init__(self, job: Job) -> None:
        import numpy as np

        self._ids, self._seq_len = np.memmap(job.tokens, dtype=np.uint16, mode="r"), job.seq_len

    def __len__(self) -> int:
        return len(self._ids) // self._seq_len

    def __getitem__(self, index: int) -> dict[str, Any]:
        import torch

        window = self._ids[index * self._seq_len : (index + 1) * self._seq_len]
        ids = torch.from_numpy(window.astype("int64"))
        return {"input_ids": ids, "labels": ids}


def main() -> None:
    job = Job.of_command_line()
    turns = Turns(job.threads)
    turns.hook()
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, default_data_collator

    shape = GPT2Config(
        vocab_size=job.vocabulary, n_positions=job.seq_len, n_embd=job.width, n_layer=job.layers,
        n_head=job.heads, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False,
    )  # fmt: skip
    arguments = TrainingArguments(
        output_dir=job.folder, per_device_train_batch_size=job.batch, max_steps=1_000_000, use_cpu=True,
        report_to=[], save_strategy="no", logging_first_step=True, max_grad_norm=1.0,
    )  # fmt: skip
    Trainer(
        model=GPT2LMHeadModel(shape), args=arguments, train_dataset=Windows(job),
        data_collator=default_data_collator,
    ).train()  # fmt: skip


if __name__ == "__main__":
    main()
