"""Open a trained run: config, model with the weights of a checkpoint, tokenizer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import chdir, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conf import Config
from experiment_utils.arguments import find_run
from experiment_utils.errors import UserError
from training.attempt.run_files import read_config, read_run
from training.checkpoint.checkpoints import CorruptError, checkpoint_steps, load_weights

if TYPE_CHECKING:
    from conf.schema import Tokenizer as TokenizerConfig
    from data_loading import Tokenizer
    from models import LanguageModel

BEST, LAST = "best", "last"


@dataclass(frozen=True)
class SavedRun:
    """A trained run and one of its checkpoints."""

    folder: Path
    config: Config
    facts: dict[str, Any]
    """Content of run.json."""
    checkpoint: Path
    step: int
    is_best: bool

    @property
    def vocab_size(self) -> int:
        """Number of ids of its tokenizer."""
        return int(self.facts["vocab_size"])

    def words(self) -> str:
        """Line that names the run and the checkpoint."""
        return f"{self.folder}, step {self.step:,}{', its best' if self.is_best else ''}"

    @property
    def home(self) -> Path:
        """Base folder of its relative paths: the one it was started in, if it exists on this machine."""
        folder = (self.facts.get("attempts") or [{}])[-1].get("cwd")
        return Path(folder) if isinstance(folder, str) and Path(folder).is_dir() else Path.cwd()

    @contextmanager
    def at_home(self) -> Iterator[None]:
        """Resolve relative paths of the configuration as the run did, within the block."""
        with chdir(self.home):
            yield

    @property
    def tokenizer_config(self) -> TokenizerConfig:
        """Its tokenizer configuration with absolute paths."""
        found = self.config.tokenizer
        places = {"path": found.path, "local_folder": found.local_folder}
        return replace(
            found,
            **{
                name: str(self.home / Path(place).expanduser())
                for name, place in places.items()
                if place is not None
            },
        )

    def model(self) -> LanguageModel:
        """Build the model on the CPU in fp32 with the weights of the checkpoint, in evaluation mode.

        Raises:
            UserError: the checkpoint is damaged, or the code now builds another model from this config.
        """
        import torch

        from training.own_parts.of_run import load_of_run
        from training.own_parts.own_model import build_run_model
        from training.plan.run_plan import max_positions
        from training.run.init_from_checkpoint import matched

        try:
            weights = load_weights(self.checkpoint).weights
        except CorruptError as error:
            others = ", ".join(map(str, checkpoint_steps(self.folder / "checkpoints")))
            raise UserError(
                f"the checkpoint is damaged: {error}. Choose another one with --checkpoint. Steps: {others}"
            ) from error
        load_of_run(self.folder, self.config)
        positions = max_positions(self.config.arch, self.config.training.seq_len)
        with torch.random.fork_rng(devices=[]):  # initial weights are not used
            model = build_run_model(self.config, self.vocab_size, positions)
        found = matched(model, weights)
        if not found.is_whole:
            raise UserError(
                f"{self.checkpoint} has other parameters than this code builds from "
                f"{self.folder}/config.yaml: {found.words()}. Undo what was edited there, or check out the "
                f"commit that it was trained with: {self.commit or 'run.json does not tell it'}"
            )
        model.load_state_dict(weights)
        return model.eval()

    @property
    def commit(self) -> str | None:
        """Git commit of the code of its last attempt; None if unknown."""
        attempts = self.facts.get("attempts") or [{}]
        commit = (attempts[-1].get("code") or {}).get("commit")
        return commit if isinstance(commit, str) else None

    def tokenizer(self) -> Tokenizer:
        """Load the tokenizer that the configuration names, otherwise the copy in the token set.

        Raises:
            UserError: no tokenizer is found, or it now has another number of ids.
        """
        from data_loading import load_tokenizer, prepare_run
        from data_loading.tokenizers.document_ends import recorded_ends

        config = self.config
        with self.at_home():
            try:
                found = load_tokenizer(config.tokenizer, self.vocab_size)
            except UserError as error:
                data = prepare_run(config.dataset, config.tokenizer, tokenize=False)
                copy = data.parts[0].tokenizer
                if copy is None:
                    raise error
                found = copy
        if found.vocab_size != self.vocab_size:
            raise UserError(
                f"tokenizer {found.name} now has {found.vocab_size:,} ids, and the run was trained "
                f"with {self.vocab_size:,}: restore the original one, or name it in "
                f"{self.folder}/config.yaml"
            )
        return recorded_ends(found, (self.facts.get("data") or {}).get("document_ends", {}))


def open_run(given: str, checkpoint: str = BEST, runs_dir: str | None = None) -> SavedRun:
    """Open a run.

    Args:
        given: a path, a name under `runs_dir`, or a unique beginning of an identity.
        checkpoint: `best`, `last`, or the number of a step.

    Raises:
        UserError: the run or the checkpoint does not exist.
    """
    from conf.composing.check import to_config

    folder = find_run(given, runs_dir)
    if not (folder / "config.yaml").is_file():
        raise UserError(f"{given}: {folder} is no run folder: it has no config.yaml")
    config, facts = to_config(read_config(folder)), read_run(folder)
    steps = checkpoint_steps(folder / "checkpoints")
    if not steps or "vocab_size" not in facts:
        raise UserError(f"{folder} has no checkpoint yet. Its state: python -m slurm why {folder}")
    best = _best_step(folder / "checkpoints")
    if checkpoint == BEST:
        step = steps[-1] if best is None else best
    elif checkpoint == LAST:
        step = steps[-1]
    elif checkpoint.replace(",", "").isdigit() and int(checkpoint.replace(",", "")) in steps:
        step = int(checkpoint.replace(",", ""))
    else:
        raise UserError(
            f"--checkpoint {checkpoint}: expected best, last, or one of the steps that {folder} has: "
            f"{', '.join(map(str, steps))}"
        )
    place = folder / "checkpoints" / f"step-{step:08d}"
    return SavedRun(folder, config, facts, place, step, is_best=step == best)


def _best_step(checkpoints: Path) -> int | None:
    """Step to which the link `best` leads; None if it leads to no checkpoint."""
    name = (checkpoints / "best").resolve().name
    return next((step for step in checkpoint_steps(checkpoints) if name == f"step-{step:08d}"), None)
