"""How many runs go together: what takes all of them the least time, and never more than one after another."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from tiny_run import make_run, tiny_config

import experiment_utils
from conf.ensembles import members_of
from conf.schema import Ensemble
from training.ensemble.probe import choose, probe, settle_together


def test_the_size_with_which_all_take_the_least_time() -> None:
    seconds = {1: 1.0, 2: 1.6, 4: 2.4, 8: 6.4}
    found = choose(seconds, 8)
    assert found.together == 4
    assert found.speedups == pytest.approx({2: 1.25, 4: 8 / 4.8, 8: 1.25})
    assert "4 at a time" in found.words(8)


def test_a_last_group_that_is_smaller_counts() -> None:
    assert choose({1: 1.0, 2: 1.6, 4: 3.0, 5: 3.5}, 5).together == 5
    assert choose({1: 1.0, 4: 3.9, 5: 5.5}, 5).together == 1, "of 4 at a time one is left over"


def test_what_does_not_pay_is_left_and_said() -> None:
    found = choose({1: 1.0, 2: 1.98, 4: 4.5}, 4)
    assert found.together == 1
    words = found.words(4)
    assert words.startswith("ensemble of 4 does not pay here: one after another (2 at a time 1.01x")


def test_what_pays_must_pay_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fastest of several sizes may have been lucky: it is measured once more, against one by itself."""
    base = tiny_config(tmp_path)
    make_run(base)
    rounds = [{1: 1.0, 2: 1.7, 4: 4.2}, {1: 1.0, 2: 2.1}]
    asked: list[set[int]] = []

    def measured(steps: dict[int, object], device: object) -> dict[int, float]:
        asked.append(set(steps))
        return rounds[len(asked) - 1]

    monkeypatch.setattr("training.ensemble.probe._measured", measured)
    found = probe(base, 4)
    assert asked == [{1, 2, 4}, {1, 2}]
    assert found.together == 1
    assert found.words(4).startswith("ensemble of 4 does not pay here: one after another (2 at a time 0.95x")
    asked.clear()
    rounds[1] = {1: 1.0, 2: 1.6}
    assert probe(base, 4).together == 2
    asked.clear()
    rounds[0] = {1: 1.0, 2: 2.1, 4: 4.2}
    assert probe(base, 4).together == 1
    assert len(asked) == 1


def test_steps_are_taken_and_leave_nothing_behind(tmp_path: Path) -> None:
    import torch

    base = tiny_config(tmp_path)
    make_run(base)  # whose tokens it needs
    before = torch.get_rng_state()
    found = probe(base, 3)
    assert set(found.speedups) == {2, 3}
    assert torch.equal(torch.get_rng_state(), before)


def test_what_an_earlier_attempt_settled_stays(tmp_path: Path) -> None:
    members = members_of(dataclasses.replace(tiny_config(tmp_path), ensemble=Ensemble(seed=["0", "1"])))
    folders = [make_run(member) for member in members]
    experiment_utils.update_run(folders[1], ensemble={"members": [], "together": 2})
    assert settle_together(folders, 2) == 2
    asked = [make_run(dataclasses.replace(member, ensemble=Ensemble(together=1))) for member in members]
    assert settle_together(asked, 2) == 1
