"""Memory that a run will need, added up from parts before anything is allocated.

The packages that know a part (model, optimizer, data, process) hand it in as plain numbers: bytes, and the
phases of a run in which they are held. The peak is the largest sum of a phase. Nothing heavy is imported.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

RESTORE = "restore"
COMPILE_FORWARD, COMPILE_BACKWARD, COMPILE_EVALUATION = COMPILES = (
    "compile_forward", "compile_backward", "compile_evaluation",
)  # fmt: skip
PHASES = (
    "build", COMPILE_FORWARD, COMPILE_BACKWARD, "forward", "loss", "backward", "backward_end",
    "optimizer_step", "checkpoint", "evaluate", COMPILE_EVALUATION, RESTORE,
)  # fmt: skip
"""Moments of a run at which different parts are held.

build: the model alone. compile_*: a compiled model waits for its compiler, whose cache is empty, before the
first forward pass, backward pass and evaluation. forward: its end, before the loss. loss: the worst moment
from the logits to the gradient of the last hidden states. backward: in the last block, with everything that
was saved. backward_end: at the embedding, with all gradients. restore: a checkpoint is read, in a resumed run
only.
"""
ALWAYS = PHASES
STEP = ("forward", "loss", "backward", "backward_end", "optimizer_step")
AFTER_FIRST_STEP = (*STEP, "checkpoint", "evaluate")

_MB = 1 << 20
_GB = 1 << 30


@dataclass(frozen=True)
class Part:
    """Something that takes memory, in bytes on the host and on the GPU.

    A part of different size in different phases is several Parts of one name.
    """

    name: str
    host_bytes: int = 0
    gpu_bytes: int = 0
    when: tuple[str, ...] = ALWAYS
    """Phases in which it is held."""
    in_other_process: bool = False
    """Held by other processes of the job, such as compilers."""
    is_anon: bool = True
    """Page tables are not: the kernel counts them apart."""
    in_turn: bool = False
    """One of several runs in one process holds it at a time."""

    @classmethod
    def on(cls, on_gpu: bool, name: str, amount: int, *when: str, in_turn: bool = False) -> Part:
        """Return a part on the GPU, or else on the host."""
        return cls(name, *((0, amount) if on_gpu else (amount, 0)), when=when, in_turn=in_turn)

    def __post_init__(self) -> None:
        unknown = set(self.when) - set(PHASES)
        if unknown:
            raise ValueError(f"{self.name}: no such phase: {', '.join(sorted(unknown))}")


@dataclass(frozen=True)
class Estimate:
    """Parts of a run, and the peaks that follow from them.

    host_bytes and gpu_bytes are the peaks of a run that starts from step 0, of all its processes.
    """

    parts: tuple[Part, ...]

    @classmethod
    def of(cls, parts: Iterable[Part]) -> Estimate:
        """Return the estimate of these parts; empty ones are left out."""
        return cls(tuple(part for part in parts if part.host_bytes or part.gpu_bytes))

    def host_at(self, phase: str, *, own: bool = False) -> int:
        """Bytes on the host in a phase. own: anon and shmem of the run's own process alone."""
        return sum(
            part.host_bytes
            for part in self.parts
            if phase in part.when and not (own and (part.in_other_process or not part.is_anon))
        )

    def gpu_at(self, phase: str) -> int:
        """Bytes on the GPU in a phase."""
        return sum(part.gpu_bytes for part in self.parts if phase in part.when)

    @property
    def host_phase(self) -> str:
        """Phase of the host's peak in a run from step 0."""
        return max((phase for phase in PHASES if phase != RESTORE), key=self.host_at)

    @property
    def gpu_phase(self) -> str:
        """Phase of the GPU's peak in a run from step 0."""
        return max((phase for phase in PHASES if phase != RESTORE), key=self.gpu_at)

    @property
    def host_bytes(self) -> int:
        return self.host_at(self.host_phase)

    @property
    def gpu_bytes(self) -> int:
        return self.gpu_at(self.gpu_phase)

    @property
    def own_bytes(self) -> int:
        """Peak of anon and shmem of the run's own process: its VmHWM without mapped files."""
        return max(self.host_at(phase, own=True) for phase in PHASES if phase != RESTORE)

    @property
    def warm_bytes(self) -> int:
        """Peak on the host when torch.compile finds everything in its cache."""
        return max(self.host_at(phase) for phase in PHASES if phase not in (RESTORE, *COMPILES))

    @property
    def resumed_bytes(self) -> int:
        """Peak on the host of a resumed run, which first reads its checkpoint."""
        return max(self.host_bytes, self.host_at(RESTORE))

    def at_host_peak(self) -> dict[str, int]:
        """Bytes on the host by name at the peak, the largest first."""
        return self._by_name(self.host_phase, "host_bytes")

    def at_gpu_peak(self) -> dict[str, int]:
        """Bytes on the GPU by name at the peak, the largest first."""
        return self._by_name(self.gpu_phase, "gpu_bytes")

    def _by_name(self, phase: str, amount: str) -> dict[str, int]:
        found: dict[str, int] = {}
        for part in self.parts:
            if phase in part.when and getattr(part, amount):
                found[part.name] = found.get(part.name, 0) + getattr(part, amount)
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    def to_json(self) -> dict[str, Any]:
        """Plain values; docs/memory-fit.md explains each key."""
        return {
            "host_bytes": self.host_bytes,
            "host_phase": self.host_phase,
            "own_bytes": self.own_bytes,
            "warm_bytes": self.warm_bytes,
            "resumed_bytes": self.resumed_bytes,
            "gpu_bytes": self.gpu_bytes,
            "host_parts": self.at_host_peak(),
            "gpu_parts": self.at_gpu_peak(),
            "host_by_phase": {phase: self.host_at(phase) for phase in PHASES},
            "gpu_by_phase": {phase: self.gpu_at(phase) for phase in PHASES} if self.gpu_bytes else {},
        }


def recommended_mem(estimate: Estimate, margin: float = 0.15) -> int:
    """Bytes to request from a scheduler (Slurm's --mem): the peak, resumed or not, with a margin."""
    return rounded_mem(estimate.resumed_bytes, margin)


def rounded_mem(peak_bytes: float, margin: float) -> int:
    """Bytes to request for a peak, with a margin.

    Rounded up to 256 MB, from 8 GB on to whole gigabytes, which leaves some room for page cache.
    """
    wanted = peak_bytes * (1 + margin)
    unit = 256 * _MB if wanted <= 8 * _GB else _GB
    return -int(-wanted // unit) * unit


def largest_parts(parts: Mapping[str, int], least: float = 0.02) -> dict[str, int]:
    """The parts by name that are at least this share of the whole, and the rest as one `other`."""
    whole = sum(parts.values())
    large = {name: amount for name, amount in parts.items() if amount >= least * whole}
    rest = whole - sum(large.values())
    return {**large, "other": rest} if rest else large
