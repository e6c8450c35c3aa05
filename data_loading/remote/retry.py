"""Requests to a store: repeated after failures that may pass, and the messages for those that cannot."""

from __future__ import annotations

import logging
import random
import re
import time
from collections.abc import Callable
from typing import TypeVar

from data_loading.remote.address import no_keys, redacted
from experiment_utils.errors import UserError

log = logging.getLogger("data_loading")

FIRST_PATIENCE_S = 5.0
"""For the first request of a set: a wrong address fails in seconds."""
PATIENCE_S = 600.0
"""For later requests: a run of days outlives an outage of minutes."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 15.0
_LOG_AFTER_S = 10.0

_CODE = re.compile(r"<Code>\s*([^<]+?)\s*</Code>")
_MESSAGE = re.compile(r"<Message>\s*([^<]+?)\s*</Message>")
_STATUS = re.compile(r"status code: (\d{3})")
_METADATA = "169.254.169.254"
"""Address of the keys of an Amazon virtual machine: used when the environment has none."""
_PASSING_STATUS = ("408", "425", "429")
_PASSING_CODES = ("RequestTimeout", "SlowDown", "Throttling", "ThrottlingException", "OperationAborted")
"""S3 sends some of these with status 400 or 409."""
_REGION = "Set AWS_REGION to the bucket's region"
_CLOCK = "Set the clock of this machine (date; chronyc tracking)"
_ADVICE = {
    "ExpiredToken": "Get new keys, and set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN",
    "RequestTimeTooSkewed": _CLOCK,
    "RequestExpired": _CLOCK,
    "NoSuchBucket": "Check the name of the bucket, and AWS_ENDPOINT_URL for a store that is not Amazon's",
    "AccessDenied": "These keys have no right to it: ask its owner for s3:GetObject and s3:ListBucket",
    "AuthorizationHeaderMalformed": _REGION,
    "PermanentRedirect": _REGION,
}
_FINAL_TEXTS = {
    "non-partial response": "The server does not answer requests for a range of bytes. Take one that does, "
    "such as nginx",
    "redirect without LOCATION": _REGION,
}
"""Answers that obstore refuses itself, and the advice."""

T = TypeVar("T")
Sleep = Callable[[float], None]


class Vanished(UserError):
    """The object does not exist."""

    code = "object-missing"


class Passing(Exception):
    """Failure that another attempt may cure, such as a short answer."""


def persistently(
    what: str, variables: str, call: Callable[[], T], patience_s: float, sleep: Sleep = time.sleep
) -> T:
    """Return the result of `call`, repeated with growing pauses after failures that may pass.

    Args:
        what: the object, for messages.
        variables: environment variables that the user should check.
        sleep: called with each pause in seconds; an exception from it ends the attempts.

    Raises:
        Vanished: the object does not exist.
        UserError: the store refuses the request, or does not answer for `patience_s`.
    """
    from obstore.exceptions import BaseError

    started, pause, attempts, is_logged = time.monotonic(), _FIRST_PAUSE_S, 0, False
    while True:
        attempts += 1
        try:
            return call()
        except (FileNotFoundError, BaseError, Passing) as error:
            if isinstance(error, FileNotFoundError) and _code(error) != "NoSuchBucket":
                raise Vanished(f"{what}: there is no such object ({brief(error)})") from None
            spent = time.monotonic() - started
            is_over = spent + pause > patience_s
            if _is_final(error) or (is_over and _METADATA in str(error)):
                raise UserError(f"{what}: {_refusal(error, variables)}", code="store-refused") from None
            if is_over:
                raise UserError(
                    f"{what}: no whole answer; {attempts} attempts in {spent:.1f} s, the last one: "
                    f"{brief(error)}. Look at the network, and at {variables}",
                    code="store-unreachable",
                ) from None
            if not is_logged and spent > _LOG_AFTER_S:
                is_logged = True
                log.warning("%s: no answer for %.0f s (%s); trying again", what, spent, brief(error))
        sleep(pause * random.uniform(0.5, 1.0))
        pause = min(2 * pause, _LONGEST_PAUSE_S)


def _is_final(error: Exception) -> bool:
    """Whether another attempt cannot change the answer."""
    text, code = str(error), _code(error)
    if code == "NoSuchBucket" or any(part in text for part in _FINAL_TEXTS):
        return True
    status = _STATUS.search(text)
    if status is None or status[1] in _PASSING_STATUS or code in _PASSING_CODES:
        return False
    return 300 <= int(status[1]) < 500


def _refusal(error: Exception, variables: str) -> str:
    """Message for an answer that does not change however often the request is sent."""
    text = str(error)
    if _METADATA in text:
        return no_keys()
    final = [advice for part, advice in _FINAL_TEXTS.items() if part in text]
    advice = final[0] if final else _ADVICE.get(_code(error), f"Check {variables}")
    return f"the store refuses it ({brief(error)}). {advice}"


def _code(error: Exception) -> str:
    """Error code in the answer of S3, such as `ExpiredToken`; empty if there is none."""
    found = _CODE.search(str(error))
    return found[1] if found else ""


def brief(error: Exception) -> str:
    """Return code and message of the store, or the first line of obstore's text and the innermost cause."""
    text = str(error)
    first = text.strip().partition("\n")[0][:300].strip()
    if code := _code(error):
        message = _MESSAGE.search(text)
        first = f"{code}: {message[1]}" if message else code
    causes = [line.strip(' ",') for line in text.splitlines() if '"' in line and ":" not in line]
    cause = f" ({causes[-1]})" if causes and "error sending request" in first else ""
    return redacted(first + cause)
