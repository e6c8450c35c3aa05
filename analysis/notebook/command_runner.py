"""Runs a command of `python -m analysis` in this process and returns what it prints."""

from __future__ import annotations

import argparse
import base64
import importlib
import io
import json
import tempfile
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class CommandRun:
    """A command with its arguments; each property runs it once."""

    name: str
    arguments: tuple[str, ...]

    @cached_property
    def result(self) -> Any:
        """Its JSON."""
        return json.loads(_output(self.name, [*self.arguments, "--json"]))

    @cached_property
    def text(self) -> str:
        """Its page, as in a terminal."""
        return _output(self.name, self.arguments).rstrip()

    @cached_property
    def drawn(self) -> tuple[Any, str]:
        """(its JSON, its picture as an `<img>` element with the PNG in it), of a command that draws."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "picture.png"
            result = json.loads(_output(self.name, [*self.arguments, "--json", "-o", str(file)]))
            encoded = base64.b64encode(file.read_bytes()).decode()
        image = f'<img alt="{self.name}" style="max-width: 100%" src="data:image/png;base64,{encoded}">'
        return result, image


def _output(name: str, arguments: Sequence[str]) -> str:
    module = importlib.import_module(f"{__package__.rpartition('.')[0]}.commands.{name.replace('-', '_')}")
    parser = argparse.ArgumentParser()
    module.add_parser(parser.add_subparsers())
    options = parser.parse_args([name, *arguments])
    with redirect_stdout(io.StringIO()) as printed, redirect_stderr(io.StringIO()):
        options.run(options)
    return printed.getvalue()
