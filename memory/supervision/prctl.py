"""Three wishes to the Linux kernel about who goes when; elsewhere, and without ctypes, they are not granted.

Source: prctl(2).
"""

from __future__ import annotations

import signal
import sys

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36


def ask_to_end_with_parent() -> bool:
    """Let SIGTERM come when the parent is gone. Kept by exec, not by fork."""
    return _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def adopt_orphans() -> bool:
    """Become the parent of every descendant whose own parent is gone, so that it stays to be seen."""
    return _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def leave_no_core() -> bool:
    """The run has left its own; a second one, of who passes its signal on, would only confuse."""
    return _prctl(_PR_SET_DUMPABLE, 0)


def _prctl(option: int, value: int) -> bool:
    if not sys.platform.startswith("linux"):
        return False
    try:
        import ctypes

        return ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), 0, 0, 0) == 0
    except (ImportError, OSError, AttributeError):
        return False
