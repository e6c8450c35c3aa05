"""The tools that are compared: the command of each, how much text it gets, and what it is held to."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PEERS = ROOT / "benchmarks" / "tokenizing_peers"
SEPARATOR = "<|endoftext|>"


@dataclass(frozen=True)
class Tool:
    """script: of a peer, in PEERS; None: this project's own command.

    suffix: of the corpus that ours reads. arguments: of ours. environment: of a peer. size: "all" of the
    text, a "part" of it, or only a "prefix": how much such a tool can do in a minute or so. at_least:
    the wanted speed of the default over this one's, by name of the tool that is to reach it.
    """

    name: str
    script: str | None = None
    suffix: str = ".txt"
    arguments: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    size: str = "all"
    at_least: dict[str, float] = field(default_factory=dict)

    @property
    def is_ours(self) -> bool:
        return self.script is None

    def command(self, python: Path, corpus: Path, output: Path, tokenizer: Path, workers: int) -> list[str]:
        """corpus: without its suffix. python: the peers' interpreter."""
        if self.is_ours:
            return [
                sys.executable, str(ROOT / "pretokenize_dataset.py"), f"{corpus}{self.suffix}",
                "--tokenizer", str(tokenizer), "--output", str(output / "tokens.npy"), *self.arguments,
            ]  # fmt: skip
        return [str(python), str(PEERS / self.script), str(corpus), str(output), str(tokenizer), str(workers)]

    def digest_command(self, python: Path, output: Path) -> list[str]:
        script = self.script or "ours.py"
        return [str(python), str(PEERS / script), "--digest", str(output)]


_DOCUMENTS = ("--document-separator", SEPARATOR)
DEFAULT, GIGATOKEN = "ours", "ours, --engine gigatoken"
TOOLS = [
    Tool(DEFAULT, arguments=_DOCUMENTS),
    Tool(GIGATOKEN, arguments=(*_DOCUMENTS, "--engine", "gigatoken")),
    Tool("ours, from .jsonl", suffix=".jsonl"),
    Tool("ours, the file as one document"),
    Tool("ours, --engine huggingface", arguments=(*_DOCUMENTS, "--engine", "huggingface"), size="prefix"),
    Tool("tiktoken, process pool", "tiktoken_pool.py", at_least={DEFAULT: 3, GIGATOKEN: 6}),
    Tool(
        "Megatron, fast", "megatron_preprocess.py", environment={"VARIANT": "fast"}, size="part",
        at_least={DEFAULT: 5},
    ),
    Tool(
        "Megatron, standard", "megatron_preprocess.py", environment={"VARIANT": "standard"}, size="prefix",
        at_least={DEFAULT: 10},
    ),
    Tool("datasets.map", "datasets_map.py", size="prefix", at_least={DEFAULT: 10}),
    Tool("datatrove", "datatrove_pipeline.py", size="prefix", at_least={DEFAULT: 10}),
    Tool("litdata optimize", "litdata_optimize.py", size="prefix", at_least={DEFAULT: 10}),
    Tool("the one-list script", "one_list.py", size="prefix", at_least={DEFAULT: 50}),
]  # fmt: skip
NOT_EXACT = {
    "the one-list script": "cuts words, truncates pieces at 1024 ids, reads the separators as text",
    "ours, the file as one document": "the separator lines are text here",
}
