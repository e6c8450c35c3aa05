from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from models.loss import loss_chunk


@pytest.fixture(scope="module", params=[1024, 64, None], ids=["one tile", "many tiles", "device"])
def tiles_of_the_loss(request: pytest.FixtureRequest) -> Iterator[None]:
    """The vocabularies of tests are smaller than a tile: narrower ones make many of them. `device`: the loss
    of a GPU, with torch's operations on the CPU.
    """
    with pytest.MonkeyPatch.context() as patch:
        if request.param is None:
            patch.setattr(torch.Tensor, "is_cpu", property(lambda _: False))
            yield
            return
        patch.setattr(loss_chunk, "MIN_TILE_WIDTH", request.param)
        patch.setattr(loss_chunk, "TILE_BYTES", 0)
        yield
