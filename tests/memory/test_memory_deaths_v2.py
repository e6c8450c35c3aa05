"""The same on a real kernel with cgroup v2: in a small guest, where this machine counts memory by v1."""

from __future__ import annotations

from typing import Any

import pytest

from tests.memory.deaths.cases import read_cases
from tests.memory.deaths.cgroups import version_here
from tests.memory.deaths.guest import NoGuest, run_in_guest

pytestmark = [pytest.mark.slow, pytest.mark.privileged, pytest.mark.timeout(600)]

OF_V2 = [case.name for case in read_cases() if "v2" in case.needs]
OF_BOTH = [
    "oom_worker",
    "oom_copy_on_write",
    "parent_limit",
    "ok_map_ten_times_the_limit",
    "ok_neighbour_cgroup_killed",
]
"""Where v1 and v2 count, name or pass on differently."""


@pytest.fixture(scope="module")
def in_guest(request: pytest.FixtureRequest) -> dict[str, dict[str, Any]]:
    """What the guest found of each case that was asked for; one guest for all of them."""
    asked = {item.callspec.params.get("name") for item in request.session.items if hasattr(item, "callspec")}
    names = [name for name in OF_V2 + OF_BOTH if name in asked]
    try:
        return {found["name"]: found for found in run_in_guest(names)}
    except NoGuest as error:
        pytest.skip(str(error))


@pytest.mark.skipif(version_here() == 2, reason="this machine itself counts memory by cgroup v2")
@pytest.mark.parametrize("name", OF_V2 + OF_BOTH)
def test_case(name: str, in_guest: dict[str, dict[str, Any]]) -> None:
    found = in_guest[name]
    assert not found["misfire"], found["report"]
    assert not found["wrong"], found["report"]
