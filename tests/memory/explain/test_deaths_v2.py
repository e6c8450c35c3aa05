"""The same on a real kernel with cgroup v2: in a small guest, where this machine counts memory by v1."""

from __future__ import annotations

from typing import Any

import pytest

from tests.memory.deaths.cgroups import version_here
from tests.memory.deaths.guest import NoGuest, run_in_guest

pytestmark = [pytest.mark.slow, pytest.mark.privileged, pytest.mark.timeout(600)]

LIVE = ("v2_oom_group", "v2_oom_host", "oom_worker")


@pytest.fixture(scope="module")
def in_guest() -> dict[str, dict[str, Any]]:
    """What the guest found of each case; one guest for all of them."""
    try:
        return {found["name"]: found for found in run_in_guest(list(LIVE))}
    except NoGuest as error:
        pytest.skip(str(error))


@pytest.mark.skipif(version_here() == 2, reason="this machine itself counts memory by cgroup v2")
@pytest.mark.parametrize("name", LIVE)
def test_death_on_cgroup_v2_is_explained(name: str, in_guest: dict[str, dict[str, Any]]) -> None:
    found = in_guest[name]
    assert not found["misfire"], found["report"]
    assert not found["wrong"], found["report"]
