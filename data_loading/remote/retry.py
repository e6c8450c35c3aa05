"""Requests that are tried again: with back-off and jitter, for a time that is told when it is over."""

from __future__ import annotations

import logging
import random
import re
import time
from collections.abc import Callable
from typing import TypeVar

from data_loading.remote.credentials import no_keys, redacted
from experiment_utils.errors import UserError

log = logging.getLogger("data_loading")

FIRST_PATIENCE_S = 5.0
"""For the first request of a set: a wrong address is told in seconds."""
PATIENCE_S = 600.0
"""For what comes later: a run of days outlives a store that is away for minutes."""
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 15.0
_TOLD_AFTER_S = 10.0

_CODE = re.compile(r"<Code>\s*([^<]+?)\s*</Code>")
_MESSAGE = re.compile(r"<Message>\s*([^<]+?)\s*</Message>")
_STATUS = re.compile(r"status code: (\d{3})")
_METADATA = "169.254.169.254"
"""Where a virtual machine of Amazon finds its keys: asked when the environment has none."""
_NOT_PARTIAL = "non-partial response"
_NO_LOCATION = "redirect without LOCATION"
_PASSING_STATUS = ("408", "425", "429")
_PASSING_CODES = ("RequestTimeout", "SlowDown", "Throttling", "ThrottlingException", "OperationAborted")
"""S3 answers some of these with 400 or 409."""
_REGION = "Set AWS_REGION to the bucket's region"
_ADVICE = {
    "ExpiredToken": "Get new keys, and set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN",
    "RequestTimeTooSkewed": "Set the clock of this machine (date; chronyc tracking)",
    "RequestExpired": "Set the clock of this machine (date; chronyc tracking)",
    "NoSuchBucket": "Check the name of the bucket, and AWS_ENDPOINT_URL for a store that is not Amazon's",
    "AccessDenied": "These keys have no right to it: ask its owner for s3:GetObject and s3:ListBucket",
    "AuthorizationHeaderMalformed": _REGION,
    "PermanentRedirect": _REGION,
}

T = TypeVar("T")


class Vanished(UserError):
    """An object is not there."""

    code = "object-missing"


class Passing(Exception):
    """What may be better at the next attempt: an answer that is short, say."""


def persistently(what: str, advice: str, call: Callable[[], T], patience_s: float) -> T:
    """What `call` returns, tried again after failures that may pass.

    what: is asked for, for messages. advice: which variables to look at.

    Raises:
        Vanished: there is no such object.
        UserError: refused for a reason that another attempt cannot change, or not answered for `patience_s`:
            names what was tried, how often, how long.
    """
    from obstore.exceptions import BaseError

    started, pause, attempts, told = time.monotonic(), _FIRST_PAUSE_S, 0, False
    while True:
        attempts += 1
        try:
            return call()
        except FileNotFoundError as error:
            if _code(error) == "NoSuchBucket":
                raise UserError(_refused(what, error, advice), code="store-refused") from None
            raise Vanished(f"{what}: there is no such object ({brief(error)})") from None
        except (BaseError, Passing) as error:
            if isinstance(error, BaseError) and _is_final(error):
                raise UserError(_refused(what, error, advice), code="store-refused") from None
            spent = time.monotonic() - started
            if spent + pause > patience_s and _METADATA in str(error):
                raise UserError(_refused(what, error, advice), code="store-refused") from None
            if spent + pause > patience_s:
                raise UserError(
                    f"{what}: no whole answer; {attempts} attempts in {spent:.1f} s, the last one: "
                    f"{brief(error)}. Look at the network, and at {advice}",
                    code="store-unreachable",
                ) from None
            if not told and spent > _TOLD_AFTER_S:
                told = True
                log.warning("%s: no answer for %.0f s (%s); trying again", what, spent, brief(error))
        time.sleep(pause * random.uniform(0.5, 1.0))
        pause = min(2 * pause, _LONGEST_PAUSE_S)


def _refused(what: str, error: Exception, advice: str) -> str:
    """Message about an answer that stays the same however often it is asked for."""
    code = _code(error) or ""
    if _METADATA in str(error):
        return f"{what}: {no_keys()}"
    if _NOT_PARTIAL in str(error):
        todo = "The server does not answer requests for a range of bytes. Take one that does, such as nginx"
    else:
        todo = _REGION if _NO_LOCATION in str(error) else _ADVICE.get(code, f"Check {advice}")
    return f"{what}: the store refuses it ({brief(error)}). {todo}"


def _is_final(error: Exception) -> bool:
    """Whether the answer is one that another attempt cannot change."""
    text = str(error)
    if any(sign in text for sign in (_NOT_PARTIAL, _NO_LOCATION)):
        return True
    status = _STATUS.search(text)
    is_of_request = status is not None and 300 <= int(status[1]) < 500
    passes = status is not None and status[1] in _PASSING_STATUS
    return is_of_request and not passes and _code(error) not in _PASSING_CODES


def _code(error: Exception) -> str | None:
    """The error code of S3's answer, such as `ExpiredToken`; None where it has none."""
    found = _CODE.search(str(error))
    return found[1] if found else None


def brief(error: Exception) -> str:
    """The service's code and message, else the first line of obstore's text and the innermost cause."""
    text = str(error)
    first = text.strip().partition("\n")[0][:300].strip()
    if (code := _code(error)) is not None:
        message = _MESSAGE.search(text)
        first = f"{code}: {message[1]}" if message else code
    causes = [line.strip(' ",') for line in text.splitlines() if '"' in line and ":" not in line]
    cause = f" ({causes[-1]})" if causes and "error sending request" in first else ""
    return redacted(first + cause)
