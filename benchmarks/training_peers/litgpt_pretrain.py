"""litgpt's `pretrain`: it compiles its model always. Rotary positions, because it has no learned ones."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from turns import Job, Turns


def main() -> None:
    job = Job.of_command_line()
    turns = Turns(job.threads)
    turns.hook()
    import numpy as np
    import torch
    from litgpt.args import EvalArgs, TrainArgs
    from litgpt.config import Config
    from litgpt.data import DataModule
    from litgpt.pretrain import setup
    from torch.utils.data import DataLoader, Dataset

    class Windows(Dataset):
        """Windows of the ids with the label of the last."""

        def __init__(self) -> None:
            self._ids = np.memmap(job.tokens, dtype=np.uint16, mode="r")

        def __len__(self) -> int:
            return (len(self._ids) - 1) // job.seq_len

        def __getitem__(self, index: int) -> torch.Tensor:
            start = index * job.seq_len
            return torch.from_numpy(self._ids[start : start + job.seq_len + 1].astype(np.int64))

    class Tokens(DataModule):
        """Both loaders of the same file."""

        def connect(self, tokenizer: Any = None, batch_size: int = 1, max_seq_length: int = -1) -> None:
            self.batch_size = batch_size

        def train_dataloader(self) -> DataLoader:
            return DataLoader(Windows(), batch_size=self.batch_size, shuffle=True)

        def val_dataloader(self) -> DataLoader:
            return DataLoader(Windows(), batch_size=self.batch_size)

    setup(
        model_name="gpt2-shaped",
        model_config=Config(
            name="gpt2-shaped", block_size=job.seq_len, vocab_size=job.vocabulary,
            padded_vocab_size=job.vocabulary, n_layer=job.layers, n_head=job.heads, n_embd=job.width,
            rotary_percentage=1.0, parallel_residual=False, bias=True, attn_bias=True,
            intermediate_size=4 * job.width, gelu_approximate="tanh",
        ),
        out_dir=Path(job.folder),
        precision="32-true",
        data=Tokens(),
        train=TrainArgs(
            global_batch_size=job.batch, micro_batch_size=job.batch, max_tokens=10**12, max_norm=1.0,
            min_lr=4e-5, lr_warmup_steps=2000, tie_embeddings=True, max_seq_length=job.seq_len,
            save_interval=None, log_interval=1,
        ),
        eval=EvalArgs(interval=1_000_000, max_iters=1),
        devices=1,
        logger_name="csv",
    )  # fmt: skip


if __name__ == "__main__":
    main()
