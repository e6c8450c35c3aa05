"""Plugins for tests of the user's own parts, and runs that use them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from conf import Config, parts_table
from conf.own_parts import load
from conf.own_parts.register import REGISTERED
from conf.own_parts.use import use_plugins
from tests.tiny_run import tiny_config

HEAD = """from dataclasses import dataclass
import torch
from torch import nn
from highwater import option, register
"""

MODEL = """
@dataclass
class TinyOptions:
    hidden: int = option(8, "hidden width", at_least=1)

@register.model("tiny", options=TinyOptions)
class Tiny(nn.Module):
    def __init__(self, options, size, vocab_size, seq_len):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, size.d_model)
        self.up, self.down = nn.Linear(size.d_model, options.hidden), nn.Linear(options.hidden, size.d_model)
        self.dropout = nn.Dropout(0.1)
        self.head = nn.Linear(size.d_model, vocab_size, bias=False)

    def forward(self, input_ids):
        x = self.embedding(input_ids)
        return x + self.dropout(self.down(torch.relu(self.up(x))))
"""

OPTIMIZER = """
@register.optimizer("plain")
def plain(groups, optimizer, options):
    return torch.optim.SGD(groups, lr=optimizer.lr, momentum=0.9)
"""

SCHEDULE = """
@register.schedule("falling")
def falling(step, total_steps, warmup_steps, options):
    return 1 - step / total_steps
"""


def write_plugin(folder: Path, *parts: str, name: str = "parts.py", head: str = HEAD) -> Path:
    """A plugin with these pieces of source."""
    path = folder / name
    path.write_text(head + "\n".join(parts))
    return path


@contextmanager
def known_plugins(*plugins: Path | str) -> Iterator[None]:
    """Plugins that this process knows within the block, and forgets after it."""
    try:
        use_plugins(map(str, plugins), around=False)
        yield
    finally:
        forget_plugins()


def forget_plugins() -> None:
    """Forget all plugins of this process."""
    for part in parts_table.parts():
        parts_table.forget(part.plugin)
        load._LOADED.discard(part.plugin)
    REGISTERED.clear()


def own_config(folder: Path, plugin: Path, **training: Any) -> Config:
    """A tiny run with the model, optimizer and schedule of a plugin."""
    config = tiny_config(folder, **training)
    return dataclasses.replace(
        config,
        arch=dataclasses.replace(config.arch, name="tiny", family="tiny"),
        optimizer=dataclasses.replace(config.optimizer, name="plain"),
        schedule=dataclasses.replace(config.schedule, name="falling"),
        plugins=[str(plugin)],
        own={"tiny": {"hidden": 8}},
    )
