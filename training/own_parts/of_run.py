"""The plugins of a run, from the copies that it is computed with."""

from __future__ import annotations

from pathlib import Path

from conf import Config
from training.attempt.plugin_copies import copies_of
from training.own_parts.facts import try_in_this_process


def load_of_run(folder: Path, config: Config) -> None:
    """Run the plugins of a run, so that its parts have their code. Without plugins it does nothing.

    Raises:
        UserError: a plugin is gone or fails; names FILE:LINE.
    """
    if not config.plugins:
        return
    import torch  # noqa: F401  its generator is watched: a plugin must not seed it

    from conf.own_parts.load import load_plugins

    load_plugins(config.plugins, copies_of(folder))
    try_in_this_process()
