"""markov: a chain of order 1 of a known entropy rate. A model that looks one token back can learn all of it.

One token in eight, at places that the seed draws, is any id, each as likely, independent of the token before:
the chain restarts there. Each other token follows the one before it by a random table of the seed: 16 slots a
state, each as likely, that have four ids in random shares. So P(next | token) = 1/8 / V + 7/8 slots / 16.

The restarts make it a function of the index: a token follows from the last restart before it, on average
eight tokens back. There are no documents and no borders: the chain extends from below the first token to
beyond the last, and every token has the stationary distribution.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from data_loading.synthetic.counter_hash import BITS, CounterHash, scaled
from data_loading.synthetic.law import Law

_RESTART_BITS = 3
"""One place in 2**3 is a restart."""
_RESTART = 1 / (1 << _RESTART_BITS)
_SLOTS, _SUCCESSORS = 16, 4
_LOOK_BACK = 64
"""Tokens that are first searched for a restart: in 1 of 5,000 cases they have none."""
_LARGEST_TABLE = 512
"""Most ids for which a step of several tokens is computed: it costs the cube of their number."""
_ENOUGH_ROUNDS = 300
"""(1 - 1/8) ** 300 is below the last digit of a float64."""


class Markov(Law):
    """A Markov chain.

    Floor: the entropy rate for every label, since the token before it is among the inputs. For a larger
    shift, the entropy of the label given its input.
    """

    name = "markov"
    tokens_at_once = 1 << 17

    def __init__(self, vocab_size: int, seed: int) -> None:
        super().__init__(vocab_size, seed)
        self._hash = CounterHash(self.name, vocab_size, seed)

    @cached_property
    def successors(self) -> np.ndarray:
        """Id in each slot of each state, int64 `(vocab_size, 16)`."""
        states, slots = np.arange(self.vocab_size)[:, None], np.arange(_SLOTS)
        which = scaled(
            CounterHash(self.name, self.vocab_size, self.seed, "slots")(states * _SLOTS + slots), _SUCCESSORS
        )
        draws = CounterHash(self.name, self.vocab_size, self.seed, "ids")
        ids = draws(states * _SUCCESSORS + which.view(np.int64))
        return scaled(ids, self.vocab_size).view(np.int64)

    @cached_property
    def stationary(self) -> np.ndarray:
        """Probability of each id, float64 `(vocab_size,)`."""
        found = np.full(self.vocab_size, 1 / self.vocab_size)
        into = self.successors.ravel()
        for _ in range(_ENOUGH_ROUNDS):
            followed = np.bincount(into, np.repeat(found / _SLOTS, _SLOTS), self.vocab_size)
            found = _RESTART / self.vocab_size + (1 - _RESTART) * followed
        return found

    @property
    def entropy_rate(self) -> float:
        """Nats a token, given the one before it."""
        ids = np.sort(self.successors, axis=1)
        begins = np.ones(ids.shape, bool)
        begins[:, 1:] = ids[:, 1:] != ids[:, :-1]
        rows, columns = np.nonzero(begins)
        ends = np.append(np.where(columns[1:] > 0, columns[1:], _SLOTS), _SLOTS)
        any_id = _RESTART / self.vocab_size
        p = any_id + (1 - _RESTART) * (ends - columns) / _SLOTS
        others = self.vocab_size - begins.sum(axis=1)
        of_state = np.bincount(rows, -p * np.log(p), self.vocab_size) - others * any_id * np.log(any_id)
        return float(self.stationary @ of_state)

    def spans(self, starts: np.ndarray, width: int) -> np.ndarray:
        back, draws = self._draws(starts, width)
        restarts = draws >> np.uint64(BITS - _RESTART_BITS) == 0
        restarts[:, 0] = True  # tokens before the first real restart are cut off below
        slots = (draws & np.uint64(_SLOTS - 1)).view(np.int64).ravel()
        places = np.flatnonzero(restarts)
        lengths = np.diff(places, append=restarts.size)
        places = places[np.argsort(-lengths, kind="stable")]
        # The number of pieces longer than 1, 2, ...: these continue.
        longer = len(places) - np.cumsum(np.bincount(lengths))[1:-1]
        low_bits = draws.ravel()[places] & np.uint64((1 << (BITS - _RESTART_BITS)) - 1)
        states = scaled(low_bits, self.vocab_size, BITS - _RESTART_BITS).view(np.int64)
        chain = np.empty(restarts.size, np.int64)
        chain[places] = states
        table = self.successors.ravel()
        for count in longer.tolist():
            places = places[:count] + 1
            states = table[states[:count] * _SLOTS + slots[places]]
            chain[places] = states
        return chain.reshape(restarts.shape)[:, back:]

    def _draws(self, starts: np.ndarray, width: int) -> tuple[int, np.ndarray]:
        """Return a number of tokens before each start, and the draws from there on.

        Each row has a restart in these tokens or at its start.
        """
        back = _LOOK_BACK
        while True:
            draws = self._hash(starts[:, None] + np.arange(-back, width))
            if (draws[:, : back + 1] >> np.uint64(BITS - _RESTART_BITS) == 0).any(axis=1).all():
                return back, draws
            back *= 2

    def floor_loss(self, starts: np.ndarray, seq_len: int, shift: int, *, masked: bool) -> float | None:
        if shift == 1:
            return self.entropy_rate
        if self.vocab_size > _LARGEST_TABLE:
            return None
        table = np.full((self.vocab_size, self.vocab_size), _RESTART / self.vocab_size)
        np.add.at(table, (np.arange(self.vocab_size)[:, None], self.successors), (1 - _RESTART) / _SLOTS)
        further = np.linalg.matrix_power(table, shift)
        return float(-(self.stationary[:, None] * further * np.log(further)).sum())
