"""Why a run died, or how close it was: rules on evidence, each with its confidence and the lines behind it.

    found = explain(Evidence(folder))
    print(found.verdict, found.cause, found.sentence)

The rules stand in `memory/explain/rules`, one file a family, listed in RULES.
"""

from __future__ import annotations

from memory.explain.finding import VERDICTS, Advice, Explanation, Finding, Victim
from memory.explain.verdict import explain

__all__ = ["VERDICTS", "Advice", "Explanation", "Finding", "Victim", "explain"]
