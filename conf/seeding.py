"""The seeds of a run."""

from __future__ import annotations

from conf import Config


def seeds(config: Config) -> tuple[int, int]:
    """The seeds of the initial weights and of the order of data; `seed` where they are not given."""
    init = config.seed if config.seed_init is None else config.seed_init
    return init, config.seed if config.seed_data is None else config.seed_data


def seed_all(seed: int) -> None:
    """Seed every generator of random numbers that a run may draw from."""
    import random

    import numpy
    import torch

    random.seed(seed)
    numpy.random.seed(seed % 2**32)
    torch.manual_seed(seed)
