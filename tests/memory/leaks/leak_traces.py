"""Simulated traces of a process's anon, in bytes by step: clean ones of several kinds, and leaks.

Sizes are those of small training runs: some hundred MB to some GB, scatter of a few to some ten MB.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable

MB = float(1 << 20)
Trace = list[float]
Kind = Callable[[random.Random, int], Trace]


def _by_name(*kinds: Kind) -> dict[str, Kind]:
    return {kind.__name__: kind for kind in kinds}


def white(r: random.Random, steps: int) -> Trace:
    """Independent scatter, as of batches of several lengths."""
    scatter = r.uniform(1, 20) * MB
    return [r.gauss(0, scatter) for _ in range(steps)]


def correlated(r: random.Random, steps: int) -> Trace:
    """AR(1): memory that a step leaves is freed slowly."""
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
    """Evaluations and checkpoints: a few high samples at intervals. The first one leaves something."""
    period, width = r.randint(20, 100), r.randint(1, 5)
    height, left = r.uniform(50, 500) * MB, r.uniform(0, 30) * MB
    return [
        (height if step % period < width else 0.0) + (left if step >= period else 0.0) + r.gauss(0, 2 * MB)
        for step in range(steps)
    ]


def warm_up(r: random.Random, steps: int) -> Trace:
    """Caches and pools that fill well before the end of the trace."""
    height, steps_to_half = r.uniform(50, 500) * MB, r.uniform(2, min(steps / 8, 64))
    return [
        height * (1 - 2 ** (-step / steps_to_half)) + r.gauss(0, r.uniform(0.5, 5) * MB)
        for step in range(steps)
    ]


def jumps(r: random.Random, steps: int) -> Trace:
    """One to three jumps that stay: first use of an evaluation, a checkpoint, a worker."""
    at = sorted(r.randrange(steps) for _ in range(r.randint(1, 3)))
    heights = [r.uniform(10, 300) * MB for _ in at]
    return [
        sum(height for where, height in zip(at, heights, strict=True) if where <= step) + r.gauss(0, 2 * MB)
        for step in range(steps)
    ]


def high_water(r: random.Random, steps: int) -> Trace:
    """The largest batch so far, in an allocator that frees nothing: rises ever more seldom."""
    found, highest = [], 0.0
    for _ in range(steps):
        highest = max(highest, 20 * MB * r.lognormvariate(0, 0.5))
        found.append(highest + r.gauss(0, MB / 2))
    return found


CLEAN = _by_name(white, correlated, wandering, sawtooth, spikes, warm_up, jumps, high_water)
"""Kinds that the detector is made for."""


def saturation(r: random.Random, steps: int) -> Trace:
    """An exponential rise, slower than `warm_up`."""
    last, height, scatter = r.uniform(20, 120), r.uniform(50, 500) * MB, r.uniform(1, 8) * MB
    return [height * (1 - math.exp(-step / last)) + r.gauss(0, scatter) for step in range(steps)]


def hyperbolic(r: random.Random, steps: int) -> Trace:
    """A rise that slows down less than an exponential one."""
    half, height = r.uniform(10, 60), r.uniform(50, 400) * MB
    return [height * step / (step + half) + r.gauss(0, 3 * MB) for step in range(steps)]


def up_and_down(r: random.Random, steps: int) -> Trace:
    """Jumps in both directions, at any time."""
    found, now = [], 0.0
    for _ in range(steps):
        if r.random() < 0.02:
            now += r.choice([-1, 1]) * r.uniform(5, 40) * MB
        found.append(now + r.gauss(0, MB))
    return found


def uneven_teeth(r: random.Random, steps: int) -> Trace:
    """Garbage that is collected at irregular intervals."""
    found: Trace = []
    height = r.uniform(20, 120) * MB
    while len(found) < steps:
        long = r.randint(8, 50)
        found += [height * step / long + r.gauss(0, 2 * MB) for step in range(long)]
    return found[:steps]


def waves(r: random.Random, steps: int) -> Trace:
    """A sine, as the lengths of batches that are sorted within a bucket."""
    long, height, at = r.uniform(8, 60), r.uniform(5, 60) * MB, r.uniform(0, 2 * math.pi)
    return [height * math.sin(2 * math.pi * step / long + at) + r.gauss(0, 2 * MB) for step in range(steps)]


def evaluations_that_fill(r: random.Random, steps: int) -> Trace:
    """Spikes, each of which leaves less than the one before."""
    period, left, found = r.randint(25, 60), 0.0, []
    for step in range(steps):
        if step and step % period == 0:
            left += r.uniform(0, 60) * MB * 0.5 ** (step / period)
        found.append(left + (r.uniform(80, 300) * MB if step % period < 2 else 0.0) + r.gauss(0, 3 * MB))
    return found


def lengths(r: random.Random, steps: int) -> Trace:
    """A few sizes of batches."""
    size = r.uniform(3, 15) * MB
    return [size * r.choice([1, 1, 1, 2, 3, 4]) + r.gauss(0, MB) for _ in range(steps)]


def filling(r: random.Random, steps: int) -> Trace:
    """A pool that fills evenly, and is full."""
    full, height = r.randint(10, 60), r.uniform(20, 200) * MB
    return [height * min(1.0, step / full) + r.gauss(0, 2 * MB) for step in range(steps)]


def distinct(r: random.Random, steps: int) -> Trace:
    """A cache of everything that was drawn so far by Zipf's law."""
    things, power, each = r.randint(50, 300), r.uniform(0.3, 1.0), r.uniform(0.2, 2) * MB
    weights = [(1 + rank) ** -power for rank in range(things)]
    known: set[int] = set()
    found = []
    for _ in range(steps):
        known.update(r.choices(range(things), weights, k=r.randint(4, 12)))
        found.append(each * len(known) + r.gauss(0, 2 * MB))
    return found


def many_teeth(r: random.Random, steps: int) -> Trace:
    """Several processes that collect garbage, each with a period of its own."""
    teeth = [(r.uniform(5, 40) * MB, r.uniform(6, 90), r.random()) for _ in range(r.randint(2, 6))]
    return [
        sum(height * ((at + step / period) % 1) for height, period, at in teeth) + r.gauss(0, MB)
        for step in range(steps)
    ]


def heavy_tailed(r: random.Random, steps: int) -> Trace:
    """Scatter with rare, high outliers: Pareto's law."""
    size, power = r.uniform(1, 10) * MB, r.uniform(1.2, 2.5)
    return [size * min(100.0, r.paretovariate(power)) for _ in range(steps)]


def regimes(r: random.Random, steps: int) -> Trace:
    """Two to four levels in random order: phases of the work."""
    levels = [r.uniform(0, 150) * MB for _ in range(r.randint(2, 4))]
    stays, scatter, now = r.uniform(20, 120), r.uniform(0.5, 5) * MB, 0.0
    found: Trace = []
    for _ in range(steps):
        if not found or r.random() < 1 / stays:
            now = r.choice(levels)
        found.append(now + r.gauss(0, scatter))
    return found


def recycled_workers(r: random.Random, steps: int) -> Trace:
    """Workers that each fill a cache, and are replaced by empty ones after some steps."""
    workers = []
    for _ in range(r.randint(1, 6)):
        life = r.randint(60, 400)
        workers.append((r.uniform(10, 120) * MB, r.uniform(5, 80), life, r.randrange(life)))
    found = []
    for step in range(steps):
        held = 0.0
        for height, filled, life, first in workers:
            # first: the end of the one that is there at the beginning
            age = step if step < first else (step - first) % life
            held += height * (1 - math.exp(-age / filled))
        found.append(held + r.gauss(0, 2 * MB))
    return found


def least_recently_used(r: random.Random, steps: int) -> Trace:
    """A full cache of things of very unequal sizes, drawn by a power law. The frequent ones change once."""
    things, power, draws = r.randint(100, 1000), r.uniform(0.3, 1.2), r.randint(4, 12)
    capacity, changes = r.randint(20, things // 2), r.randrange(steps)
    sizes = [r.uniform(0.05, 0.5) * MB * r.lognormvariate(0, 1) for _ in range(things)]
    weights, names = [(1 + rank) ** -power for rank in range(things)], list(range(things))
    cache: dict[int, float] = {}
    found = []
    for step in range(steps):
        if step == changes:
            r.shuffle(names)
        for name in r.choices(names, weights, k=draws):
            cache[name] = cache.pop(name, sizes[name])
        while len(cache) > capacity:
            del cache[next(iter(cache))]
        found.append(sum(cache.values()) + r.gauss(0, MB))
    return found


def two_stairs(r: random.Random, steps: int) -> Trace:
    """A start that builds something, works for a while, and then loads something else."""
    build, load = r.uniform(50, 400) * MB, r.uniform(50, 600) * MB
    first, pause, second = r.randint(5, 30), r.randint(20, 90), r.randint(5, 30)
    return [
        build * min(1.0, step / first)
        + load * min(1.0, max(0, step - first - pause) / second)
        + r.gauss(0, MB)
        for step in range(steps)
    ]


OTHERS = _by_name(
    saturation, hyperbolic, up_and_down, uneven_teeth, waves, evaluations_that_fill, lengths, filling,
    distinct, many_teeth, heavy_tailed, regimes, recycled_workers, least_recently_used, two_stairs,
)  # fmt: skip
"""Harder kinds, which were added while the detector was designed."""


def clean(kind: str, seed: int, steps: int) -> Trace:
    """A trace without a leak on a base of 0.3 to 8 GB, in whole pages, as the kernel reports it."""
    r = random.Random(f"{kind} {seed}")
    base = r.uniform(300, 8000) * MB
    of_kind = (CLEAN | OTHERS)[kind]
    return [max(0.0, 4096.0 * round((base + more) / 4096)) for more in of_kind(r, steps)]


def leaking(kind: str, seed: int, steps: int, bytes_per_step: float, begin: int = 0) -> Trace:
    """The clean trace of that seed with a leak from step `begin` on."""
    return [
        amount + bytes_per_step * max(0, step - begin) for step, amount in enumerate(clean(kind, seed, steps))
    ]
