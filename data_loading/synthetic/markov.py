"""markov: a chain of order 1 whose entropy rate is known. A model that looks one token back can learn it all.

One token in eight, at places that the seed draws, is any id, all as likely, whatever stood before: the chain
begins anew there. Each other one follows the token before it by a random table of the seed: 16 slots a
state, each as likely, that hold four ids in random shares. So P(next | token) = 1/8 / V + 7/8 slots / 16.

The places at which it begins anew make it a function of the index: the token at an index follows from the
last such place before it, on average eight tokens back. No documents, no borders: the chain goes on from
below the first token to beyond the last, and every token of it has the stationary distribution.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from data_loading.synthetic.counter_hash import BITS, CounterHash, scaled
from data_loading.synthetic.law import Law

_ANEW_BITS = 3
"""One place in 2**3 begins anew."""
_ANEW = 1 / (1 << _ANEW_BITS)
_SLOTS, _SUCCESSORS = 16, 4
_LOOK_BACK = 64
"""Tokens in which a place that begins anew is looked for at first: in 1 of 5,000 cases there is none."""
_LARGEST_TABLE = 512
"""Ids up to which the chain is taken several steps at once, which costs the cube of their number."""
_ENOUGH_ROUNDS = 300
"""(1 - 1/8) ** 300 is below the last digit of a float64."""


class Markov(Law):
    """Floor: the entropy rate, for every label, since the token before a label is among the inputs. Of labels
    further on, what the last input leaves open.
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
            found = _ANEW / self.vocab_size + (1 - _ANEW) * followed
        return found

    @property
    def entropy_rate(self) -> float:
        """Nats a token, given the one before it."""
        ids = np.sort(self.successors, axis=1)
        begins = np.ones(ids.shape, bool)
        begins[:, 1:] = ids[:, 1:] != ids[:, :-1]
        rows, columns = np.nonzero(begins)
        ends = np.append(np.where(columns[1:] > 0, columns[1:], _SLOTS), _SLOTS)
        any_id = _ANEW / self.vocab_size
        p = any_id + (1 - _ANEW) * (ends - columns) / _SLOTS
        others = self.vocab_size - begins.sum(axis=1)
        of_state = np.bincount(rows, -p * np.log(p), self.vocab_size) - others * any_id * np.log(any_id)
        return float(self.stationary @ of_state)

    def spans(self, starts: np.ndarray, width: int) -> np.ndarray:
        back, draws = self._draws(starts, width)
        anew = draws >> np.uint64(BITS - _ANEW_BITS) == 0
        anew[:, 0] = True  # what comes before the first place that begins anew is not asked for
        slots = (draws & np.uint64(_SLOTS - 1)).view(np.int64).ravel()
        places = np.flatnonzero(anew)
        lengths = np.diff(places, append=anew.size)
        places = places[np.argsort(-lengths, kind="stable")]
        # How many pieces are longer than 1, 2, ...: those go on.
        going_on = len(places) - np.cumsum(np.bincount(lengths))[1:-1]
        low_bits = draws.ravel()[places] & np.uint64((1 << (BITS - _ANEW_BITS)) - 1)
        states = scaled(low_bits, self.vocab_size, BITS - _ANEW_BITS).view(np.int64)
        chain = np.empty(anew.size, np.int64)
        chain[places] = states
        table = self.successors.ravel()
        for count in going_on.tolist():
            places = places[:count] + 1
            states = table[states[:count] * _SLOTS + slots[places]]
            chain[places] = states
        return chain.reshape(anew.shape)[:, back:]

    def _draws(self, starts: np.ndarray, width: int) -> tuple[int, np.ndarray]:
        """(how many tokens more than asked for, draws of all from so many before each start on): the chain
        begins anew once at least in those before a row, or at its start.
        """
        back = _LOOK_BACK
        while True:
            draws = self._hash(starts[:, None] + np.arange(-back, width))
            if (draws[:, : back + 1] >> np.uint64(BITS - _ANEW_BITS) == 0).any(axis=1).all():
                return back, draws
            back *= 2

    def floor_loss(self, starts: np.ndarray, seq_len: int, shift: int, *, masked: bool) -> float | None:
        if shift == 1:
            return self.entropy_rate
        if self.vocab_size > _LARGEST_TABLE:
            return None
        table = np.full((self.vocab_size, self.vocab_size), _ANEW / self.vocab_size)
        np.add.at(table, (np.arange(self.vocab_size)[:, None], self.successors), (1 - _ANEW) / _SLOTS)
        further = np.linalg.matrix_power(table, shift)
        return float(-(self.stationary[:, None] * further * np.log(further)).sum())
