"""Optional packages, the extras of pyproject.toml: the error for a missing one, with the command for it."""

from __future__ import annotations

import shlex
import sys
from importlib.util import find_spec

from experiment_utils.errors import UserError

PACKAGE_MISSING = "package-missing"


def install_command(extra: str) -> str:
    """Command that adds the packages of an extra to the Python that runs."""
    return f"{shlex.quote(sys.executable)} -m pip install 'highwater[{extra}]'"


def check_installed(module: str, extra: str, what: str) -> None:
    """Check that an optional package is installed, without importing it.

    Args:
        module: its top-level module.
        extra: the extra that installs it.
        what: what needs it, as the subject of the message.

    Raises:
        UserError: it is not installed.
    """
    if find_spec(module) is None:
        raise UserError(
            f"{what} needs the package {module}, which is not installed: {install_command(extra)}",
            code=PACKAGE_MISSING,
        )
