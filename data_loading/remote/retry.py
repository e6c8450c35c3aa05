"""Requests that are tried again: with back-off and jitter, for a time that is told when it is over."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from typing import TypeVar

from conf import UserError
from data_loading.remote.credentials import redacted

log = logging.getLogger("data_loading")

FIRST_PATIENCE_S = 5.0
"""For the first request of a set: a wrong address is told in seconds."""
PATIENCE_S = 600.0
"""For what comes later: a run of days outlives a store that is away for minutes."""
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 15.0
_TOLD_AFTER_S = 10.0

T = TypeVar("T")


class Vanished(UserError):
    """An object is not there."""


class Passing(Exception):
    """What may be better at the next attempt: an answer that is short, say."""


def persistently(what: str, advice: str, call: Callable[[], T], patience_s: float) -> T:
    """What `call` returns, tried again after failures that may pass.

    what: is asked for, for messages. advice: which variables to look at.

    Raises:
        Vanished: there is no such object.
        UserError: not allowed, or not answered for `patience_s`: names what was tried, how often, how long.
    """
    from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError

    started, pause, attempts, told = time.monotonic(), _FIRST_PAUSE_S, 0, False
    while True:
        attempts += 1
        try:
            return call()
        except FileNotFoundError as error:
            raise Vanished(f"{what}: there is no such object ({_brief(error)})") from None
        except (PermissionDeniedError, UnauthenticatedError) as error:
            raise UserError(
                f"{what}: the store does not allow it ({_brief(error)}). Look at {advice}"
            ) from None
        except (BaseError, Passing) as error:
            spent = time.monotonic() - started
            if spent + pause > patience_s:
                raise UserError(
                    f"{what}: no whole answer; {attempts} attempts in {spent:.1f} s, the last one: "
                    f"{_brief(error)}. Look at the network, and at {advice}"
                ) from None
            if not told and spent > _TOLD_AFTER_S:
                told = True
                log.warning("%s: no answer for %.0f s (%s); trying again", what, spent, _brief(error))
        time.sleep(pause * random.uniform(0.5, 1.0))
        pause = min(2 * pause, _LONGEST_PAUSE_S)


def _brief(error: Exception) -> str:
    """The first line of what obstore tells, which goes on with its inner state, and the innermost cause."""
    text = str(error)
    first = text.strip().partition("\n")[0][:300].strip()
    causes = [line.strip(' ",') for line in text.splitlines() if '"' in line and ":" not in line]
    cause = f" ({causes[-1]})" if causes and "error sending request" in first else ""
    return redacted(first + cause)
