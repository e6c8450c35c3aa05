"""`python -m memory COMMAND`: where the memory is, of this machine, a running job, or a run that died."""

from __future__ import annotations

import argparse
import importlib
import io
import os
import sys

from experiment_utils.errors import UserError
from experiment_utils.typed_here import print_as_typed_here

COMMANDS: tuple[str, ...] = ("here", "run", "stacks", "watch", "explain", "attribute", "report", "compare")
"""Each is a module of memory/commands. Without a command: `here`."""


def parser() -> argparse.ArgumentParser:
    """What a user may type."""
    result = argparse.ArgumentParser(
        prog="python -m memory",
        description="Where the memory is, why a run died, and whether the next one fits. Without a command: "
        "`here`, whose options may be given at once (python -m memory --pid 4711).",
        epilog="exit status: 0 done, 1 our failure, 2 the input cannot be used, 130 interrupted",
    )
    subparsers = result.add_subparsers(metavar="COMMAND", required=True)
    for name in COMMANDS:
        importlib.import_module(f"memory.commands.{name}").add_parser(subparsers)
    return result


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if not arguments or (arguments[0].startswith("-") and arguments[0] not in ("-h", "--help")):
        arguments = ["here", *arguments]
    if sys.stdout is None:  # closed by who started it: nobody wants to read it
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        # a path or a stage's name that the terminal has no letters for is told by its numbers
        sys.stdout.reconfigure(errors="backslashreplace")
    print_as_typed_here()
    try:
        try:
            options = parser().parse_args(arguments)
            status = int(options.run(options))
        except SystemExit:  # --help, whose words still wait to be written
            sys.stdout.flush()
            raise
        sys.stdout.flush()
        return status
    except UserError as error:
        _say(f"error: {error}")
        return 2
    except KeyboardInterrupt:
        _say("interrupted")
        return 130
    except BrokenPipeError:  # the reader, `head` say, has seen enough
        _write_no_more()
        return 1
    except OSError as error:  # standard output on a full disk, say
        _say(f"error: {error.filename or 'standard output'}: {error.strerror or error}")
        _write_no_more()
        return 1


def _say(line: str) -> None:
    if sys.stderr is not None:
        print(line, file=sys.stderr)


def _write_no_more() -> None:
    """What waits in the buffer would be tried again when Python ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
