"""`logging.to`: a process beside the run that writes its series elsewhere.

The run only starts it, looks now and then whether it is there, and tells it at the end that nothing more will
come. It follows the files of the run folder (`python -m analysis export --follow`), so that no step ever
waits for it, nothing has to be dropped where it is slow, and whatever fails in it, a package, a disk, a
network, costs the run one warning.
"""

from __future__ import annotations

import logging
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from conf.schema import Logging
from experiment_utils.modules import IMPORT_ROOT, module_name
from training.attempt.run_files import update_attempt

log = logging.getLogger("training")

SAID = "logger.txt"
"""In the run folder, what it said; taken away where it went well."""

ENDS_WITHIN_S, HURRIED_S = 30.0, 3.0
"""What it may take for its last words, such as those to a server; of a run that was asked to stop."""


class Logger:
    """The one of a run; of several that are trained together, of all. Nothing here raises."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = [folder.resolve() for folder in folders]
        self._process: subprocess.Popen[bytes] | None = None
        self._to = ""

    def start(self, config: Logging) -> None:
        """Begin, where the configuration asks for it."""
        if config.to is None or self._process is not None:
            return
        self._to = config.to
        path = os.pathsep.join(filter(None, [str(IMPORT_ROOT), os.environ.get("PYTHONPATH")]))
        command = [sys.executable, "-P", "-m", module_name("analysis"), "export", *map(str, self._folders)]
        command += ["--to", config.to, "--every", str(config.every_steps), "--follow"]
        command += ["--parent", str(os.getpid())]
        command += ["--project", config.project] if config.project else []
        try:
            with self._said("wb") as said:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=said,
                    # What a terminal or a job sends to all of a run is not for it.
                    start_new_session=True,
                    env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
                )
        except OSError as error:
            self._tell(f"it cannot be started: {error.strerror}")
            return
        self._note(to=config.to)
        log.info("logging to %s, beside the run", config.to)

    def check(self) -> None:
        """Warn, once, where it has failed."""
        process = self._process
        if process is not None and process.poll() is not None:
            self._process = None
            if process.returncode:  # else it has seen the end of the run, in status.json
                self._tell(self._reason(process))
            self._leave(process)

    def close(self, *, is_hurried: bool = False) -> None:
        """The run has ended, and status.json says how: let it write what is left, for a while."""
        self.check()
        process, self._process = self._process, None
        if process is None:
            return
        within_s = HURRIED_S if is_hurried else ENDS_WITHIN_S
        try:
            with suppress(OSError):
                assert process.stdin is not None
                process.stdin.write(b"ended\n")
                process.stdin.flush()
            process.wait(within_s)
            if process.returncode:
                self._tell(self._reason(process))
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            self._tell(f"it was not through {within_s:.0f} s after the run, or was not waited for")
        finally:
            self._leave(process)

    def _leave(self, process: subprocess.Popen[bytes]) -> None:
        if process.poll() is None:
            with suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)  # with what it has started itself
            process.wait()
        said = self._folders[0] / SAID
        with suppress(OSError):
            if process.returncode == 0 or said.stat().st_size == 0:
                said.unlink()
        with suppress(OSError):
            if process.stdin is not None:
                process.stdin.close()

    def _reason(self, process: subprocess.Popen[bytes]) -> str:
        with suppress(OSError):
            lines = (self._folders[0] / SAID).read_text(encoding="utf-8", errors="replace").split("\n")
            said = [line.strip() for line in lines if line.strip()]
            if process.returncode > 0 and said:
                return said[-1].removeprefix("error: ")
        if process.returncode < 0:
            return f"it was killed by {signal.Signals(-process.returncode).name}"
        return f"it ended with exit code {process.returncode}"

    def _tell(self, reason: str) -> None:
        log.warning(
            "logging to %s has ended: %s. The run does not need it, and "
            "python -m analysis export %s --to %s writes what is missing",
            self._to,
            reason,
            shlex.join(map(str, self._folders)),
            self._to,
        )
        self._note(to=self._to, ended=reason)

    def _note(self, **facts: str) -> None:
        """In run.json, of this attempt."""
        for folder in self._folders:
            with suppress(Exception):  # a full disk, a damaged file: the run will tell of it itself
                update_attempt(folder, logging=facts)

    def _said(self, mode: str) -> IO[bytes]:
        try:
            return open(self._folders[0] / SAID, mode)
        except OSError:
            return open(os.devnull, mode)
