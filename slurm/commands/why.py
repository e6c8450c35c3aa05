"""`python -m slurm why RUN`: one screen: why it waits, died or is slow, and what to type."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import sys
import time
from contextlib import suppress
from dataclasses import replace
from typing import Any

from experiment_utils.modules import COMMAND
from experiment_utils.quantities import format_duration, format_limit, parse_size
from experiment_utils.typed_here import wrap
from memory.explain import Advice, Explanation
from memory.explain.verdict.advice import OF_SBATCH
from memory.explain.verdict.text import as_text
from memory.record.process_stacks import ask_all
from memory.show.find_live import find_live
from slurm.arguments import find_run, find_task, find_token_jobs, set_of
from slurm.cluster.resources import task_bytes
from slurm.records.submissions import SLURM, run_folders
from slurm.status.attempts import read_attempts
from slurm.status.last_words import job_files, tail
from slurm.status.slurm_answers import WITHOUT_END_S, ask_in_unix_time
from slurm.status.status_table import Next, pace_lines, whole_duration
from slurm.status.study_status import Look, look_at, run_states
from slurm.status.waiting_reasons import reason_of
from slurm.submit.cancel_jobs import end_together
from training.attempt.run_files import read_config
from training.run.early_stopping import says_time_is_over

EXAMPLES = """\
examples:
  python -m slurm why runs/lr_sweep/32d-lr0.003-seed1-1a2b3c4d
  python -m slurm why 1a2b3c4d                  the beginning of its identity
  python -m slurm why 1a2b3c4d --json
  python -m slurm why Datasets/huge             of a token set the task that failed, or the one that waits

Of a run that waits: Slurm's reason, its place in the queue, when it may start. Of one that died: what
`python -m memory explain` says, with what Slurm's accounting has. Of one that runs: its speed against the
others of its study; of a stalled one its Python stacks."""
_AGAIN = "type the same command again"
_STACK_LINES = 14
_WORDS_LINES = 8
_STARTS = 4
_SRUN_S = 20.0
_MEM, _KEY = "--mem=", "slurm.mem="
"""So the advice of memory, which knows sbatch alone, begins; and what stands for it here."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """What a user may type."""
    parser = subparsers.add_parser(
        "why",
        help="why a run waits, died or is slow; what to change",
        description="Why a run waits, died or is slow, on one screen, and what to change.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("given", metavar="RUN", help="path, name below runs_dir, or beginning of an identity")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Tell.

    Raises:
        UserError: there is no such run.
    """
    tokens = look_at_task(options.given)
    look = tokens or look_at(find_run(options.given))
    parts = _parts(look)
    step = _next(look) if tokens is None else _next_of_task(look)
    if options.json:
        explained = _explained(look)
        plain: dict[str, Any] = {
            **look.entry.to_json(),
            **parts,
            "explained": explained.to_json() if explained else None,
            "next": step.command,
        }
        print(json.dumps(plain, indent=2, ensure_ascii=False))
        return 0
    columns = min(120, shutil.get_terminal_size((110, 24)).columns)
    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    entry = look.entry
    print(f"{entry.state}: {entry.folder}")
    explained = _explained(look)
    if explained is None or not (entry.reason or "").startswith(explained.sentence.partition(". ")[0]):
        print("\n".join(_wrapped(entry.reason or "it has met its budget", columns)))
    print(f"  known from {entry.source}" + "".join(f"; {note}" for note in entry.notes))
    if explained is not None:
        print("\n" + as_text(explained, columns=columns, colour=colour))
    for title, lines in parts.items():
        if lines:
            print(f"\n{_TITLES[title]}")
            for line in lines:
                print("\n".join(_wrapped(line, columns)))
    print(f"\nnext: {step.command}   ({step.why})")
    return 0


_TITLES = {
    "queue": "In the queue", "slurm": "What Slurm has", "to_change": "What to change",
    "progress": "How far and how fast",
    "stack": "What it is doing", "words": "The last words of its job", "attempts": "Attempts",
}  # fmt: skip


def _explained(look: Look) -> Explanation | None:
    """Memory's word, where it says more than Slurm or the run itself, with what a user of ours types."""
    found = look.explained if look.has_died else None
    if found is not None and found.is_running:
        return None  # the files of a run that was killed with all beside it say so
    submission = look.history.evidence.submission
    if found is not None and submission is not None and not submission.command.startswith("sbatch"):
        beside = _beside(look)
        found = replace(found, advice=tuple(_for_a_launcher(advice, beside) for advice in found.advice))
    is_known = look.entry.source == "starts.json"  # its job saw its end
    if found is None or look.entry.state == "oom" or (look.entry.state == "failed" and not is_known):
        return found
    return None if found.verdict in ("failed", "healthy", "unknown", "timeout") else found


def _for_a_launcher(advice: Advice, beside: int) -> Advice:
    """What is advised to type with sbatch, as our key. beside: runs that share the memory: what memory says
    one of them needs is not what their job asks for.
    """
    if advice.override is None or not advice.override.startswith("--"):
        return advice
    if not advice.override.startswith(_MEM):
        name, _, value = advice.override.removeprefix("--").partition("=")
        key = {"time": f"slurm.time={value}", "requeue": "slurm.requeue=true"}.get(name)
        return replace(advice, override=key or f"'slurm.options=[{advice.override}]'")
    amount = advice.override.removeprefix(_MEM)
    text, of_one, _ = advice.text.partition(OF_SBATCH)
    if of_one and beside > 1:
        amount = f"{-(-task_bytes(parse_size(amount), beside) // (1 << 20))}M"
        text += f"; so much for each of {beside} runs side by side (slurm.pack)"
    return replace(advice, text=text, override=f"{_KEY}{amount}")


def _beside(look: Look) -> int:
    """Runs that share the memory of a job when those that ended so are submitted again: what goes on, or is
    done, is not among them.
    """
    known = look.history.evidence
    if known.array is None or known.place is None or known.array.how != "pack":
        return 1
    pack = len(known.array.tasks[known.place.task])
    with suppress(Exception):
        pack = int(read_config(known.folder)["slurm"]["pack"])
    every = run_states(run_folders(known.folder.parent), answers=look.answers, now_s=look.now_s)
    return max(1, min(pack, sum(one.state == look.entry.state for one in every)))


def _parts(look: Look) -> dict[str, list[str]]:
    entry = look.entry
    waits = entry.state in ("queued", "blocked")
    return {
        "queue": _queue(look) if waits else [],
        "slurm": _rows(look),
        "to_change": _to_change(look),
        "progress": _progress(look),
        "stack": _stack(look) if entry.state == "stalled" else [],
        "words": _words(look) if entry.state in ("never_started", "failed", "node_failed") else [],
        "attempts": [one.line(look.now_s) for one in read_attempts(entry.folder)],
    }


def _queue(look: Look) -> list[str]:
    row, entry = look.history.last.queued, look.entry
    if row is None or look.history.job_state != "queued":  # a run may wait for its turn in a job that runs
        return []
    lines = [f"job {row.job} in partition {row.partition}" + (f", {row.reason}" if row.reason else "")]
    if row.submitted_s:
        lines.append(f"it waits since {format_duration(max(0.0, look.now_s - row.submitted_s))}")
    ahead = _ahead(row.partition, row.priority)
    if ahead is not None:
        lines.append(f"{ahead or 'none'} of the jobs that wait in {row.partition} have a higher priority")
    left_s = entry.expected_start_s - look.now_s if entry.expected_start_s else 0.0
    if left_s >= WITHOUT_END_S:
        lines.append("Slurm cannot tell when it may start: jobs before it have no time limit")
    elif entry.expected_start_s and left_s > 0:
        at = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.expected_start_s))
        lines.append(f"Slurm expects it to start at {at}; that moves as other jobs come and end early")
    else:
        lines.append("Slurm has not worked out when it may start")
    return lines


def _rows(look: Look) -> list[str]:
    """Of each start of its job the row, and those of steps that tell something else."""
    found = []
    for start in [one.accounted for one in look.history.starts if one.accounted][-_STARTS:]:
        ended_itself = start.row.state in ("FAILED", "COMPLETED")  # else all of its steps end as it does
        for row in start.rows:
            tells_more = ended_itself and row.state not in (start.row.state, "COMPLETED")
            if row.step is None or row.was_out_of_memory or tells_more:
                lasted = f", {format_duration(row.elapsed_s)}" if row.elapsed_s else ""
                # accounting keeps why a job last waited, also of one that has run to its end
                reason = f", {row.reason}" if row.reason and row.state == "PENDING" else ""
                found.append(f"{row}{f' on {row.nodes}' if row.nodes else ''}{lasted}{reason}")
    return found


def _ahead(partition: str, priority: int | None) -> int | None:
    """How many jobs that wait in a partition go first. None where Slurm does not say."""
    if priority is None:
        return None
    command = ["squeue", "--noheader", f"--partition={partition}", "--states=PENDING", "--format=%Q"]
    answer = ask_in_unix_time(command, 10.0)
    if answer.code != 0:
        return None
    return sum(int(line) > priority for line in answer.out.split() if line.isdigit())


def _to_change(look: Look) -> list[str]:
    entry, progress = look.entry, look.entry.progress
    if entry.state in ("queued", "blocked") and entry.slurm_word:
        change = reason_of(entry.slurm_reason).change
        job = entry.job or "JOB"
        return [change.replace("{job}", job).replace("{array}", job.partition("_")[0])] if change else []
    if entry.slurm_word == "SUSPENDED" and entry.state == "running":
        return [
            f"scontrol resume {entry.job}, or ask whoever suspended it; jobs before it may have its place"
        ]
    if says_time_is_over(entry.reason):
        return ["a larger training.max_time, or none: as it is, it would end at once"]
    if entry.state == "timeout" and progress.eta_s:
        needs = whole_duration(progress.eta_s)
        more = "a higher slurm.time, or submit it again: it goes on from its last checkpoint"
        return [f"at its pace it needs {needs} more: {more}"]
    told = _explained(look)
    if told is not None and any(_AGAIN in advice.text for advice in told.advice):
        return []  # memory has said so already
    if entry.state in ("preempted", "node_failed", "cancelled"):
        return ["submit it again: it goes on from its last checkpoint"]
    return []


def _progress(look: Look) -> list[str]:
    entry, progress = look.entry, look.entry.progress
    if progress.step is None:
        return []
    lines = [f"step {progress.step:,}" + (f" of {progress.total_steps:,}" if progress.total_steps else "")]
    if entry.eta_s is not None:
        lines[0] += f"; about {whole_duration(entry.eta_s)} to go"
    others = run_states(run_folders(entry.folder.parent), answers=look.answers, now_s=look.now_s)
    lines += pace_lines(entry, others)
    found = look.explained if entry.state in ("running", "done", "timeout") else None
    if found is not None and found.cause in ("thrash", "throttled", "leak"):
        lines.append(found.sentence)
    return lines


def _stack(look: Look) -> list[str]:
    """Asked of its process: on this host by a signal, in a job by a step beside it."""
    folder, row = look.entry.folder, look.history.last.queued
    live = find_live(folder)
    if live is not None and live.is_here:
        asked = ask_all(live.pid, str(folder.absolute()), live.attempt)
        text = next((one.stacks or one.why or "" for one in asked), "")
    elif row is not None and row.raw:
        beside = ["srun", f"--jobid={row.raw}", "--overlap", "--nodes=1", "--ntasks=1", "--quiet"]
        program = [sys.executable, *COMMAND]  # -m can find another `memory` where it starts
        command = [*beside, *program, "memory", "stacks", str(folder.absolute())]
        answer = ask_in_unix_time(command, _SRUN_S)
        if answer.code != 0:
            words = answer.error.strip().splitlines() or ["srun did not answer"]
            return [f"it cannot be asked: {words[-1]}", _ask_there(look)]
        text = answer.out
    else:
        return [_ask_there(look)]
    return [line for line in text.splitlines() if line.strip()][:_STACK_LINES]


def _ask_there(look: Look) -> str:
    where = look.entry.host or "its node"
    return f"on {where}: python -m memory stacks {shlex.quote(str(look.entry.folder.absolute()))}"


def _words(look: Look) -> list[str]:
    """The end of what its job wrote to stderr; of a run that spoke in the last start of it, of its log."""
    known = look.history.evidence
    own = known.folder / "log.txt"
    spoke = (known.state or own.exists()) and look.entry.rule != "later_start_failed"
    paths = [own] if spoke else job_files(known)
    for path in paths:
        lines = [line.rstrip() for line in tail(path).splitlines() if line.strip()]
        if lines:
            return [f"{path}:", *(f"  {line}" for line in lines[-_WORDS_LINES:])]
    return []


def _more(look: Look) -> str:
    """For resubmit: what it asks Slurm for besides, that it does not end so again."""
    if look.entry.state == "timeout":
        return _more_time(look)
    explained = _explained(look)  # a poll's kill counts as a failure, and is one of memory
    was_polled = explained is not None and explained.cause == "rss_polling"
    return _more_memory(look) if look.entry.state == "oom" or was_polled else ""


def _more_memory(look: Look) -> str:
    """For resubmit: what memory's word advises, else twice of what was asked for, as far as that is known."""
    explained = _explained(look) or look.explained
    typed = [one.override for one in explained.advice if one.override] if explained is not None else []
    found = next((one for one in typed if one.startswith((_MEM, _KEY))), None)
    if found:
        return f" --mem {found.partition('=')[2]}"
    if "mem" in _asked(look):
        return " --mem x2"
    row = look.history.job_row
    return f" --mem {2 * row.requested_bytes >> 20}M" if row is not None and row.requested_bytes else ""


def _more_time(look: Look) -> str:
    """For resubmit: twice of what was asked for, or of what the job got that asked for none."""
    if "time" in _asked(look):
        return " --time x2"
    row = look.history.job_row
    return f" --time {format_limit(2 * row.timelimit_s)}" if row is not None and row.timelimit_s else ""


def _asked(look: Look) -> dict[str, Any]:
    """Options of sbatch of its submission; a plain script's own are not among them."""
    array = look.history.evidence.array
    return array.options if array is not None else {}


def _next(look: Look) -> Next:
    entry = look.entry
    run, study = shlex.quote(str(entry.folder)), shlex.quote(str(entry.folder.parent))
    logs = f"python -m slurm logs {run}"
    if entry.state == "done":
        return Next(f"python -m memory report {run}", "its memory, stage by stage")
    if entry.state in ("running", "queued"):
        return Next(f"{logs} -f", "what it writes, as it comes")
    if entry.state in ("stalled", "blocked"):
        cancel = shlex.join(["python", "-m", "slurm", "cancel", str(entry.folder.parent), *_with_it(look)])
        return Next(cancel, f"then: python -m slurm resubmit {study}")
    if says_time_is_over(entry.reason):
        more = f" {entry.name} training.max_time=null"
    elif entry.launcher == SLURM:
        more = _more(look)
    else:
        more = ""
    again = f"python -m slurm resubmit {study} --only {entry.state}{more}"
    return Next(again, f"goes on with what ended so; all it wrote: {logs}")


def _with_it(look: Look) -> list[str]:
    """Its name, with those of the runs that cannot but end with it."""
    known = look.history.evidence
    if known.submission is None or known.array is None or known.place is None:
        return [look.entry.name]
    return end_together(known.submission, known.array, known.place.task) or [look.entry.name]


def look_at_task(given: str) -> Look | None:
    """Of a task of a token set; of a set the task of which one wants to know first. None: it is none."""
    task, study = find_task(given), find_token_jobs(given)
    study = study if task is None else task.parent
    if study is None:
        return None
    from slurm.tokens.task_status import look_at_token_task

    return look_at_token_task(study, None if task is None else task.name)


def _next_of_task(look: Look) -> Next:
    entry, tokens = look.entry, shlex.quote(str(set_of(look.entry.folder.parent)))
    if entry.state in ("done", "running", "queued"):
        return Next(f"python -m slurm status {tokens}", "all tasks of the set")
    if entry.state in ("stalled", "blocked"):
        return Next(f"python -m slurm cancel {tokens}", f"then: python -m slurm resubmit {tokens}")
    more = _more(look)
    why = f"goes on where it was; all it wrote: python -m slurm logs {shlex.quote(str(entry.folder))}"
    return Next(f"python -m slurm resubmit {tokens}{more}", why)


def _wrapped(line: str, columns: int) -> list[str]:
    indent = " " * (2 + len(line) - len(line.lstrip()))
    return wrap(line.strip(), columns, initial_indent=indent, subsequent_indent=indent + "  ") or [""]
