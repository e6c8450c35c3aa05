"""Simulated traces of a process's anon, in bytes a step: clean ones of several kinds, and leaks upon them.

Sizes are those of small training runs: some hundred MB to some GB, scatter of a few to some ten MB.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable

MB = float(1 << 20)
Trace = list[float]


def white(r: random.Random, steps: int) -> Trace:
    """Independent scatter, as of batches of several lengths."""
    scatter = r.uniform(1, 20) * MB
    return [r.gauss(0, scatter) for _ in range(steps)]


def correlated(r: random.Random, steps: int) -> Trace:
    """AR(1): what a step leaves is taken back slowly."""
    scatter, kept = r.uniform(1, 20) * MB, r.uniform(0.5, 0.98)
    found, now = [], 0.0
    for _ in range(steps):
        now = kept * now + math.sqrt(1 - kept * kept) * r.gauss(0, scatter)
        found.append(now)
    return found


def wandering(r: random.Random, steps: int) -> Trace:
    """A random walk between two walls, as an allocator's arenas fragment and are joined."""
    width, stride = r.uniform(20, 100) * MB, r.uniform(0.5, 4) * MB
    found, now = [], r.uniform(0, width)
    for _ in range(steps):
        now = min(width, max(0.0, now + r.gauss(0, stride)))
        found.append(now)
    return found


def sawtooth(r: random.Random, steps: int) -> Trace:
    """Garbage that piles up until it is collected."""
    height, period, at = r.uniform(5, 80) * MB, r.randint(5, 60), r.random()
    return [height * ((at + step / period) % 1) + r.gauss(0, MB) for step in range(steps)]


def spikes(r: random.Random, steps: int) -> Trace:
    """Evaluations and checkpoints: high for a few samples, at intervals; the first leaves a little."""
    period, width = r.randint(20, 100), r.randint(1, 5)
    height, left = r.uniform(50, 500) * MB, r.uniform(0, 30) * MB
    return [
        (height if step % period < width else 0.0) + (left if step >= period else 0.0) + r.gauss(0, 2 * MB)
        for step in range(steps)
    ]


def warm_up(r: random.Random, steps: int) -> Trace:
    """Growth that levels off: caches and pools that fill, done well before the trace is."""
    height, steps_to_half = r.uniform(50, 500) * MB, r.uniform(2, min(steps / 8, 64))
    return [
        height * (1 - 2 ** (-step / steps_to_half)) + r.gauss(0, r.uniform(0.5, 5) * MB)
        for step in range(steps)
    ]


def jumps(r: random.Random, steps: int) -> Trace:
    """One to three jumps for good, when something is first used: an evaluation, a checkpoint, a worker."""
    at = sorted(r.randrange(steps) for _ in range(r.randint(1, 3)))
    heights = [r.uniform(10, 300) * MB for _ in at]
    return [
        sum(height for where, height in zip(at, heights, strict=True) if where <= step) + r.gauss(0, 2 * MB)
        for step in range(steps)
    ]


def high_water(r: random.Random, steps: int) -> Trace:
    """The largest batch so far, where an allocator keeps what it had once: rises ever more seldom."""
    found, highest = [], 0.0
    for _ in range(steps):
        highest = max(highest, 20 * MB * r.lognormvariate(0, 0.5))
        found.append(highest + r.gauss(0, MB / 2))
    return found


CLEAN: dict[str, Callable[[random.Random, int], Trace]] = {
    "white": white,
    "correlated": correlated,
    "wandering": wandering,
    "sawtooth": sawtooth,
    "spikes": spikes,
    "warm_up": warm_up,
    "jumps": jumps,
    "high_water": high_water,
}


def clean(kind: str, seed: int, steps: int) -> Trace:
    """A trace without a leak upon a base of 0.3 to 8 GB, in whole pages, as the kernel tells."""
    r = random.Random(f"{kind} {seed}")
    base = r.uniform(300, 8000) * MB
    return [max(0.0, 4096.0 * round((base + more) / 4096)) for more in CLEAN[kind](r, steps)]


def leaking(kind: str, seed: int, steps: int, bytes_per_step: float, begin: int = 0) -> Trace:
    """The clean trace of that seed with a leak from step `begin` on."""
    return [
        amount + bytes_per_step * max(0, step - begin) for step, amount in enumerate(clean(kind, seed, steps))
    ]
