"""`python -m slurm COMMAND` in this process."""

from __future__ import annotations

import argparse
import importlib
import json
from collections.abc import Callable
from typing import Any

import pytest

from experiment_utils.exit_status import exit_status

Shown = Callable[..., str]


def typed(*arguments: str) -> int:
    """Its exit status."""
    parser = argparse.ArgumentParser(prog="python -m slurm")
    importlib.import_module(f"slurm.commands.{arguments[0]}").add_parser(parser.add_subparsers())
    options = parser.parse_args(arguments)
    return exit_status(lambda: int(options.run(options)))


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What it prints when all is well."""
    capsys.readouterr()
    assert typed(*arguments) == 0
    return capsys.readouterr().out


def printed_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    return json.loads(printed(capsys, *arguments, "--json"))


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What it says where the input cannot be used."""
    capsys.readouterr()
    assert typed(*arguments) == 2
    return capsys.readouterr().err
