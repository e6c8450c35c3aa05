"""The story of a supervised run: start it, watch, pass signals on, reap, write down, end as it did."""

from __future__ import annotations

import errno
import os
import signal
import stat
import time
from collections.abc import Sequence
from typing import Any

from memory.supervision.child import CannotStart, become, end_like, start
from memory.supervision.options import Options, parse
from memory.supervision.process_settings import adopt_orphans, protect_supervisor
from memory.supervision.signals import HandledInbox, Inbox, Letter, open_inbox

try:  # now: wait4 wants it when the child has been reaped, and where no file can be opened the status is lost
    import resource  # noqa: F401
except ImportError:
    _HAS_WAIT4 = False
else:
    _HAS_WAIT4 = hasattr(os, "wait4")

_PARENT_POLL_S = 1.0
_WAKES_BETWEEN_LOOKS = 8
"""SIGCHLD tells of the child's end; it is looked for all the same at some wakes."""
_COPIED_AT_ONCE_BYTES = 64 << 10


class Blind:
    """In place of a `Watch` that cannot be: the command runs all the same."""

    passed_over: tuple[int, ...] = ()
    unwritten: str | None = None

    def wait_s(self) -> float:
        return _PARENT_POLL_S

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: None


def main(arguments: Sequence[str]) -> None:
    """Never returns: ends as the command does. 2: the options are wrong; 127, 126: as a shell."""
    inbox = open_inbox()
    _fill_standard_streams()
    try:
        options = parse(arguments)
    except ValueError as error:
        _say(f"error: supervisor: {error}")
        os._exit(2)
    adopt_orphans()
    watch = _watch(options)
    protect_supervisor(watch.limit_bytes())
    outputs, tees = _tees(options)
    watch.passed_over = tees
    try:
        try:
            child = _started(options, inbox, outputs)
        except OSError as error:
            _say(f"[mem] this run is not watched: {error.strerror}")
            watch.close()  # it holds files; with few allowed these are too many
            watch = Blind()
            child = _started(options, inbox, outputs)
    except CannotStart as error:
        _say(f"error: {error}")
        watch.ended(error.exit_code << 8, None)
        os._exit(error.exit_code)
    except OSError:
        _be_the_command(options, inbox)
    for descriptor in outputs or ():
        os.close(descriptor)
    watch.started(child)
    late = _until_gone(child, inbox, watch, options.parent)
    status, usage = _reaped(child)
    ended_by = os.WTERMSIG(status) if status is not None and os.WIFSIGNALED(status) else None
    if late is not None and late.number == ended_by:
        watch.passed_on(late)  # sent to all of the group: it came to the command first
    watch.ended(status, usage)
    _finish_tees(tees)
    if watch.unwritten is not None:
        _say(f"[mem] {os.path.join(options.output, 'outcome.json')} could not be written: {watch.unwritten}")
    if options.tell != "never":
        _tell(options, watch)
    if status is None:
        os._exit(1)
    end_like(status)


def _fill_standard_streams() -> None:
    """One that is closed would be the number of some file of ours. Closed again in the command, by exec."""
    try:
        while (number := os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)) <= 2:
            continue
        os.close(number)
    except OSError:
        return


def _started(options: Options, inbox: Inbox | HandledInbox, outputs: tuple[int, int] | None) -> int:
    return start(
        options.command,
        inbox.before,
        environment=_environment(options),
        outputs=outputs,
        ends_with_us=options.parent is not None,
    )


def _be_the_command(options: Options, inbox: Inbox | HandledInbox) -> None:
    """In place of us, where no pipe or process can be had: it runs as if we had never been."""
    try:
        become(options.command, inbox.before, os.environ)
    except OSError as error:
        told = CannotStart(options.command[0], error.errno or 0)
        _say(f"error: {told}")
        os._exit(told.exit_code)


def _until_gone(child: int, inbox: Inbox | HandledInbox, watch: Any, parent: int | None) -> Letter | None:
    """Sample and pass signals on until the child has ended; it is left to be reaped.

    Returns the signal that came when it had ended, if one did.

    parent: a process whose end the kernel does not tell us of; the child is asked to stop then.
    """
    watch.tick()
    wakes, late = 0, None
    while wakes % _WAKES_BETWEEN_LOOKS or not _is_gone(child):
        if parent is not None and os.getppid() != parent:
            parent = None
            _pass_on(Letter(signal.SIGTERM), child, watch)
        watch.tick()
        letter = inbox.wait(min(_PARENT_POLL_S, watch.wait_s()))
        wakes += 1
        if letter is None:
            continue
        if letter.number == signal.SIGCHLD or _is_gone(child):  # what comes after its end is not for it
            late = late if letter.number == signal.SIGCHLD else letter
            wakes = 0
            continue
        _pass_on(letter, child, watch)
        if letter.number == signal.SIGTSTP:
            _stop()
    watch.gone(child)
    return late


def _pass_on(letter: Letter, child: int, watch: Any) -> None:
    watch.passed_on(letter)
    if letter.to_group:  # a terminal's: the command is in the same group, and has it already
        return
    try:
        os.kill(child, letter.number)
    except OSError:
        return


def _stop() -> None:
    """As Ctrl-Z does it, until SIGCONT comes, which is passed on. Without a shell to go on with it: not."""
    signal.signal(signal.SIGTSTP, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTSTP)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTSTP])
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTSTP])


def _is_gone(child: int) -> bool:
    """Whether it has ended. Orphans that came to us are reaped on the way."""
    if not hasattr(os, "waitid"):
        return _is_zombie_elsewhere(child)
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


_ENDED: dict[int, tuple[int, Any]] = {}


def _is_zombie_elsewhere(child: int) -> bool:
    """macOS before Python 3.13 cannot look without reaping."""
    try:
        pid, status, *more = (os.wait4 if _HAS_WAIT4 else os.waitpid)(child, os.WNOHANG)
    except ChildProcessError:
        return True
    if pid == child:
        _ENDED[child] = status, more[0] if more else None
    return pid == child


def _reaped(child: int) -> tuple[int | None, Any]:
    if child in _ENDED:
        return _ENDED[child]
    try:
        if not _HAS_WAIT4:
            return os.waitpid(child, 0)[1], None
        _, status, usage = os.wait4(child, 0)
    except ChildProcessError:
        return None, None
    return status, usage


def _watch(options: Options) -> Any:
    """What measures, or a stand-in where it cannot even be loaded."""
    try:
        from memory.supervision.watch import Watch

        return Watch(options)
    except Exception as error:
        _say(f"[mem] this run is not watched: {type(error).__name__}: {error}")
        return Blind()


def _environment(options: Options) -> dict[str, str]:
    """Tells the command where a black box would go (`memory.record.black_box.install`)."""
    output = os.path.abspath(options.output)
    return {**os.environ, "HIGHWATER_OUTPUT": output, "HIGHWATER_ATTEMPT": str(options.attempt)}


def _tees(options: Options) -> tuple[tuple[int, int] | None, tuple[int, ...]]:
    """With `log`: pipes for the command's stdout and stderr, and the two tee(1) that copy them to log.txt."""
    if not options.log:
        return None, ()
    log = os.path.join(os.path.abspath(options.output), "log.txt")
    ends, pids = [], []
    try:
        if os.path.exists(log) and stat.S_ISFIFO(os.stat(log).st_mode):
            raise OSError(errno.EINVAL, "it is a FIFO")  # tee would wait for who reads it
        for stream in (1, 2):
            read_end, write_end = os.pipe()
            ends.append(write_end)
            try:
                pids.append(_tee(read_end, ends, stream, log))
            finally:
                os.close(read_end)
    except OSError as error:
        _say(f"[mem] what it prints is not copied to {log}: {error.strerror}")
        for end in ends:  # a tee that runs already ends by it
            os.close(end)
        return None, tuple(pids)
    return (ends[0], ends[1]), tuple(pids)


def _tee(read_end: int, write_ends: list[int], stream: int, log: str) -> int:
    """All signals that stop others stay blocked in it: it ends when the last writer has, or, by SIGPIPE, when
    nobody reads any more, so that the command meets what it would without a log.
    """
    pid = os.fork()
    if pid == 0:
        try:
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # which Python ignores, and exec hands on
            os.dup2(read_end, 0)
            if stream == 2:
                os.dup2(2, 1)
            try:
                os.execvp("tee", ["tee", "-a", log])
            except OSError:  # a machine without one
                for end in (*write_ends, *((read_end,) if read_end else ())):
                    os.close(end)
                _copy(log)
        finally:
            os._exit(127)
    return pid


def _copy(log: str) -> None:
    """As tee(1): what comes from standard input goes on to standard output, and to the log while it can."""
    outputs = [1]
    try:
        outputs.append(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666))
    except OSError as error:
        _say(f"[mem] {log}: {error.strerror}")
    while content := os.read(0, _COPIED_AT_ONCE_BYTES):
        for output in list(outputs):
            left = content
            try:
                while left:
                    left = left[os.write(output, left) :]
            except OSError:  # the other goes on, and the command's pipe must not fill up
                outputs.remove(output)


def _finish_tees(tees: tuple[int, ...]) -> None:
    """They have seen the end of what the command wrote, unless a process that it left behind writes on."""
    until_s = time.monotonic() + 2
    for pid in tees:
        while time.monotonic() < until_s:
            try:
                if os.waitpid(pid, os.WNOHANG)[0]:
                    break
            except ChildProcessError:
                break
            time.sleep(0.01)


def _tell(options: Options, watch: Any) -> None:
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
