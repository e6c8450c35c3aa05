"""Successive halving as numbers."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm.search.rungs import best_first, kept, most_rungs, rungs_of

LOSSES = st.lists(
    st.one_of(st.none(), st.floats(allow_nan=True, allow_infinity=True), st.floats(0, 3)), max_size=60
)


@given(st.integers(1, 5000), st.integers(2, 9), st.data())
def test_each_rung_has_one_in_eta_and_eta_times_the_budget(count: int, eta: int, data: st.DataObject) -> None:
    most = most_rungs(count, eta)
    assert eta ** (most - 1) <= count < eta**most
    rungs = rungs_of(count, eta, data.draw(st.integers(1, most)))
    assert (rungs[0].count, rungs[-1].share) == (count, 1.0)
    assert rungs[-1].count >= 1
    for before, after in pairwise(rungs):
        assert after.count == before.count // eta
        assert after.share == pytest.approx(eta * before.share)
    with pytest.raises(ValueError, match="rungs") as error:
        rungs_of(count, eta, most + 1)
    assert str(most) in str(error.value)


@given(LOSSES, st.integers(2, 9))
def test_exactly_the_best_go_on(losses: list[float | None], eta: int) -> None:
    """What diverged, or has failed, goes on in no case: there is nothing to go on from."""
    wanted = len(losses) // eta
    found = kept(losses, wanted)
    known = [loss for loss in losses if loss is not None and math.isfinite(loss)]
    assert len(found) == min(wanted, len(known))
    assert sorted(losses[place] for place in found) == sorted(known)[:wanted]  # type: ignore[type-var]
    assert found == sorted(set(found))


@given(LOSSES)
def test_of_a_tie_the_first_goes_on(losses: list[float | None]) -> None:
    order = best_first([*losses, *losses])
    assert all(
        place + len(losses) not in order[: order.index(place)] for place in order if place < len(losses)
    )
    told = [(losses + losses)[place] for place in order]
    assert told == sorted(told)  # type: ignore[type-var]
