"""What a line of a log is worth: who can have written it, and whether what else is known allows it.

A log is what anybody printed: samples of a corpus, an error that was caught, the words of an earlier run. So
a counter of the kernel, an exit status and accounting go before it, and a line counts only where it stands as
its author writes it, tells of this very run, and of its end. `certain`, `likely`, `possible`: no finding that
rests on the line is surer than that. None: it says nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from experiment_utils.json_values import mapping, mappings, text, unsigned
from memory.explain.facts import Facts
from memory.explain.finding import CONFIDENCES
from memory.explain.own_step import tells_of_another_step
from memory.explain.wordings import KERNEL_OOM, TRACEBACK, WORKER_KILLED, line_of

_LABEL = r"(?:\[[^\]\n]{1,60}\][ :]*|<\d{1,3}>|[\w.+-]{1,40}[:|] ?|[-\d:.,TZ+ ]{4,40} )"
_OF_SLURM = re.compile(
    rf"^{_LABEL}{{0,3}}(?:(?:slurmstepd|slurmd|srun)[^:\n]{{0,30}}: ?)?(?:error: )?(?:\*\*\* )?$"
)
_OF_KERNEL = re.compile(
    rf"^(?:{_LABEL}{{0,3}}|kern *: *\w+ *: *(?:\[[^\]\n]{{1,40}}\] ?)?"
    r"|(?:[A-Z][a-z]{2} [ \d]\d [\d:]{8}|\S+) \S+ kernel: ?(?:\[[^\]\n]{1,40}\] ?)?)$"
)
"""dmesg, dmesg -x, journalctl and syslog."""
_JOB = re.compile(r"(?:StepId=|JobId=|\b(?:STEP|JOB|step|Step|Job|job) )(\d{1,12}(?:_\d{1,9})?)")
_TELLS_OF_ANOTHER = re.compile(
    r"ChildFailedError|Process(?:Raised|Exited)Exception|BrokenProcessPool|RemoteTraceback|RayTaskError|NCCL|[Gg]loo"
    r"|Dist(?:Backend|Network|Store)Error|Connection\w*(?: reset| closed|Error)|Broken ?[Pp]ipe|EOFError"
    r"|WorkerCrashed|CalledProcessError|killed by|exited unexpectedly|[Tt]ime(?:d )?out|KeyboardInterrupt"
)
"""What a process raises because another one died."""
_CAUSED = ("direct cause of the following exception", "another exception occurred", "Original Traceback")
_NOT_OF_THE_END = ("Exception ignored in", "Exception in thread", "--- Logging error ---")
_MOST_AFTER = 30
"""Lines that exit handlers, the supervisor and srun may write after the last traceback."""
_QUOTES = ("'", '"', "`")
_RAISED = re.compile(r"^(?P<name>[A-Za-z_][\w.]*)(?::|$)")
"""The first line of what an exception says of itself."""
_OF_VALUES = re.compile(
    r"(?:^|\.)(?:Value|Type|Key|Index|Lookup|Assertion|Attribute|Name|Syntax|JSONDecode|Unicode\w*|Validation)Error$"
)
"""Never raised because a resource was short: what memory they speak of is what the data say."""
_OF_CPP = re.compile(r"^terminate called after throwing an instance of '$")
_NAMES_ONE = re.compile(r"^[\w.]*(?:Error|Exception)\b")
_WENT_ON = re.compile(
    # not Hydra's last line: "Set the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace."
    r"\b(?:finished|completed?(?! stack trace)|succe(?:ss\w*|eded)|all done|exit(?:ed with)?(?: code)? 0)\b",
    re.IGNORECASE,
)
"""After an error: it was got over. Of a log alone, where no exit status says so."""
_GOT_OVER = re.compile(
    r"\b(?:reducing|retrying|skipp\w+|falling back|halving|trying again|recover\w+)\b", re.I
)
"""In the same line: by who caught it."""
_NO_EXCEPTION_ENDS_SO = ("SIGSEGV", "SIGILL", "SIGFPE", "SIGTRAP", "SIGSYS")


@dataclass(frozen=True)
class Said:
    """match, and the whole line around it. worth: the surest that a finding by it may be."""

    match: re.Match[str]
    line: str
    worth: str

    @property
    def words(self) -> str:
        """All that it was found in."""
        return self.match.string

    def at_most(self, confidence: str) -> str:
        """The weaker of the two."""
        return min(confidence, self.worth, key=CONFIDENCES.index)


def by_slurm(facts: Facts, pattern: re.Pattern[str]) -> Said | None:
    """The last line of a pattern that Slurm can have said of this run."""
    found = None
    for log, is_own in ((_own(facts), True), (facts.added_log, False)):
        for match in pattern.finditer(log):
            line = line_of(match)
            if tells_of_another_step(facts, line):
                continue
            begin = match.string.rfind("\n", 0, match.start()) + 1
            stands = _OF_SLURM.match(match.string[begin : match.start()]) is not None
            worth = _worth_of_slurm(facts, line, stands=stands, is_own=is_own)
            if worth and (found is None or CONFIDENCES.index(worth) >= CONFIDENCES.index(found.worth)):
                found = Said(match, line, worth)
    return found


def by_kernel(facts: Facts) -> Said | None:
    """The last line in which the kernel says that it killed a process of this run for memory.

    It writes into no program's output: there such a line is a quotation, unless it names one of our pids. A
    log of the machine tells of others' deaths too. In a container a process has another pid than the kernel
    says, and the same name.
    """
    pids, names = _pids(facts), _names(facts)
    someone_died = bool(facts.kills) or facts.signal == "SIGKILL" or facts.vanished
    found = None
    for log, is_own in ((_own(facts), True), (facts.added_log, False)):
        for match in KERNEL_OOM.finditer(log):
            begin = match.string.rfind("\n", 0, match.start()) + 1
            stands = _OF_KERNEL.match(match.string[begin : match.start()]) is not None
            if pids:
                is_ours = unsigned(int(match["pid"][:12])) in pids and (facts.kills != 0 or someone_died)
                is_like = not is_own and someone_died and (match["name"] or "") in names
                worth = "certain" if is_ours else "likely" if stands and is_like else None
            elif _ended_well(facts):
                worth = None
            else:
                worth = "certain" if stands else "possible"
            if worth:
                found = Said(match, line_of(match), worth)
    return found


def by_the_run(facts: Facts, pattern: re.Pattern[str]) -> Said | None:
    """The last line of a pattern that the run can have died with; hearsay is `possible`.

    A Python program that ends by an exception writes it last. What it had caught, told and got over before,
    and what it printed of its data, is no reason for its end.
    """
    if facts.has_ended_well or facts.is_running:
        return None
    found = None
    for found in pattern.finditer(facts.log):  # noqa: B007
        pass
    if found is None:
        return None
    words = _last_words(facts)
    is_hearsay, is_told_on = facts.signal in _NO_EXCEPTION_ENDS_SO, False
    if words is not None and not is_hearsay:
        found = next(iter(reversed(list(pattern.finditer(words)))), found)
        is_hearsay = found.string is not words or _is_quoted(found)
        is_told_on = not is_hearsay and _names_another(found)
    before = found.string[max(0, found.start() - 1) : found.start()]
    if words is None and before and before in _QUOTES and facts.signal is None:
        is_hearsay = True  # of a setting, of a test's name
    after = found.string[found.end() :].partition("\n")[2]
    if words is None and after.strip() and _GOT_OVER.search(line_of(found)):
        is_hearsay = True
    is_alone = not (facts.outcome or facts.status or facts.slurm)
    is_hearsay = is_hearsay or (is_alone and _went_on(facts.log.rpartition(found[0])[2]))
    worth = "possible" if is_hearsay else "likely" if is_told_on else "certain"
    return Said(found, line_of(found), worth)


def _went_on(after: str) -> bool:
    """By its own word, or since it wrote much more, and no other error."""
    wrote_more = after.count("\n") > _MOST_AFTER and TRACEBACK not in after
    return wrote_more or _WENT_ON.search(after) is not None


def _is_quoted(match: re.Match[str]) -> bool:
    """In a traceback: no word of the exception itself, but a line of source, or a value in its message."""
    words = match.string
    begin = words.rfind("\n", 0, match.start()) + 1
    above = words[:begin].splitlines()
    if words[begin : begin + 1].isspace() and above and above[-1].lstrip().startswith('File "'):
        return True
    if words[begin : match.start()].endswith(_QUOTES) and not _OF_CPP.search(words[begin : match.start()]):
        return True
    for line in (words[begin : match.end()], *reversed(above)):
        if (raised := _RAISED.match(line)) is not None:
            return _OF_VALUES.search(raised["name"]) is not None
        if line[:1].isspace() or line.startswith(TRACEBACK):
            break
    return False


def _names_another(match: re.Match[str]) -> bool:
    """One exception within the message of another: it may be passed on, or told of."""
    begin = match.string.rfind("\n", 0, match.start()) + 1
    return match.start() > begin and _NAMES_ONE.match(match[0]) is not None


def of_a_killed_worker(facts: Facts) -> bool:
    """Whether the run itself says that one of its processes was killed."""
    said = by_the_run(facts, WORKER_KILLED)
    if said is not None and said.worth == "certain":
        return True
    pids = _pids(facts)
    told = [match["pid"] or match["ours"] or match["launched"] for match in WORKER_KILLED.finditer(facts.log)]
    return any(pid and len(pid) < 12 and int(pid) in pids for pid in told)


def _worth_of_slurm(facts: Facts, line: str, *, stands: bool, is_own: bool) -> str | None:
    jobs, named = _jobs(facts), _JOB.search(line)
    if jobs and named:
        if named[1] not in jobs:
            return None
        return "certain" if stands else "possible" if not _ended_well(facts) else None
    if _ended_well(facts):
        return None
    # a supervisor notes Slurm's variables: where there are none, nothing that the run wrote is Slurm's
    outside = not jobs and _environment(facts) is not None and (is_own or facts.kills == 0)
    return "certain" if stands and not outside else "possible"


def _ended_well(facts: Facts) -> bool:
    """By its own word, and no counter speaks against it."""
    return facts.has_ended_well and not facts.kills


def _own(facts: Facts) -> str:
    return "\n".join(filter(None, facts.logs.values()))


def _environment(facts: Facts) -> dict[str, object] | None:
    """Slurm's variables as the supervisor found them; None where none looked."""
    for told in (facts.outcome, facts.ring_facts):
        if isinstance(told.get("environment"), dict):
            return mapping(told["environment"])
    return None


def _jobs(facts: Facts) -> set[str]:
    """Numbers under which Slurm may speak of this job."""
    told = facts.environment
    array, task = text(told.get("SLURM_ARRAY_JOB_ID")), text(told.get("SLURM_ARRAY_TASK_ID"))
    found = {text(told.get("SLURM_JOB_ID")), f"{array}_{task}" if array and task else "", array}
    if facts.slurm is not None:
        found |= {facts.slurm.job_id.partition(".")[0], *(job.row.job for job in facts.slurm.jobs)}
        found |= {job.row.raw for job in facts.slurm.jobs}  # of an array's task: its steps are called by it
        found |= {job.partition("+")[0] for job in found}
    return found - {""}


def _pids(facts: Facts) -> set[int]:
    """Of the run's processes, as far as they were seen."""
    told = [facts.outcome.get("pid"), facts.ring_facts.get("pid")]
    told += [mapping(facts.outcome.get("victim")).get("pid")]
    told += [child.get("pid") for child in mappings(facts.outcome.get("children_lost"))]
    told += [process.pid for sample in facts.samples for process in sample.tree]
    return {pid for value in told if (pid := unsigned(value))}


def _names(facts: Facts) -> set[str]:
    told = [text(child.get("name")) for child in mappings(facts.outcome.get("children_lost"))]
    told += [text(mapping(facts.outcome.get("victim")).get("name"))]
    told += [process.name for sample in facts.samples for process in sample.tree]
    return {name for name in told if name}


def _last_words(facts: Facts) -> str | None:
    """The traceback that it ended by, with those that led to it; None where it cannot be told apart."""
    if facts.state == "failed" and facts.reason:
        return None if _TELLS_OF_ANOTHER.search(facts.reason) else _with_chain(facts, facts.reason)
    if facts.signal is not None or (facts.exit_code is None and facts.outcome):
        return None
    # the interpreter writes to stderr, a harness into its own log
    logs = (facts.logs.get("stderr.txt", ""), facts.added_log, *facts.logs.values())
    log = next((log for log in logs if TRACEBACK in log), "")
    return _chain(log)


def _with_chain(facts: Facts, reason: str) -> str:
    """The run's own word, and the traceback beside it, where that tells of the same."""
    for log in facts.logs.values():
        chain = _chain(log)
        if chain is not None and reason.partition(":")[0] in chain:
            return f"{chain}\n{reason}"
    return reason


def _chain(log: str) -> str | None:
    """The last traceback, back to its first cause, to the end of the log."""
    at = begin = _last_of_end(log)
    if at < 0:
        return None
    while True:
        before = log.rfind(TRACEBACK, 0, begin)
        between = log[before:begin]
        if before < 0 or not any(words in between[-400:] for words in _CAUSED):
            break
        begin = before
    lines = log[at:].splitlines()[1:]
    ends = next((n for n, line in enumerate(lines) if line and not line[0].isspace()), None)
    if ends is None or len(lines) - ends > _MOST_AFTER or _TELLS_OF_ANOTHER.search(log[begin:]):
        return None
    label = log[log.rfind("\n", 0, at) + 1 : at].strip()
    return None if label and label != "Original" else log[begin:]


def _last_of_end(log: str) -> int:
    """Where the last traceback begins that may have ended the program."""
    at = log.rfind(TRACEBACK)
    while at >= 0:
        before = log[max(0, at - 300) : at].splitlines()[-2:]
        if not any(words in line for line in before for words in _NOT_OF_THE_END):
            return at
        at = log.rfind(TRACEBACK, 0, at)
    return -1
