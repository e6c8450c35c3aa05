"""A missing optional package ends a command with exit status 2 and the command that installs its extra."""

from __future__ import annotations

import shlex
import sys

import pytest

from experiment_utils.errors import UserError
from experiment_utils.extras import check_installed, install_command


def test_an_installed_package_passes_without_import(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "wave", raising=False)
    check_installed("wave", "hf", "x")
    assert "wave" not in sys.modules


def test_a_missing_package_is_refused_with_its_extra() -> None:
    with pytest.raises(UserError) as caught:
        check_installed("no_such_package", "hf", "export")
    assert caught.value.codes == ["package-missing"]
    assert install_command("hf") in str(caught.value)


def test_the_command_is_for_this_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/home/a b/python")
    assert shlex.split(install_command("hf")) == [
        "/home/a b/python", "-m", "pip", "install", "highwater[hf]",
    ]  # fmt: skip
