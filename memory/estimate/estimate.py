"""What a run will need, added up from parts before anything is allocated.

Whoever knows a part hands it in as plain numbers: how many bytes, of which kind, and in which phases of a
run it is there. This room adds them up, adds what the process costs by itself
(`memory.estimate.constants`), and tells the peak of each phase. Nothing heavy is imported.
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
"""Moments of a run at which a different set of parts is there; the worst one is its peak.

build: the model and nothing else. compile_*: a compiled model waits for its compiler, whose cache is empty,
before the first forward pass, the first backward pass and the first evaluation. forward: its end, before the
loss. loss: the worst moment from the logits to the gradient of the last hidden states. backward: in the last
block, with all that was saved still there. backward_end: at the embedding, with all gradients there. restore:
a checkpoint is read back; only a run that goes on has it.
"""
ALWAYS = PHASES
STEP = ("forward", "loss", "backward", "backward_end", "optimizer_step")

_MB = 1 << 20
_GB = 1 << 30


@dataclass(frozen=True)
class Part:
    """Something that takes memory. Amounts in bytes, on the host and on the GPU.

    when: the phases in which it is there. A part of different size in different phases is several Parts
    of one name. heap_bytes: of host_bytes, in pieces so small that the allocator takes them from its heap
    and leaves holes between them. churned_bytes: of such, taken and given back block by block.
    displaced_bytes: large ones of such that come and go in a step, each into another's hole. in_turn: of
    several runs in one process, one holds it at a time. beside: held
    by other processes of the job, such as workers. is_anon: page tables are not, which the kernel counts, nor
    mapped files, which count where Slurm polls RSS.
    """

    name: str
    host_bytes: int = 0
    gpu_bytes: int = 0
    when: tuple[str, ...] = ALWAYS
    beside: bool = False
    is_anon: bool = True
    heap_bytes: int = 0
    churned_bytes: int = 0
    displaced_bytes: int = 0
    in_turn: bool = False

    def __post_init__(self) -> None:
        unknown = set(self.when) - set(PHASES)
        if unknown:
            raise ValueError(f"{self.name}: no such phase: {', '.join(sorted(unknown))}")


@dataclass(frozen=True)
class Estimate:
    """Parts, and what follows from them.

    host_bytes, gpu_bytes: the peak of a run that begins anew, of all its processes.
    """

    parts: tuple[Part, ...]

    @classmethod
    def of(cls, parts: Iterable[Part]) -> Estimate:
        """Of parts from several places; empty ones are left out."""
        return cls(tuple(part for part in parts if part.host_bytes or part.gpu_bytes))

    def host_at(self, phase: str, *, own: bool = False) -> int:
        """Bytes on the host in a phase. own: of the run's own process alone, anon and shmem."""
        return sum(
            part.host_bytes
            for part in self.parts
            if phase in part.when and not (own and (part.beside or not part.is_anon))
        )

    def gpu_at(self, phase: str) -> int:
        """Bytes on the GPU in a phase."""
        return sum(part.gpu_bytes for part in self.parts if phase in part.when)

    @property
    def host_phase(self) -> str:
        """The phase of the host's peak, of a run that begins anew."""
        return max((phase for phase in PHASES if phase != RESTORE), key=self.host_at)

    @property
    def gpu_phase(self) -> str:
        """The phase of the GPU's peak, of a run that begins anew."""
        return max((phase for phase in PHASES if phase != RESTORE), key=self.gpu_at)

    @property
    def host_bytes(self) -> int:
        return self.host_at(self.host_phase)

    @property
    def gpu_bytes(self) -> int:
        return self.gpu_at(self.gpu_phase)

    @property
    def own_bytes(self) -> int:
        """Peak of anon and shmem of the run's own process: what its VmHWM less file pages will show."""
        return max(self.host_at(phase, own=True) for phase in PHASES if phase != RESTORE)

    @property
    def warm_bytes(self) -> int:
        """Peak on the host where the compiler finds all in its cache, and its phases pass."""
        return max(self.host_at(phase) for phase in PHASES if phase not in (RESTORE, *COMPILES))

    @property
    def resumed_bytes(self) -> int:
        """Peak on the host when the run goes on from a checkpoint, which is read back first."""
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
        """Plain values; docs/memory-estimate.md explains each key."""
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
    """What to ask a scheduler for (Slurm's --mem), in bytes: the peak, resumed or not, with a margin.

    Rounded up to 256 MB, from 8 GB on to whole gigabytes: a request reads well, and page cache has some
    room to live in.
    """
    wanted = estimate.resumed_bytes * (1 + margin)
    unit = 256 * _MB if wanted <= 8 * _GB else _GB
    return -int(-wanted // unit) * unit


def told(parts: Mapping[str, int], least: float = 0.02) -> dict[str, int]:
    """The parts worth a line, those below a share of the whole as one `other`."""
    whole = sum(parts.values())
    large = {name: amount for name, amount in parts.items() if amount >= least * whole}
    rest = whole - sum(large.values())
    return {**large, "other": rest} if rest else large
