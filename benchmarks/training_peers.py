"""Loops that training_speed.py compares, each unchanged: python training_peers.py NAME JOB, a `Job` as JSON.

A hook of torch that every optimizer calls stops a loop after each step until its turn. A step lasts from
the end of one call of the optimizer to the end of the next: logging, the next batch, both passes, clipping.
"""

from __future__ import annotations

import json
import os
import pickle
import runpy
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.processes import Turn, proc_bytes


@dataclass(frozen=True)
class Job:
    """What is trained, the same for all.

    folder: of this process alone. tokens: ids, uint16, no header. checkout: of a peer that is no package.
    """

    folder: str
    tokens: str
    layers: int
    width: int
    vocabulary: int
    seq_len: int
    batch: int
    threads: int
    checkout: str = ""
    compile: bool = False

    def text(self) -> str:
        return json.dumps(asdict(self))


class Turns:
    """Reports of the steps of this process; torch_bytes: resident after loading torch."""

    def __init__(self, threads: int) -> None:
        import torch

        torch.set_num_threads(threads)
        a = torch.ones(64, 64)
        (a @ a).sum().item()
        self._torch_bytes, self._turn = proc_bytes("VmRSS"), Turn()

    def end_step(self, *_: Any, **more: Any) -> None:
        self._turn.end_step(torch_bytes=self._torch_bytes, **more)

    def hook(self) -> None:
        """Have every optimizer call it."""
        from torch.optim.optimizer import register_optimizer_step_post_hook

        register_optimizer_step_post_hook(lambda *_: self.end_step())


def ours(job: Job, turns: Turns) -> None:
    """A whole run, as `experiments.py` starts it: `core.py RUN`, from its config.yaml on."""
    turns.hook()
    import core

    sys.exit(core.main([job.folder, "--quiet"]))


def floor(job: Job, turns: Turns) -> None:
    """The three fp32 products of the head alone, in memory that is kept, with the fastest chunk of tokens.

    Logits of all tokens, gradient of the states, gradient of the matrix: no implementation that computes in
    fp32 with torch's products can do without them.
    """
    import torch

    tokens = job.batch * job.seq_len
    hidden, weight = torch.randn(tokens, job.width), torch.randn(job.vocabulary, job.width)
    grad_hidden, grad_weight = torch.empty_like(hidden), torch.zeros_like(weight)

    def one_pass(chunk: int, logits: Any) -> None:
        grad_weight.zero_()
        for start in range(0, tokens, chunk):
            states = hidden[start : start + chunk]
            part = logits[: len(states)]
            torch.mm(states, weight.T, out=part)
            torch.mm(part, weight, out=grad_hidden[start : start + chunk])
            grad_weight.addmm_(part.T, states)

    def seconds(chunk: int) -> float:
        found, logits = [], torch.empty(chunk, job.vocabulary)
        for _ in range(4):
            started = time.perf_counter()
            one_pass(chunk, logits)
            found.append(time.perf_counter() - started)
        return min(found)

    with torch.no_grad():
        chunk = min((64, 128, 256, 512, 4096), key=seconds)
        logits = torch.empty(chunk, job.vocabulary)
        while True:
            one_pass(chunk, logits)
            turns.end_step(chunk=chunk)


class Windows:
    """Windows of the ids, one after the other. more: ids after each window, for its last label."""

    def __init__(self, job: Job, more: int = 0) -> None:
        import numpy as np

        self._ids, self._seq_len, self._more = np.memmap(job.tokens, np.uint16, "r"), job.seq_len, more

    def __len__(self) -> int:
        return (len(self._ids) - self._more) // self._seq_len

    def __getitem__(self, index: int) -> Any:
        import torch

        start = index * self._seq_len
        window = self._ids[start : start + self._seq_len + self._more].astype("int64")
        ids = torch.from_numpy(window)
        return ids if self._more else {"input_ids": ids, "labels": ids}


def hf_trainer(job: Job, turns: Turns) -> None:
    """Hugging Face's Trainer with its GPT2LMHeadModel and its default settings."""
    turns.hook()
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, default_data_collator

    shape = GPT2Config(
        vocab_size=job.vocabulary, n_positions=job.seq_len, n_embd=job.width, n_layer=job.layers,
        n_head=job.layers, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False,
    )  # fmt: skip
    arguments = TrainingArguments(
        output_dir=job.folder, per_device_train_batch_size=job.batch, max_steps=1_000_000, use_cpu=True,
        report_to=[], save_strategy="no", logging_first_step=True, max_grad_norm=1.0,
    )  # fmt: skip
    model, collator = GPT2LMHeadModel(shape), default_data_collator
    Trainer(model=model, args=arguments, train_dataset=Windows(job), data_collator=collator).train()


def litgpt_pretrain(job: Job, turns: Turns) -> None:
    """litgpt's `pretrain`, which always compiles; rotary positions, because it has no learned ones."""
    turns.hook()
    from litgpt.args import EvalArgs, TrainArgs
    from litgpt.config import Config
    from litgpt.data import DataModule
    from litgpt.pretrain import setup
    from torch.utils.data import DataLoader

    class Tokens(DataModule):
        """Both loaders of the same file."""

        def connect(self, tokenizer: Any = None, batch_size: int = 1, max_seq_length: int = -1) -> None:
            self.batch_size = batch_size

        def train_dataloader(self) -> DataLoader:
            return DataLoader(Windows(job, 1), batch_size=self.batch_size, shuffle=True)

        def val_dataloader(self) -> DataLoader:
            return DataLoader(Windows(job, 1), batch_size=self.batch_size)

    setup(
        model_name="gpt2-shaped",
        model_config=Config(
            name="gpt2-shaped", block_size=job.seq_len, vocab_size=job.vocabulary,
            padded_vocab_size=job.vocabulary, n_layer=job.layers, n_head=job.layers, n_embd=job.width,
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


def nanogpt(job: Job, turns: Turns) -> None:
    """nanoGPT's own train.py from a checkout, not a line changed, as its README has it on a CPU."""
    turns.hook()
    folder = Path(job.folder)
    data = folder / "data" / "tokens"
    data.mkdir(parents=True)
    for name in ("train.bin", "val.bin"):
        (data / name).symlink_to(job.tokens)
    (data / "meta.pkl").write_bytes(pickle.dumps({"vocab_size": job.vocabulary}))
    for name in ("train.py", "model.py", "configurator.py"):
        (folder / name).symlink_to(Path(job.checkout).resolve() / name)
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    sys.argv = [
        "train.py", "--device=cpu", f"--compile={job.compile}", "--dtype=float32", "--dataset=tokens",
        f"--batch_size={job.batch}", f"--block_size={job.seq_len}", "--gradient_accumulation_steps=1",
        f"--n_layer={job.layers}", f"--n_head={job.layers}", f"--n_embd={job.width}", "--bias=True",
        "--eval_iters=1", "--eval_interval=1000000", "--grad_clip=1.0",
    ]  # fmt: skip
    runpy.run_path("train.py", run_name="__main__")


LOOPS: dict[str, Callable[[Job, Turns], None]] = {
    loop.__name__: loop for loop in (ours, floor, hf_trainer, litgpt_pretrain, nanogpt)
}

if __name__ == "__main__":
    given = Job(**json.loads(sys.argv[2]))
    LOOPS[sys.argv[1]](given, Turns(given.threads))
