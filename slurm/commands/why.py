"""`python -m slurm why RUN`: why a run waits, died or is slow, on one screen, and what to type."""

from __future__ import annotations

import argparse
import itertools
import json
import shlex
import shutil
import sys
import time
from dataclasses import replace
from pathlib import Path

from experiment_utils.errors import UserError
from experiment_utils.modules import COMMAND
from experiment_utils.quantities import format_duration, format_limit
from experiment_utils.typed_here import as_typed_here, wrap
from memory.explain import Advice, Explanation
from memory.explain.verdict.advice import OF_SBATCH
from memory.record.process_stacks import ask_all
from memory.show.find_live import find_live
from slurm.arguments import find_run, find_task, find_token_jobs, set_of
from slurm.commands.status_table import Next, efficiency_lines, pace_lines, whole_duration
from slurm.records.submissions import SLURM, run_folders, typed_study
from slurm.status.attempts import read_attempts
from slurm.status.last_words import job_files, tail
from slurm.status.slurm_answers import WITHOUT_END_S, ask_in_unix_time
from slurm.status.study_status import Look, look_at, run_states
from slurm.status.waiting_reasons import reason_of
from slurm.submit.cancel_jobs import end_together
from training.run.early_stopping import says_time_is_over

EXAMPLES = """\
examples:
  python -m slurm why 1a2b3c4d                  the beginning of its identity, or its path
  python -m slurm why 4242_3                    a job id
  python -m slurm why 1a2b3c4d --json           all of the evidence
  python -m slurm why Datasets/huge             a token set: the task to look at first"""
_EVIDENCE, _LAST_ATTEMPTS, _ADVICE = 5, 2, 3
_STACK_LINES, _LOG_LINES, _STARTS = 14, 8, 4
_SRUN_S = 20.0


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command and its options."""
    parser = subparsers.add_parser(
        "why",
        help="why a run waits, died or is slow; what to change",
        description="Why a run waits, died or is slow, on one screen, and what to change.",
        epilog=EXAMPLES,
    )
    parser.add_argument("given", metavar="RUN", help="path, name, beginning of an identity, or job id")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print it.

    Raises:
        UserError: the run does not exist.
    """
    task = look_at_task(options.given)
    look = task or look_at(find_run(options.given))
    explained, step = _explained(look), _next(look, is_task=task is not None)
    facts = {
        "queue": _queue(look),
        "slurm": _rows(look),
        "to_change": _to_change(look),
        "progress": _progress(look),
        "stack": _stack(look) if look.entry.state == "stalled" else [],
        "words": _words(look) if look.entry.state in ("never_started", "failed", "node_failed") else [],
        "attempts": [one.line(look.now_s) for one in read_attempts(look.entry.folder)],
    }
    if options.json:
        plain = {"explained": explained.to_json() if explained else None, "next": step.command}
        print(json.dumps(look.entry.to_json() | facts | plain, indent=2, ensure_ascii=False))
        return 0
    size = shutil.get_terminal_size((110, 24))
    height = size.lines - 1 if sys.stdout.isatty() else None
    print("\n".join(_screen(look, explained, facts, step, size.columns, height)))
    return 0


def _screen(
    look: Look, explained: Explanation | None, facts: dict[str, list[str]], step: Next, columns: int,
    height: int | None,
) -> list[str]:  # fmt: skip
    """Lines: what happened, the evidence, what to type; the longest sections are cut to fit the height."""
    entry, columns = look.entry, min(120, columns)
    head = [f"{entry.state}: {entry.folder}", *_wrapped(entry.reason or "it has met its budget", columns)]
    head += [line for text in efficiency_lines([entry]) for line in _wrapped(text, columns)]
    source, evidence, change = f"known from {entry.source}", list[str](), facts["to_change"]
    if explained is not None:
        head += _wrapped(explained.sentence.partition(". ")[2], columns)
        verdict = f"memory explain: {explained.verdict}, cause {explained.cause}"
        source = f"known from {verdict}" if entry.source == "memory explain" else f"{source}; {verdict}"
        evidence = [line for line in explained.evidence if "(sacct)" not in line][:_EVIDENCE]
        typed = [(f"{one.override}   " if one.override else "") + one.text for one in explained.advice]
        change = [*typed[:_ADVICE], *change]
    head += _wrapped("; ".join([source, *(note.partition(": ")[0] for note in entry.notes)]), columns)
    rows = [f"{row} (sacct)" for row in facts["slurm"]]
    evidence += [*facts["queue"], *rows, *facts["progress"], *facts["attempts"][-_LAST_ATTEMPTS:]]
    last = ["", *(_wrapped(step.line(), columns, "") if height else [step.line()])]
    titles = {"Evidence": evidence, "What it is doing": facts["stack"], "Its output": facts["words"]}
    sections = {
        title: [_wrapped(item, columns) for item in items]
        for title, items in (titles | {"What to change": change}).items()
    }
    while True:
        body = [
            line
            for title, items in sections.items()
            if items
            for line in ("", title, *itertools.chain(*items))
        ]
        screen = [*head, *body, *last]
        used = sum(len(as_typed_here(line)) // (columns + 1) + 1 for line in screen)
        longest = max(sections.values(), key=lambda items: sum(map(len, items)))
        if height is None or used <= height or len(longest) <= 1:
            return screen
        del longest[1 if longest is sections["Its output"] else -1]  # the first names the file


def _wrapped(line: str, columns: int, indent: str = "  ") -> list[str]:
    indent += " " * (len(line) - len(line.lstrip()))
    return wrap(line.strip(), columns, initial_indent=indent, subsequent_indent=indent + "  ")


def _explained(look: Look) -> Explanation | None:
    """The verdict of `memory explain`, if it says more than the other records; its advice as our keys."""
    found = look.explained if look.has_died else None
    if found is None or found.is_running:  # the files of a run that was killed with its supervisor say so
        return None
    is_noted = look.entry.source == "starts.json"  # its job saw its end
    says_more = look.entry.state == "oom" or (look.entry.state == "failed" and not is_noted)
    if not says_more and found.verdict in ("failed", "healthy", "unknown", "timeout"):
        return None
    submission = look.history.evidence.submission
    if submission is None or submission.command.startswith("sbatch"):
        return found
    array = look.history.evidence.array
    is_shared = array is not None and array.is_shared
    return replace(found, advice=tuple(_as_key(advice, is_shared) for advice in found.advice))


def _as_key(advice: Advice, is_shared: bool) -> Advice:
    """Advice on an option of sbatch, as a key of the configuration."""
    name, _, value = (advice.override or "").partition("=")
    if not name.startswith("--"):
        return advice
    keys = {"--mem": f"slurm.mem={value}", "--time": f"slurm.time={value}", "--requeue": "slurm.requeue=true"}
    override: str | None = keys.get(name, f"'slurm.options=[{advice.override}]'")
    if name == "--mem" and is_shared:  # what one run needs is less than what its job has
        override = None
    return replace(advice, text=advice.text.partition(OF_SBATCH)[0], override=override)


def _queue(look: Look) -> list[str]:
    row, entry = look.history.last.queued, look.entry
    waits = entry.state in ("queued", "blocked") and look.history.job_state == "queued"
    if row is None or not waits:  # a run can wait for its turn in a job that runs
        return []
    since = (
        f", waits for {format_duration(max(0.0, look.now_s - row.submitted_s))}" if row.submitted_s else ""
    )
    lines = [f"job {row.job} in partition {row.partition}{f', {row.reason}' if row.reason else ''}{since}"]
    command = ["squeue", "--noheader", f"--partition={row.partition}", "--states=PENDING", "--format=%Q"]
    answer = ask_in_unix_time(command, 10.0) if row.priority is not None else None
    if answer is not None and answer.code == 0:
        ahead = sum(int(line) > (row.priority or 0) for line in answer.out.split() if line.isdigit())
        lines.append(f"{ahead} of the jobs that wait in {row.partition} have a higher priority")
    start_s = entry.expected_start_s
    if start_s and 0 < start_s - look.now_s < WITHOUT_END_S:
        at = time.strftime("%Y-%m-%d %H:%M", time.localtime(start_s))
        lines.append(f"Slurm expects it to start at {at}; other jobs can change that")
    else:
        lines.append("Slurm does not know yet when it can start")
    return lines


def _rows(look: Look) -> list[str]:
    """Accounting rows of the newest starts of its job, and of steps that ended in another way."""
    found = []
    for start in [one.accounted for one in look.history.starts if one.accounted][-_STARTS:]:
        ended_itself = start.row.state in ("FAILED", "COMPLETED")  # else all of its steps end as it does
        for row in start.rows:
            is_other = ended_itself and row.state not in (start.row.state, "COMPLETED")
            if row.step is None or row.was_out_of_memory or is_other:
                lasted = f", {format_duration(row.elapsed_s)}" if row.elapsed_s else ""
                found.append(f"{row}{f' on {row.nodes}' if row.nodes else ''}{lasted}")
    return found


def _to_change(look: Look) -> list[str]:
    entry, progress = look.entry, look.entry.progress
    if entry.state in ("queued", "blocked") and entry.slurm_word:
        job, change = entry.job or "JOB", reason_of(entry.slurm_reason).change
        return [change.replace("{job}", job).replace("{array}", job.partition("_")[0])] if change else []
    if entry.slurm_word == "SUSPENDED" and entry.state == "running":
        return [f"scontrol resume {entry.job}, or ask who suspended it"]
    if says_time_is_over(entry.reason):
        return ["a larger training.max_time, or none: as it is, it would end immediately"]
    if entry.state == "timeout" and progress.eta_s:
        return [f"a higher slurm.time: at its pace it needs {whole_duration(progress.eta_s)} more"]
    return []


def _progress(look: Look) -> list[str]:
    entry, progress = look.entry, look.entry.progress
    if progress.step is None:
        return []
    lines = [f"step {progress.step:,}" + (f" of {progress.total_steps:,}" if progress.total_steps else "")]
    if entry.eta_s is not None:
        lines[0] += f"; about {whole_duration(entry.eta_s)} to go"
    if progress.tokens_per_s is not None:
        others = run_states(run_folders(entry.folder.parent), answers=look.answers, now_s=look.now_s)
        lines += pace_lines(entry, others)
    found = look.explained if entry.state in ("running", "done", "timeout") else None
    if found is not None and found.cause in ("thrash", "throttled", "leak"):
        lines.append(found.sentence)
    return lines


def _stack(look: Look) -> list[str]:
    """Python stacks: on this host by a signal to the process, in a job by a step next to it."""
    entry, row, live = look.entry, look.history.last.queued, find_live(look.entry.folder)
    folder = str(entry.folder.absolute())
    there = f"on {entry.host or 'its node'}: python -m memory stacks {shlex.quote(folder)}"
    if live is not None and live.is_here:
        asked = ask_all(live.pid, folder, live.attempt)
        text = next((one.stacks or one.why or "" for one in asked), "")
    elif row is not None and row.raw:
        srun = ["srun", f"--jobid={row.raw}", "--overlap", "--nodes=1", "--ntasks=1", "--quiet"]
        program = [sys.executable, *COMMAND]  # -m can find another `memory` where it starts
        answer = ask_in_unix_time([*srun, *program, "memory", "stacks", folder], _SRUN_S)
        if answer.code != 0:
            words = answer.error.strip().splitlines() or ["srun did not answer"]
            return [f"it cannot be asked: {words[-1]}", there]
        text = answer.out
    else:
        return [there]
    return [line for line in text.splitlines() if line.strip()][:_STACK_LINES]


def _words(look: Look) -> list[str]:
    """The end of its log; if its last start did not come to that, of its job's stderr."""
    known = look.history.evidence
    own = known.folder / "log.txt"
    has_written = (known.state or own.exists()) and look.entry.rule != "later_start_failed"
    for path in [own] if has_written else job_files(known):
        lines = [line.rstrip() for line in tail(path).splitlines() if line.strip()]
        if lines:
            return [f"{path}:", *(f"  {line}" for line in lines[-_LOG_LINES:])]
    return []


def _more(look: Look) -> str:
    """Options of resubmit with which the run does not end in the same way."""
    explained, row = _explained(look) or look.explained, look.history.job_row
    array = look.history.evidence.array
    if look.entry.state == "timeout":
        name, twice = "time", format_limit(2 * row.timelimit_s) if row is not None and row.timelimit_s else ""
    elif look.entry.state == "oom" or (explained is not None and explained.cause == "rss_polling"):
        for advice in explained.advice if explained is not None else ():
            if (advice.override or "").startswith(("--mem=", "slurm.mem=")):
                return f" --mem {(advice.override or '').partition('=')[2]}"
        name, twice = (
            "mem",
            f"{row.requested_bytes >> 19}M" if row is not None and row.requested_bytes else "",
        )
    else:
        return ""
    if array is not None and name in array.options:  # else x2 has nothing to multiply
        twice = "x2"
    return f" --{name} {twice}" if twice else ""


def _next(look: Look, *, is_task: bool) -> Next:
    entry, known = look.entry, look.history.evidence
    run, parent = shlex.quote(str(entry.folder)), entry.folder.parent
    study = shlex.quote(str(set_of(parent) if is_task else parent))
    if entry.state in ("done", "running", "queued"):
        if is_task:
            return Next(f"python -m slurm status {study}", "all tasks of the set")
        if entry.state == "done":
            return Next(f"python -m analysis {typed_study(parent)}", "what its study came to")
        return Next(f"python -m slurm logs {run} -f", "what it writes, as it comes")
    if entry.state in ("stalled", "blocked"):
        together: list[str] = []
        if known.submission is not None and known.array is not None and known.place is not None:
            together = end_together(known.submission, known.array, known.place.task)
        names = "" if is_task else f" {shlex.join(together or [entry.name])}"
        return Next(f"python -m slurm cancel {study}{names}", f"then: python -m slurm resubmit {study}")
    if entry.state == "unreadable":
        return Next(f"ls -la {run}", "owners and permissions")
    if says_time_is_over(entry.reason):
        more = f" {entry.name} training.max_time=null"
    else:
        more = _more(look) if entry.launcher == SLURM else ""
    only = "" if is_task else f" --only {entry.state}"
    purpose = "it resumes"
    if not is_task and entry.launcher != SLURM and _has_other_code(entry.folder):
        more, purpose = f"{more} code=any", "it resumes, with changed code; --again begins again"
    return Next(f"python -m slurm resubmit {study}{only}{more}", purpose)


def _has_other_code(run: Path) -> bool:
    """Whether the code has changed since its last attempt, so that it does not resume as it is."""
    from training.attempt.begin import CodeChanged, check_code

    try:
        check_code(run, "same", quiet=True)
    except CodeChanged:
        return True
    except UserError:  # resubmit reports it
        return False
    return False


def look_at_task(given: str) -> Look | None:
    """A task of a token set, or the task of a set to look at first; None if it is neither."""
    task, study = find_task(given), find_token_jobs(given)
    study = study if task is None else task.parent
    if study is None:
        return None
    from slurm.tokens.task_status import look_at_token_task

    return look_at_token_task(study, None if task is None else task.name)
