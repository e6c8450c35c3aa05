"""The run's own last error: which kind of error ended the program, by the last lines that it wrote.

A Python program that ends by an exception writes it last. An error that was caught before, and text that the
program printed of its data, is not the error that ended it. Only the last exception and its causes are
searched; the end of the log where there is no traceback.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from memory.explain.evidence.log_patterns import ERRORS, line_of
from memory.explain.evidence.run_facts import RunFacts

TRACEBACK = "Traceback (most recent call last)"
_CAUSED = re.compile(
    r"(?:direct cause of the following exception|another exception occurred|Original Traceback)[^\n]*\s+$"
)
_NOT_THE_END = re.compile(r"(?:Exception ignored in|Exception in thread|--- Logging error ---)[^\n]*\n?$")
_LAST_LINES, _END_LINES = 30, 120
"""Lines that exit handlers write after the last traceback at most; lines searched of a log without one."""
_OF_ANOTHER_PROCESS = re.compile(
    r"ChildFailedError|Process(?:Raised|Exited)Exception|BrokenProcessPool|RemoteTraceback|RayTaskError|NCCL"
    r"|[Gg]loo"
    r"|Dist(?:Backend|Network|Store)Error|Connection\w*(?: reset| closed|Error)|Broken ?[Pp]ipe|EOFError"
    r"|KilledWorker"
    r"|WorkerCrashed|CalledProcessError|killed by|exited unexpectedly|[Tt]ime(?:d )?out|KeyboardInterrupt"
    r"|abruptly"
)
"""Raised because another process of the run died: the cause is further up."""
_OF_VALUES = re.compile(
    r"(?:^|\.)(?:Value|Type|Key|Index|Lookup|Assertion|Attribute|Name|Syntax|JSONDecode|Unicode\w*"
    r"|Validation)Error$"
)
"""Never raised because a resource was short."""
_CONTINUED = re.compile(
    r"\b(?:finished|completed?(?! stack trace)|succe(?:ss\w*|eded)|all done|exit(?:ed with)?(?: code)? 0"
    r"|reducing|retrying|skipp\w+|falling back|halving|trying again|recover\w+)\b",
    re.I,
)
"""The program continued after the error."""
_PINNED = re.compile(r"\bpin_memory\b|\bcudaHostAlloc\b|\bcudaMallocHost\b|\bpinned\b")
_A_FILE = re.compile(r": ['\"]?[^'\"\s]*/|No space left on device: ['\"]|/\S+: No space left|quota")
_WEAK, _SPECIAL = (
    ("bus_error", "disk_full", "no_thread", "worker_died"),
    ("maps_used_up", "shm_full", "gpu_message"),
)


@dataclass(frozen=True)
class OwnError:
    """The error that the program wrote last."""

    kind: str = ""
    """A kind of `log_patterns.ERRORS`, `exception` for any other exception, empty if there is none."""
    line: str = ""
    text: str = ""
    """The lines that were searched."""
    exception: str = ""
    """The exception that ended the last traceback."""
    confidence: str = "certain"
    """`likely` if another error passes it on, `unknown` if it is quoted or the log continues after it."""
    pid: int = 0
    """Process that the message names."""
    names_file: bool = False
    """The line names what had no room: a file, a folder, a quota."""

    def __bool__(self) -> bool:
        return bool(self.kind)


def own_error(facts: RunFacts) -> OwnError:
    """Classify the last error of a run; an empty one if it wrote none."""
    text, is_exception = _last_words(facts)
    exception = last_exception(text if is_exception else facts.log)
    of_values = is_exception and _OF_VALUES.search(exception.partition(":")[0]) is not None
    last = text.rfind(exception) if of_values else len(text) + 1
    every = ((row.kind, match) for row in ERRORS for match in row.regex.finditer(text))
    found = [(kind, match) for kind, match in every if kind == "gpu_cache" or match.start() < last]
    if not found:
        return OwnError("exception" if exception else "", exception, text, exception)
    kind, match = max(found, key=_rank)
    line, before, after = line_of(match), text[: match.start()], text[match.end() :].partition("\n")[2]
    is_unsure = before.endswith(("'", '"', "`")) and "terminate called" not in line
    if not (facts.outcome or facts.status or facts.slurm):
        is_unsure |= after.count("\n") > _LAST_LINES and TRACEBACK not in after
        is_unsure |= _CONTINUED.search(f"{line * bool(after.strip())}\n{after}") is not None
    passed_on = is_exception and not line.startswith(match[0][:40])
    passed_on &= re.match(r"[\w.]*(?:Error|Exception)\b", match[0]) is not None
    if "CUDA error: out of memory" in match[0] and _PINNED.search(before.rpartition('File "')[2]):
        kind = "pinned_memory"
    confidence = "unknown" if is_unsure else "likely" if passed_on else "certain"
    pid = next((int(value) for value in match.groupdict().values() if value and value.isdigit()), 0)
    return OwnError(kind, line, text, exception, confidence, pid, _A_FILE.search(line) is not None)


def _rank(found: tuple[str, re.Match[str]]) -> tuple[bool, bool, int, int]:
    """The special before the general, else the later one, and of one line the shorter match."""
    kind, match = found
    return kind not in _WEAK, kind in _SPECIAL, match.start(), -len(match[0])


def last_exception(text: str) -> str:
    """First line of the exception that ended the last traceback; empty without one."""
    lines = text.rpartition(TRACEBACK)[2].splitlines()[1:] if TRACEBACK in text else []
    return next((line[:300] for line in lines if line and not line[0].isspace()), "")


def _last_words(facts: RunFacts) -> tuple[str, bool]:
    """Text that ended the run, and whether it is an exception with its causes."""
    if facts.state == "failed" and facts.reason:
        chains = (_last_chain(log) for log in facts.logs.values())
        chain = next((each for each in chains if facts.reason.partition(":")[0] in each), "")
        return f"{chain}\n{facts.reason}".strip(), not _OF_ANOTHER_PROCESS.search(facts.reason)
    logs = (facts.logs.get("stderr.txt", ""), facts.added_log, *facts.logs.values())
    chain = _last_chain(next((log for log in logs if TRACEBACK in log), ""))
    return (chain, True) if chain else ("\n".join(facts.log.splitlines()[-_END_LINES:]) + "\n", False)


def _last_chain(log: str) -> str:
    """The last traceback back to its first cause; empty if it did not end the run, or passes on a death."""
    heads = [head for head in re.finditer(r"^(.*)" + re.escape(TRACEBACK), log, re.M)
             if not _NOT_THE_END.search(log[: head.start()])]  # fmt: skip
    if not heads or heads[-1][1].strip() not in ("", "Original"):
        return ""
    first = last = len(heads) - 1
    while first and _CAUSED.search(
        log[heads[first - 1].end() : heads[first].start()] + "\n" + heads[first][1] + "\n"
    ):
        first -= 1
    lines = log[heads[last].end() :].splitlines()
    ends = next((n for n, line in enumerate(lines[1:], 1) if line and not line[0].isspace()), len(lines) + 1)
    is_last = len(lines) - ends in range(_LAST_LINES + 1)
    chain = log[heads[first].start(1) :]
    return chain if is_last and not _OF_ANOTHER_PROCESS.search(chain) else ""
