"""How a user's mistake travels: as a Problem in a list, or as a UserError that carries the list."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """One mistake in what the user gave.

    where: the config path (`optimizer.lr`), file, or flag that is wrong.
    what: what is wrong with it and what was expected, choices or nearest names included.
    """

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}" if self.where else self.what


class UserError(Exception):
    """The user's input cannot be used. Entries print its text without a traceback and exit 2.

    The message names what, where (config path, file, byte), what was expected, the choices, and
    the command that mends it.
    """

    def __init__(self, *problems: str | Problem) -> None:
        self.problems = [Problem("", p) if isinstance(p, str) else p for p in problems]
        super().__init__("\n".join(str(problem) for problem in self.problems))

    def render(self) -> str:
        """One `error: ...` for each problem, for a terminal."""
        return "\n".join(f"error: {problem}" for problem in self.problems)
