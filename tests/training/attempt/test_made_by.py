"""Versions of the code by the records in run.json."""

from __future__ import annotations

from typing import Any

import pytest

from training.attempt.made_by import Versions, codes_of

A = {"hash": "aaaaaaaa00000000", "commit": "1" * 40, "dirty": False}
B = {"hash": "bbbbbbbb00000000", "commit": "2" * 40, "dirty": True}


def run(*codes: dict[str, Any] | None, started_s: float = 0.0) -> dict[str, Any]:
    return {"attempts": [{"started_s": started_s + at, "code": code} for at, code in enumerate(codes)]}


def versions(*runs: dict[str, Any]) -> Versions:
    return Versions((f"run{number}", codes_of(one)) for number, one in enumerate(runs))


def test_one_version_needs_no_note() -> None:
    found = versions(run(A), run(A, A), run())
    assert (len(found), found.notes()) == (1, [])


def test_versions_are_in_the_order_of_their_first_use() -> None:
    found = versions(run(B, started_s=9.0), run(A, started_s=5.0))
    assert [one["name"] for one in found.to_json()] == ["aaaaaaa@1111111", "bbbbbbb"]
    assert [one["runs"] for one in found.to_json()] == [["run1"], ["run0"]]


def test_commit_is_named_only_if_the_tree_had_no_changes() -> None:
    assert [one["name"] for one in versions(run(A | {"dirty": True})).to_json()] == ["aaaaaaa"]
    found = versions(run(A | {"dirty": True}), run(A, started_s=5.0), run(A | {"dirty": None}))
    assert [(one["name"], one["commit"]) for one in found.to_json()] == [("aaaaaaa@1111111", "1" * 40)]


def test_run_whose_attempts_differ_names_all_its_versions() -> None:
    continued = run(A, B)
    found = versions(run(A), continued)
    assert found.name_of(codes_of(continued)) == "aaaaaaa@1111111+bbbbbbb"
    assert any("code=any" in note and "run1" in note for note in found.notes())


def test_code_of_a_run_is_that_of_its_newest_attempt() -> None:
    assert [one["runs"] for one in versions(run(A, B), run(B)).to_json()] == [[], ["run0", "run1"]]


def test_attempts_before_the_run_began_again_do_not_count() -> None:
    told = run(A, B)
    told["attempts"][1]["again"] = True
    assert [one["name"] for one in versions(told).to_json()] == ["bbbbbbb"]
    assert versions(told).notes() == []


def test_unknown_is_reported_once_and_only_next_to_known_versions() -> None:
    old = run({"commit": "1" * 40, "dirty": False})
    assert versions(old, old).notes() == []
    (note,) = versions(old, run(A), old, run(A)).notes()
    assert note.startswith("2 runs ")
    assert versions(old, run(A)).name_of(codes_of(old)) is None


@pytest.mark.parametrize(
    "damaged", [{}, {"attempts": 3}, {"attempts": [None, {"code": [1]}, {"code": {"hash": 7}}]}]
)
def test_damaged_records_are_unknown(damaged: dict[str, Any]) -> None:
    assert not any(codes_of(damaged))
