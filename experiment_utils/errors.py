"""A user's mistake: one Problem, or a UserError that carries a list of them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """One mistake in what the user gave."""

    where: str
    """Config path (`optimizer.lr`), file or flag that is wrong; empty if `what` names it."""
    what: str
    """The mistake and what was expected, with the choices or the nearest names."""
    code: str = ""
    """Identity of the message, in kebab-case, unique in its room: tests assert it, never the wording."""

    def __str__(self) -> str:
        return f"{self.where}: {self.what}" if self.where else self.what


class UserError(Exception):
    """The user's input cannot be used. Commands print the message without a traceback and exit with status 2.

    The message says what is wrong, where (config path, file, byte), what was expected, the choices, and the
    command that fixes it.
    """

    code = ""
    """Code of problems that have none of their own; subclasses set it."""

    def __init__(self, *problems: str | Problem, code: str = "") -> None:
        self.code = code or type(self).code
        self.problems = [
            Problem("", problem, self.code) if isinstance(problem, str) else problem for problem in problems
        ]
        super().__init__("\n".join(str(problem) for problem in self.problems))

    @property
    def codes(self) -> list[str]:
        """Code of each problem, in their order."""
        return [problem.code for problem in self.problems]

    def _render_traceback_(self) -> list[str]:
        """Lines that IPython and Jupyter show instead of a traceback."""
        return self.render().splitlines()

    def render(self) -> str:
        """One `error: ...` for each problem, for a terminal."""
        return "\n".join(f"error: {problem}" for problem in self.problems)
