"""Harness overhead: time outside the step, as a share of the step, 64d with a vocabulary of GPT-2's size.

Two measurements in one run, interleaved:
- timers inside the loop of an ordinary run (`run.json`, attempts[].seconds): all time of the train
  stages, stage records and rows of metrics.csv on, less the time inside `train_step`;
- an A/B against a bare loop of the same model, optimizer, loss and data, with the interval of the
  ratio over the rounds.

    python benchmarks/overhead.py [--rounds 5] [--steps 40]
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import numpy as np

import experiment_utils
from benchmarks.environment import save, summary
from conf import Config
from conf.schema import Dataset, Memory, Model, Tokenizer, Training
from training.device import available_threads

VOCABULARY = 50_257
SEQ_LEN = 128
BATCH = 8

BARE = """
import sys, time
import numpy as np, torch
from conf.schema import Arch, Model, Optimizer
from models import build_model, lm_loss, resolve_loss_chunk
from training.optimizers import build_optimizer
path, steps, seq_len, batch, vocabulary, threads = sys.argv[1], *map(int, sys.argv[2:])
torch.set_num_threads(threads)
torch.manual_seed(0)
tokens = torch.from_numpy(np.load(path).astype(np.int64))
model = build_model(Model(name="64d", d_model=64), Arch(), vocabulary, seq_len)
optimizer = build_optimizer(model, Optimizer(), "cpu")
chunk = resolve_loss_chunk("auto", vocabulary)
seconds = []
for step in range(steps):
    started = time.monotonic()
    starts = range(step * batch * seq_len, (step + 1) * batch * seq_len, seq_len)
    inputs = torch.stack([tokens[s : s + seq_len] for s in starts])
    labels = torch.stack([tokens[s + 1 : s + 1 + seq_len] for s in starts])
    loss = lm_loss(model.hidden(inputs), model.output_weight, labels, chunk=chunk)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    seconds.append(time.monotonic() - started)
print(sum(seconds[1:]) / (steps - 1))
"""


def write_data(folder: Path, tokens: int) -> tuple[Path, Path]:
    """Random ids and a tokenizer of GPT-2's size, so that the benchmark needs no download."""
    from tokenizers import Tokenizer as HuggingFaceTokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    words = {f"w{i}": i for i in range(VOCABULARY - 1)} | {"<|endoftext|>": VOCABULARY - 1}
    tokenizer = HuggingFaceTokenizer(WordLevel(words, unk_token="w0"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.add_special_tokens(["<|endoftext|>"])
    (folder / "tokenizer").mkdir()
    tokenizer.save(str(folder / "tokenizer" / "tokenizer.json"))
    ids = np.random.default_rng(0).integers(0, VOCABULARY, tokens, dtype=np.uint16)
    np.save(folder / "random.npy", ids)
    return folder / "random.npy", folder / "tokenizer"


def harness(
    folder: Path, path: Path, tokenizer: Path, steps: int, threads: int, round_: int
) -> dict[str, float]:
    """Seconds of one run by its own timers."""
    from training.plan import make_plan

    config = Config(
        model=Model(name="64d", d_model=64),
        dataset=Dataset(name="text", path=str(path)),
        tokenizer=Tokenizer(name="words", path=str(tokenizer)),
        training=Training(
            max_steps=steps, seq_len=SEQ_LEN, effective_batch=BATCH, evals=1, eval_tokens=SEQ_LEN,
            checkpoint_every=10**6, device="cpu", precision="fp32", threads=threads,
        ),
        memory=Memory(every_steps=10),
        runs_dir=str(folder / f"runs{round_}"),
    )  # fmt: skip
    plan = make_plan(config, tokenize=True)
    run = experiment_utils.create_run(plan.config, str(plan.identity))
    subprocess.run([sys.executable, str(ROOT / "core.py"), str(run), "--quiet"], check=True)
    seconds = experiment_utils.read_run(run)["attempts"][0]["seconds"]
    in_stages = seconds["train"] + seconds["first_step"]
    return {
        "step": seconds["step"],
        "outside": in_stages - seconds["step"],
        "per_step": (seconds["train"]) / (steps - 1),
    }


def bare(path: Path, steps: int, threads: int) -> float:
    environment = os.environ | {"GOMP_SPINCOUNT": "1000"}  # as a run has it
    done = subprocess.run(
        [sys.executable, "-c", BARE, *map(str, (path, steps, SEQ_LEN, BATCH, VOCABULARY, threads))],
        cwd=ROOT, env=environment, check=True, capture_output=True, text=True,
    )  # fmt: skip
    return float(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=40)
    options = parser.parse_args()
    threads = available_threads()
    shares, ratios = [], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path, tokenizer = write_data(folder, tokens=4 * options.steps * BATCH * SEQ_LEN)
        for round_ in range(options.rounds):
            order = ["harness", "bare"]
            random.Random(round_).shuffle(order)
            found: dict[str, float] = {}
            for which in order:
                if which == "harness":
                    timers = harness(folder, path, tokenizer, options.steps, threads, round_)
                    shares.append(timers["outside"] / timers["step"])
                    found[which] = timers["per_step"]
                else:
                    found[which] = bare(path, options.steps, threads)
            ratios.append(found["harness"] / found["bare"])
            time.sleep(0.5)
    mean, deviation = statistics.mean(ratios), statistics.stdev(ratios) if len(ratios) > 1 else 0.0
    half_width = 2.776 * deviation / len(ratios) ** 0.5  # Student's t for 5 rounds, 95%
    save(
        "overhead",
        {
            "what": f"64d, {VOCABULARY} ids, batch {BATCH} x {SEQ_LEN}, {threads} threads, stage records on",
            "outside_the_step_share": summary(shares),
            "goal": "at most 0.01",
            "harness_over_bare_loop": summary(ratios)
            | {
                "mean": round(mean, 4),
                "interval_95": [round(mean - half_width, 4), round(mean + half_width, 4)],
            },
        },
    )


if __name__ == "__main__":
    main()
