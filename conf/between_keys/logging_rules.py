"""What must hold between the keys of `logging=`."""

from __future__ import annotations

from importlib.util import find_spec

from conf.schema import Config
from experiment_utils.errors import Problem
from experiment_utils.extras import PACKAGE_MISSING, install_command

PACKAGES = {"tensorboard": "tensorboard", "wandb": "wandb"}
"""`logging.to` -> the package that it needs, which is also the name of our extra."""


def install_words(to: str) -> str:
    """The command that installs what `logging.to` needs."""
    return install_command(PACKAGES[to])


def is_missing(to: str | None) -> bool:
    """Whether it needs a package that is not there; nothing is imported."""
    return to in PACKAGES and find_spec(PACKAGES[to]) is None


def logger_is_installed(config: Config) -> list[Problem]:
    """Told before a run starts: one that has begun goes on without."""
    to = config.logging.to
    if to is None or not is_missing(to):
        return []
    return [
        Problem(
            "logging.to",
            f"{to} needs the package {PACKAGES[to]}, which is not installed: {install_words(to)}. Or run "
            f"without, and hand it on later: python -m analysis export STUDY --to {to}",
            PACKAGE_MISSING,
        )
    ]


def project_of_wandb(config: Config) -> list[Problem]:
    """A project belongs to W&B alone."""
    if config.logging.project is None or config.logging.to == "wandb":
        return []
    return [Problem("logging.project", "only logging=wandb has projects. Take it away, or add logging=wandb")]


def samples_of_text(config: Config) -> list[Problem]:
    """Samples need a tokenizer that writes text; a prompt is of samples alone."""
    logging = config.logging
    if logging.sample_every is None:
        what = "is of samples of text. Add logging.sample_every=STEPS, or remove it"
        return [] if logging.sample_prompt is None else [Problem("logging.sample_prompt", what)]
    if config.tokenizer.name != "ids":
        return []
    what = (
        "tokenizer=ids writes numbers, no text. Remove it, or name the tokenizer of the set: tokenizer=custom"
    )
    return [Problem("logging.sample_every", what)]
