"""The loaders that are compared: the script of each, and what it needs."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PEERS = Path(__file__).resolve().parent.parent / "loading_peers"


@dataclass(frozen=True)
class Loader:
    """script: in PEERS. package: it comes with, where the project has none. options: of the script.

    by_window: whether its files are cut into windows, and are made for each length. workers: whether it is
    measured with worker processes as well. needs: an option of the command, without which it is left out.
    """

    name: str
    script: str
    package: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    by_window: bool = False
    workers: bool = True
    needs: str = ""

    @property
    def is_ours(self) -> bool:
        return self.script == "ours.py"

    @property
    def is_peer(self) -> bool:
        return self.script not in ("ours.py", "floor.py", "replaced.py")

    def folder(self, root: Path, seq_len: int) -> Path:
        """Where its files are."""
        name = Path(self.script).stem
        return root / (f"{name}-{seq_len}" if self.by_window else name)

    def python(self, peers: Path | None) -> str:
        """The interpreter that has what it needs. peers: the one with the packages."""
        return str(peers) if self.package else sys.executable

    def prepare_command(self, peers: Path | None, tokens: Path, folder: Path, seq_len: int) -> list[str]:
        return [
            self.python(peers), str(PEERS / self.script), "prepare", str(tokens), str(folder), str(seq_len),
        ]  # fmt: skip

    def measure_command(self, peers: Path | None, folder: Path, job: str) -> list[str]:
        return [self.python(peers), str(PEERS / self.script), "measure", str(folder), job]


OURS, PREAD, BOUNDED, FLOOR, REPLACED = (
    "ours, mmap", "ours, pread", "ours, mmap of at most 64 MB", "the floor", "the replaced system",
)  # fmt: skip
BOUND_BYTES = 64 << 20
LOADERS = (
    Loader(OURS, "ours.py", options={"reader": "mmap"}),
    Loader(PREAD, "ours.py", options={"reader": "pread"}),
    Loader(BOUNDED, "ours.py", options={"reader": "mmap", "max_resident_bytes": BOUND_BYTES}, workers=False),
    Loader(FLOOR, "floor.py", workers=False),
    Loader(REPLACED, "replaced.py"),
    Loader("templar", "templar.py", needs="templar"),
    Loader("nanoGPT", "nanogpt.py", workers=False),
    Loader("litdata", "litdata_tokens.py", package="litdata"),
    Loader("mosaicml-streaming", "mosaic.py", package="mosaicml-streaming", by_window=True),
    Loader("Grain", "grain_source.py", package="grain"),
    Loader("Megatron-core", "megatron_gpt.py", package="megatron-core"),
    Loader("OLMo-core", "olmo.py", package="ai2-olmo-core"),
)
SHAPES = ((1024, 32), (128, 256))
"""seq_len, batch size."""
