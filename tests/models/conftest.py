from __future__ import annotations

from collections.abc import Iterator

import pytest

from models import loss_chunk


@pytest.fixture(scope="module", params=[1024, 64], ids=["one tile", "many tiles"])
def tiles_of_the_loss(request: pytest.FixtureRequest) -> Iterator[None]:
    """The vocabularies of tests are smaller than a tile: narrower ones make many of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loss_chunk, "MIN_TILE_WIDTH", request.param)
        patch.setattr(loss_chunk, "TILE_BYTES", 0)
        yield
