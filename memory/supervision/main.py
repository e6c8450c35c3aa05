"""Run a command under observation: start, sample, pass signals on, write outcome.json, end as it did."""

from __future__ import annotations

import errno
import os
import resource
import signal
import time
from collections.abc import Sequence
from typing import Any, NoReturn

from memory.supervision.child import CannotStart, become, end_like, start
from memory.supervision.options import Options, parse
from memory.supervision.process_settings import adopt_orphans, protect_supervisor
from memory.supervision.signal_inbox import ReceivedSignal, SignalQueue

_PARENT_POLL_S = 1.0
_WAKES_BETWEEN_LOOKS = 8
"""SIGCHLD announces the child's end; after this many wakes it is looked for as well."""
_LOG_WAIT_S = 2.0


def main(arguments: Sequence[str]) -> None:
    """Run the command and end as it does; never returns. Exit code 2: wrong options; 127, 126: as a shell."""
    signals = SignalQueue()
    _fill_standard_streams()
    try:
        options = parse(arguments)
    except ValueError as error:
        _say(f"error: supervisor: {error}")
        os._exit(2)
    adopt_orphans()
    try:
        from memory.supervision.watch_loop import Watch

        watch = Watch(options)
        protect_supervisor(watch.limit_bytes())
        tees = _start_log(options)
        watch.passed_over = tuple(tee.pid for tee in tees)
        child = start(
            options.command,
            signals.before,
            environment=_environment(options),
            outputs=tuple(tee.stdin.fileno() for tee in tees),
            ends_with_us=options.parent is not None,
        )
    except CannotStart as error:
        _say(f"error: {error}")
        watch.ended(error.exit_code << 8, None)
        os._exit(error.exit_code)
    except Exception as error:
        _say(f"[mem] this run is not watched: {type(error).__name__}: {error}")
        _be_the_command(options, signals)
    for tee in tees:
        tee.stdin.close()
    if not watch.is_ours:
        _say(f"[mem] not recorded: another run writes to {options.output}. Give each its own folder")
    watch.started(child)
    late = _until_gone(child, signals, watch, options.parent)
    status, usage = _reaped(child)
    ended_by = os.WTERMSIG(status) if status is not None and os.WIFSIGNALED(status) else None
    if late is not None and late.number == ended_by:
        watch.passed_on(late)  # sent to the whole group: it came to the command first
    watch.ended(status, usage)
    _finish_log(tees)
    if watch.unwritten is not None:
        _say(f"[mem] {os.path.join(options.output, 'outcome.json')} could not be written: {watch.unwritten}")
    if options.tell != "never":
        _print_summary(options, watch)
    if status is None:
        os._exit(1)
    end_like(status)


def _fill_standard_streams() -> None:
    """Open /dev/null for each standard stream that is closed: a file of ours would get its number.

    They are closed again in the command, by exec.
    """
    try:
        while (number := os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)) <= 2:
            continue
        os.close(number)
    except OSError:
        return


def _be_the_command(options: Options, signals: SignalQueue) -> NoReturn:
    """Execute the command in this process."""
    try:
        become(options.command, signals.before, os.environ)
    except OSError as error:
        cannot = CannotStart(options.command[0], error.errno or 0)
    _say(f"error: {cannot}")
    os._exit(cannot.exit_code)


def _until_gone(child: int, signals: SignalQueue, watch: Any, parent: int | None) -> ReceivedSignal | None:
    """Sample and pass signals on until the child has ended; it is not reaped.

    Args:
        child: pid of the command.
        signals: of this process.
        watch: takes the samples.
        parent: process whose end makes the command stop.

    Returns:
        The signal that came when it had ended, if one did.
    """
    watch.tick()
    wakes, late = 0, None
    while wakes % _WAKES_BETWEEN_LOOKS or not _has_ended(child):
        if parent is not None and os.getppid() != parent:
            parent = None
            _pass_on(ReceivedSignal(signal.SIGTERM), child, watch)
        watch.tick()
        received = signals.wait(min(_PARENT_POLL_S, watch.wait_s()))
        wakes += 1
        if received is None:
            continue
        if received.number == signal.SIGCHLD or _has_ended(child):  # later signals are not for it
            late = late if received.number == signal.SIGCHLD else received
            wakes = 0
            continue
        _pass_on(received, child, watch)
        if received.number == signal.SIGTSTP:
            _stop()
    watch.gone(child)
    return late


def _pass_on(received: ReceivedSignal, child: int, watch: Any) -> None:
    watch.passed_on(received)
    if received.to_group:  # of a terminal: the command is in the same group, and has it already
        return
    try:
        os.kill(child, received.number)
    except OSError:
        return


def _stop() -> None:
    """Stop as by Ctrl-Z until SIGCONT comes, which is passed on; not without a shell that resumes it."""
    signal.signal(signal.SIGTSTP, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTSTP)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTSTP])
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTSTP])


def _has_ended(child: int) -> bool:
    """Whether it has ended. Orphans that this process adopted are reaped."""
    while True:
        try:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return True
        if found is None:
            return False
        if found.si_pid == child:
            return True
        os.waitpid(found.si_pid, 0)


def _reaped(child: int) -> tuple[int | None, resource.struct_rusage | None]:
    try:
        _, status, usage = os.wait4(child, 0)
    except ChildProcessError:
        return None, None
    return status, usage


def _environment(options: Options) -> dict[str, str]:
    """Environment of the command, with the folder of its black box (`memory.record.black_box.install`)."""
    output = os.path.abspath(options.output)
    return {**os.environ, "HIGHWATER_OUTPUT": output, "HIGHWATER_ATTEMPT": str(options.attempt)}


def _start_log(options: Options) -> list[Any]:
    """With `log`: two tee(1), for stdout and stderr, which also write to log.txt.

    A tee has the blocked signals of this process. It ends with the last writer, or by SIGPIPE with its
    reader, so that the command meets what it would without a log.
    """
    tees: list[Any] = []
    if options.log:
        import subprocess

        log = os.path.join(os.path.abspath(options.output), "log.txt")
        try:
            if os.path.exists(log) and not os.path.isfile(log):
                raise OSError(errno.EINVAL, "it is no regular file")  # tee waits for the reader of a FIFO
            for stream in (1, 2):
                tees.append(subprocess.Popen(["tee", "-a", log], stdin=subprocess.PIPE, stdout=stream))
        except OSError as error:
            _say(f"[mem] what it prints is not copied to {log}: {error}")
            for tee in tees:
                tee.stdin.close()
            return []
    return tees


def _finish_log(tees: list[Any]) -> None:
    """Wait until they have copied all, unless a process that the command left behind still writes."""
    until_s = time.monotonic() + _LOG_WAIT_S
    for tee in tees:
        while tee.poll() is None and time.monotonic() < until_s:
            time.sleep(0.01)


def _print_summary(options: Options, watch: Any) -> None:
    try:
        from memory.supervision.outcome import summary

        line = summary(watch.facts, options)
        if line is not None:
            _say(line)
    except Exception:
        return


def _say(line: str) -> None:
    try:
        os.write(2, f"{line}\n".encode(errors="replace"))
    except OSError:
        return
