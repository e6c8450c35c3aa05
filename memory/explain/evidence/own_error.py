"""The run's own last error: which kind of error ended the program, by the last lines that it wrote.

A Python program that ends by an exception writes it last. An error that was caught before, and text that the
program printed of its data, is not the error that ended it. Only the last exception and its causes are
searched;
the end of the log where there is no traceback.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from memory.explain.evidence.log_patterns import ERRORS, line_of
from memory.explain.evidence.run_facts import RunFacts

TRACEBACK = "Traceback (most recent call last)"
_CAUSED = ("direct cause of the following exception", "another exception occurred", "Original Traceback")
_NOT_THE_END = ("Exception ignored in", "Exception in thread", "--- Logging error ---")
_LAST_LINES = 30
"""Exit handlers, the supervisor and srun write at most this many lines after the last traceback."""
_END_LINES = 120
"""Lines at the end of a log without a traceback that are searched."""
_OF_ANOTHER_PROCESS = re.compile(
    r"ChildFailedError|Process(?:Raised|Exited)Exception|BrokenProcessPool|RemoteTraceback|RayTaskError|NCCL|[Gg]loo"
    r"|Dist(?:Backend|Network|Store)Error|Connection\w*(?: reset| closed|Error)|Broken ?[Pp]ipe|EOFError"
    r"|KilledWorker"
    r"|WorkerCrashed|CalledProcessError|killed by|exited unexpectedly|[Tt]ime(?:d )?out|KeyboardInterrupt"
)
"""Raised because another process of the run died: the cause is further up."""
_OF_VALUES = re.compile(
    r"(?:^|\.)(?:Value|Type|Key|Index|Lookup|Assertion|Attribute|Name|Syntax|JSONDecode|Unicode\w*|Validation)Error$"
)
"""Never raised because a resource was short."""
_CONTINUED = re.compile(
    r"\b(?:finished|completed?(?! stack trace)|succe(?:ss\w*|eded)|all done|exit(?:ed with)?(?: code)? 0"
    r"|reducing|retrying|skipp\w+|falling back|halving|trying again|recover\w+)\b",
    re.I,
)
"""The program went on after the error."""
_PINNED = re.compile(r"\bpin_memory\b|\bcudaHostAlloc\b|\bcudaMallocHost\b|\bpinned\b")
_A_FILE = re.compile(r": ['\"]?[^'\"\s]*/|No space left on device: ['\"]|/\S+: No space left|quota")


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
    """`likely` if another error passes it on, `unknown` if it is quoted or the log goes on after it."""
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
    found: tuple[tuple[int, int], str, re.Match[str]] | None = None
    for pattern in ERRORS:
        for match in pattern.regex.finditer(text):
            is_value = of_values and pattern.kind != "gpu_cache" and match.start() >= text.rfind(exception)
            rank = (match.start(), -len(match[0]))
            if not is_value and (found is None or _beats(pattern.kind, found[1], rank, found[0])):
                found = (rank, pattern.kind, match)
    if found is None:
        return OwnError("exception" if exception else "", exception, text, exception)
    _, kind, match = found
    line, after = line_of(match), match.string[match.end() :].partition("\n")[2]
    is_quoted = match.string[: match.start()].endswith(("'", '"', "`")) and "terminate called" not in line
    is_alone = not (facts.outcome or facts.status or facts.slurm)
    long_after = after.count("\n") > _LAST_LINES and TRACEBACK not in after
    went_on = is_alone and (
        long_after or _CONTINUED.search(f"{line * bool(after.strip())}\n{after}") is not None
    )
    begin = match.string.rfind("\n", 0, match.start()) + 1
    passed_on = is_exception and match.start() > begin and re.match(r"[\w.]*(?:Error|Exception)\b", match[0])
    if "CUDA error: out of memory" in match[0] and _PINNED.search(
        text[: match.start()].rpartition('File "')[2]
    ):
        kind = "pinned_memory"
    return OwnError(
        kind, line, text, exception,
        confidence="unknown" if is_quoted or went_on else "likely" if passed_on else "certain",
        pid=next((int(value) for value in match.groupdict().values() if value and value.isdigit()), 0),
        names_file=_A_FILE.search(line) is not None,
    )  # fmt: skip


def last_exception(text: str) -> str:
    """First line of the exception that ended the last traceback; empty without one."""
    at = text.rfind(TRACEBACK)
    lines = [line for line in text[at:].splitlines()[1:] if line and not line[0].isspace()] if at >= 0 else []
    return lines[0][:300] if lines else ""


_WEAK = ("bus_error", "disk_full", "no_thread", "worker_died")


def _beats(kind: str, other: str, rank: tuple[int, int], than: tuple[int, int]) -> bool:
    """The special before the general on one line, else the later one."""
    if (kind in _WEAK) != (other in _WEAK):
        return other in _WEAK
    special = ("maps_used_up", "shm_full", "gpu_message")
    if (kind in special) != (other in special):
        return kind in special
    return rank > than


def _last_words(facts: RunFacts) -> tuple[str, bool]:
    """Text that ended the run, and whether it is an exception with its causes."""
    if facts.state == "failed" and facts.reason:
        for log in facts.logs.values():
            chain = _last_chain(log)
            if chain and facts.reason.partition(":")[0] in chain:
                return f"{chain}\n{facts.reason}", True
        return facts.reason, not _OF_ANOTHER_PROCESS.search(facts.reason)
    logs = (facts.logs.get("stderr.txt", ""), facts.added_log, *facts.logs.values())
    log = next((log for log in logs if TRACEBACK in log), "")
    chain = _last_chain(log)
    if chain:
        return chain, True
    return "\n".join(facts.log.splitlines()[-_END_LINES:]) + "\n", False


def _last_chain(log: str) -> str:
    """The last traceback back to its first cause; empty if it did not end the run, or passes on a death."""
    at = log.rfind(TRACEBACK)
    while at >= 0:
        before = log[max(0, at - 300) : at].splitlines()[-2:]
        if not any(words in line for line in before for words in _NOT_THE_END):
            break
        at = log.rfind(TRACEBACK, 0, at)
    begin = at
    while begin > 0:
        before_at = log.rfind(TRACEBACK, 0, begin)
        if before_at < 0 or not any(words in log[before_at:begin][-400:] for words in _CAUSED):
            break
        begin = before_at
    lines = log[at:].splitlines()[1:] if at >= 0 else []
    ends = next((n for n, line in enumerate(lines) if line and not line[0].isspace()), None)
    if ends is None or len(lines) - ends > _LAST_LINES or _OF_ANOTHER_PROCESS.search(log[begin:]):
        return ""
    label = log[log.rfind("\n", 0, at) + 1 : at].strip()
    return "" if label and label != "Original" else log[begin:]
