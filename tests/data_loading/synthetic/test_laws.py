"""Each kind of synthetic tokens: what it is by definition, by statistics, and by its entropy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from data_loading.synthetic.copied import STRING_TOKENS, Copy
from data_loading.synthetic.counter_hash import CounterHash
from data_loading.synthetic.law import Law
from data_loading.synthetic.markov import Markov
from data_loading.synthetic.synthetic_uri import KINDS
from data_loading.synthetic.uniform import Uniform
from data_loading.synthetic.zipf import Zipf, alias_table
from tests.data_loading.synthetic.statistics_of import fits
from tests.searched import examples

MANY = 1_000_000
HERE = np.array([10**9])


def ids(law: Law, start: int = 10**9, count: int = MANY) -> np.ndarray:
    return law.spans(np.array([start]), count)[0].astype(np.int64)


def pairs(first: np.ndarray, second: np.ndarray, vocab_size: int) -> np.ndarray:
    return np.bincount(first * vocab_size + second, minlength=vocab_size**2).reshape(vocab_size, vocab_size)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("vocab_size", [2, 3, 64, 50_257])
def test_ids_are_in_the_vocabulary_and_all_of_it_occurs(kind: str, vocab_size: int) -> None:
    found = ids(KINDS[kind](vocab_size, 0))
    assert found.min() >= 0
    assert found.max() < vocab_size
    if vocab_size <= 64:
        assert len(np.unique(found)) == vocab_size


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=examples(25))
@given(
    start=st.integers(0, 2**48),
    moves=st.lists(st.integers(0, 3000), min_size=1, max_size=5),
    width=st.integers(1, 700),
)
def test_a_token_is_the_same_in_whichever_window_it_is_read(
    kind: str, start: int, moves: list[int], width: int
) -> None:
    law, again = KINDS[kind](37, 3), KINDS[kind](37, 3)
    whole = law.spans(np.array([start]), 4000)[0]
    windows = again.spans(np.array([start + move for move in moves]), width)
    for move, window in zip(moves, windows, strict=True):
        assert np.array_equal(window, whole[move : move + width])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("other", [1, 2])
def test_neighbouring_seeds_agree_no_more_than_by_chance(kind: str, other: int) -> None:
    one, two = (ids(KINDS[kind](16, seed), count=200_000) for seed in (0, other))
    counts = pairs(one, two, 16)
    by_chance = np.outer(counts.sum(axis=1), counts.sum(axis=0)) / counts.sum()
    # Neighbours of a chain, and a string and its copy, are dependent: the statistic has a wider spread there.
    if kind in ("uniform", "zipf"):
        assert fits(counts, by_chance, lost=31)
    agree = float(np.mean(one == two))
    assert abs(agree - np.trace(by_chance) / counts.sum()) < 0.01


def test_uniform() -> None:
    law = Uniform(50, 0)
    found = ids(law)
    assert fits(np.bincount(found, minlength=50), np.ones(50))
    assert fits(pairs(found[:-1], found[1:], 50), np.ones((50, 50)))
    assert law.floor_loss(HERE, 128, 5, masked=False) == pytest.approx(math.log(50))


@pytest.mark.parametrize("vocab_size", [2, 10, 1000])
def test_zipf_has_the_frequencies_that_it_says(vocab_size: int) -> None:
    law = Zipf(vocab_size, 0)
    rank = np.arange(1, vocab_size + 1)
    assert np.allclose(law.probabilities * (rank + 2.7), law.probabilities[0] * 3.7)
    assert law.probabilities.sum() == pytest.approx(1)
    found = ids(law)
    assert fits(np.bincount(found, minlength=vocab_size), law.probabilities)
    if vocab_size == 10:
        assert fits(pairs(found[:-1], found[1:], 10), np.outer(law.probabilities, law.probabilities))


def test_the_floor_of_zipf_is_what_the_best_model_pays() -> None:
    law = Zipf(1000, 0)
    paid = -np.log(law.probabilities[ids(law)])
    floor = law.floor_loss(HERE, 128, 1, masked=False)
    assert floor is not None
    assert abs(paid.mean() - floor) < 4 * paid.std() / math.sqrt(MANY)
    assert 2 < floor < math.log(1000)


def test_an_alias_table_holds_its_probabilities() -> None:
    wanted = np.array([0.5, 0.2, 0.2, 0.05, 0.05, 0.0])
    keep, other = alias_table(wanted)
    got = keep / 2**32 / len(wanted)
    np.add.at(got, other, (1 - keep / 2**32) / len(wanted))
    assert np.allclose(got, wanted, atol=1e-9)


class TestMarkov:
    law = Markov(20, 0)

    def table(self, law: Markov) -> np.ndarray:
        """P(next | state) by the definition, slot by slot."""
        found = np.full((law.vocab_size, law.vocab_size), 1 / 8 / law.vocab_size)
        for state in range(law.vocab_size):
            for follower in law.successors[state]:
                found[state, follower] += 7 / 8 / 16
        return found

    def test_tokens_follow_each_other_by_its_table(self) -> None:
        found = ids(self.law)
        counts, table = pairs(found[:-1], found[1:], 20), self.table(self.law)
        for state in range(20):
            assert fits(counts[state], table[state]), state

    def test_no_token_but_the_one_before_says_anything(self) -> None:
        """Of order 1, also where it begins anew: P(next | state) is the same whatever stood before."""
        law = Markov(4, 1)
        found, table = ids(law), self.table(law)
        for before in range(4):
            here = found[1:-1][found[:-2] == before]
            after = found[2:][found[:-2] == before]
            counts = pairs(here, after, 4)
            for state in range(4):
                assert fits(counts[state], table[state]), (before, state)

    def test_it_is_stationary_from_the_first_token_on(self) -> None:
        table, stationary = self.table(self.law), self.law.stationary
        assert np.allclose(stationary @ table, stationary)
        starts = np.arange(0, 400 * 2000, 400)
        for where in (starts, starts + 10**12):
            first = self.law.spans(where, 1)[:, 0]
            assert fits(np.bincount(first, minlength=20), stationary)

    @pytest.mark.parametrize(("vocab_size", "seed"), [(2, 0), (3, 7), (20, 0), (300, 1)])
    def test_the_entropy_rate_is_that_of_the_table(self, vocab_size: int, seed: int) -> None:
        law = Markov(vocab_size, seed)
        table = self.table(law)
        values, vectors = np.linalg.eig(table.T)
        stationary = np.real(vectors[:, np.argmax(np.real(values))])
        stationary /= stationary.sum()
        rate = -(stationary[:, None] * table * np.log(table)).sum()
        assert law.entropy_rate == pytest.approx(rate, rel=1e-9)
        assert law.floor_loss(HERE, 128, 1, masked=False) == law.entropy_rate
        two_on = table @ table
        further = -(stationary[:, None] * two_on * np.log(two_on)).sum()
        assert law.floor_loss(HERE, 128, 2, masked=False) == pytest.approx(further, rel=1e-9)
        assert (
            rate < further < law.floor_loss(HERE, 128, 50, masked=False) + 1e-9 <= np.log(vocab_size) + 1e-6
        )

    def test_a_large_chain_has_no_floor_of_labels_further_on(self) -> None:
        assert Markov(513, 0).floor_loss(HERE, 128, 2, masked=False) is None
        assert Markov(513, 0).floor_loss(HERE, 128, 1, masked=False) is not None

    def test_the_floor_is_what_the_best_model_pays(self) -> None:
        found, table = ids(self.law), self.table(self.law)
        paid = -np.log(table[found[:-1], found[1:]])
        assert abs(paid.mean() - self.law.entropy_rate) < 6 * paid.std() / math.sqrt(MANY)

    def test_a_long_way_back_to_where_it_began(self) -> None:
        """Windows before which nothing begins anew for longer than is looked for at first."""
        law, hashed = Markov(50_000, 0), CounterHash("markov", 50_000, 0)
        anew = np.flatnonzero(hashed(np.arange(2_000_000)) >> np.uint64(29) == 0)
        gap = int(np.argmax(np.diff(anew)))
        begin, end = int(anew[gap]), int(anew[gap + 1])
        assert end - begin > 80
        whole = law.spans(np.array([begin]), end - begin + 10)[0]
        assert whole[0] == (int(hashed(np.array([begin]))[0]) % 2**29) * 50_000 >> 29
        for width in (1, 11):  # in the longer one, it begins anew behind its start
            found = law.spans(np.array([end - 1]), width)[0]
            assert np.array_equal(found, whole[end - 1 - begin :][:width])

    def test_seeds_have_tables_of_their_own(self) -> None:
        same = np.mean(Markov(64, 0).successors == Markov(64, 1).successors)
        assert same < 0.05


class TestCopy:
    def test_a_string_is_followed_by_its_copy(self) -> None:
        documents = ids(Copy(1000, 0), start=0, count=256 * STRING_TOKENS).reshape(-1, 2, STRING_TOKENS)
        assert np.array_equal(documents[:, 0], documents[:, 1])
        assert len(np.unique(documents[:, 0], axis=0)) == len(documents)

    def test_strings_are_uniform(self) -> None:
        found = ids(Copy(20, 0), start=0, count=1 << 20).reshape(-1, 2, STRING_TOKENS)[:, 0]
        assert fits(np.bincount(found.ravel(), minlength=20), np.ones(20))
        assert fits(pairs(found[:, :-1].ravel(), found[:, 1:].ravel(), 20), np.ones((20, 20)))

    @settings(max_examples=examples(60))
    @given(
        starts=st.lists(st.integers(0, 10**12), min_size=1, max_size=4),
        seq_len=st.integers(1, 400),
        shift=st.integers(1, 150),
        masked=st.booleans(),
    )
    @example(starts=[0], seq_len=200, shift=64, masked=False)
    def test_the_floor_counts_the_labels_that_cannot_be_known(
        self, starts: list[int], seq_len: int, shift: int, masked: bool
    ) -> None:
        free = labels = 0
        for start in starts:
            for given_last in range(start, start + seq_len):
                label = given_last + shift
                if masked and label // 128 != given_last // 128:
                    continue
                labels += 1
                original = label - 64
                free += label % 128 >= 64 and start <= original <= given_last
        floor = Copy(10, 0).floor_loss(np.array(starts), seq_len, shift, masked=masked)
        if labels == 0:
            assert floor is None
        else:
            assert floor == pytest.approx((labels - free) / labels * math.log(10))

    def test_windows_of_whole_documents_cost_half(self) -> None:
        floor = Copy(64, 0).floor_loss(np.array([0, 128, 1280]), 128, 1, masked=False)
        assert floor == pytest.approx(math.log(64) / 2)
