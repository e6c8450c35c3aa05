"""Samples of text while a run trains (`logging.sample_every`): one prompt, continued at each of these steps.

Tokens are drawn on the CPU by a generator of their own, whose seed is the same each time, and the model
evaluates meanwhile. Losses are bit for bit those of a run without samples.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any
from unicodedata import east_asian_width

from conf import Config
from experiment_utils.errors import Problem, UserError
from training.attempt.run_files import RUN_FOLDER_VERSION
from training.evaluation.generate import Choice, sample, until_end

if TYPE_CHECKING:
    from data_loading import Data, MixedData, Tokenizer
    from models import LanguageModel
    from training.evaluation.evaluate import HeldOut
    from training.run.loop import Run

log = logging.getLogger("training")

FILE = "samples.jsonl"
PROMPT_TOKENS, TOKENS = 16, 64
"""Tokens of the prompt that is taken from val, and most tokens of a sample."""
SEED = 0
_SHOWN, _SHOWN_OF_PROMPT = 72, 24
"""Columns of a sample in the log, and characters of its prompt at most."""


@dataclass(frozen=True)
class TextSamples:
    """Samples of one run."""

    every: int
    """Steps between two of them; there is one at the last step too."""
    prompt: tuple[int, ...]
    tokenizer: Tokenizer

    def are_due(self, run: Run) -> bool:
        """Whether this step of the run has a sample."""
        return run.step % self.every == 0 or run.step == run.plan.budget.steps

    def take(self, run: Run, model: LanguageModel) -> None:
        """Continue the prompt with the weights that evaluations use, log it and add it to samples.jsonl."""
        from training.report.metrics import append_records

        ids = _draw(run, model, self.prompt, self.tokenizer)
        prompt = self.tokenizer.decode(self.prompt)
        text = self.tokenizer.decode([*self.prompt, *ids])[len(prompt) :]
        record = {
            "version": RUN_FOLDER_VERSION,
            "step": run.step,
            "tokens": run.step * run.plan.budget.batch_tokens,
            "prompt": prompt,
            "text": text,
            "ended": len(ids) < TOKENS,
        }
        append_records(run.folder / FILE, record)
        log.info("sample: %s", shown(prompt, text))


def samples_of(config: Config, data: Data | MixedData, val_sets: Sequence[HeldOut]) -> TextSamples | None:
    """Samples that a run takes; None if `logging.sample_every` is not set.

    Raises:
        UserError: no prompt is given, and nothing is held out to take one from.
    """
    every, prompt = config.logging.sample_every, config.logging.sample_prompt
    if every is None:
        return None
    tokenizer = data.parts[0].tokenizer
    if tokenizer is None:
        raise UserError(Problem("logging.sample_every", "this run has no tokenizer to write text with"))
    if prompt is not None:
        ids = [int(one) for one in tokenizer.encode(prompt)]
    else:
        ids = val_sets[0].dataset.__getitems__(range(1))["input_ids"][0].tolist() if val_sets else []
        ids = ids[:PROMPT_TOKENS]
    if not ids:
        what = "no text is held out to take a prompt from. Add logging.sample_prompt=TEXT"
        raise UserError(Problem("logging.sample_every", what))
    return TextSamples(every, tuple(ids), tokenizer)


def take_if_due(samples: TextSamples | None, run: Run, model: LanguageModel) -> None:
    """Take a sample, as a stage of the first rank, if this step has one."""
    if samples is not None and samples.are_due(run) and run.ranks.is_first:
        with run.last_stage("sample"):
            samples.take(run, model)


def shown(prompt: str, text: str) -> str:
    """The end of the prompt, a bar and the begin of the text, in one line that a terminal of 80 columns has
    room for.
    """
    before, behind = (" ".join(_printable(part).split()) for part in (prompt, text))
    if len(before) > _SHOWN_OF_PROMPT:
        before = f"...{before[3 - _SHOWN_OF_PROMPT :]}"
    line = f"{before} | {behind}"
    return line if _begin(line, _SHOWN) == line else f"{_begin(line, _SHOWN - 3)}..."


def _begin(line: str, columns: int) -> str:
    """The begin of a line, as much of it as fits into columns of a terminal."""
    taken = 0
    for at, character in enumerate(line):
        taken += 2 if east_asian_width(character) in "WF" else 1
        if taken > columns:
            return line[:at]
    return line


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else " " for character in text)


def _draw(run: Run, model: LanguageModel, prompt: Sequence[int], tokenizer: Tokenizer) -> list[int]:
    """At most TOKENS ids that follow the prompt."""
    import torch

    from training.step.weight_average import evaluated

    # as one graph a model would be compiled again for each length
    eager: Any = torch.compiler.set_stance("force_eager") if run.config.training.compile else nullcontext()
    generator = torch.Generator().manual_seed(SEED)
    was_training = model.training
    model.eval()
    try:
        with evaluated(model, run.average), run.device.autocast(), eager:
            drawn = islice(sample(model, list(prompt), Choice(), generator), TOKENS)
            return list(until_end(drawn, tokenizer))
    finally:
        model.train(was_training)
