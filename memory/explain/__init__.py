"""Why a run died, or how close it was.

evidence/  ->  read_signals.py  ->  rules/       ->  decide.py
files          one Signals          a table          one verdict, one cause
                                    verdict/         (their words and advice)

found = explain(Evidence(folder))
print(found.verdict, found.cause, found.sentence)
"""

from __future__ import annotations

from memory.explain.decide import explain
from memory.explain.evidence.process_memory import Victim
from memory.explain.verdict.explanation import VERDICTS, Advice, Explanation, Finding

__all__ = ["VERDICTS", "Advice", "Explanation", "Finding", "Victim", "explain"]
