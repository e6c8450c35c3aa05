"""Runs on several ranks, as forks of one process that has torch loaded: it reads requests, a line each.

A request: {"folder", "ranks", "event": {"rank", "step", "what"}, "variables"}. The event happens in that rank
before that step of this attempt: raise, kill, term, exit (without a word). The answer: exit codes by rank.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


class RankProcesses:
    """The other side of that process."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "TORCH_CPP_LOG_LEVEL": "ERROR"},
        )

    def run(
        self, folder: Path, ranks: int, event: dict[str, Any] | None = None, **variables: str
    ) -> list[int]:
        """Run a folder to its end; returns the exit code of each rank, negative: killed by that signal."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        request = {"folder": str(folder), "ranks": ranks, "event": event, "variables": variables}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        codes: list[int] = json.loads(self._process.stdout.readline())
        return codes

    def close(self) -> None:
        self._process.communicate(timeout=240)


def main() -> None:
    sys.path[0] = str(ROOT)
    import torch
    import torch.distributed.fsdp

    import core  # noqa: F401
    import data_loading.dataset.streaming_dataset  # noqa: F401

    torch.set_num_threads(1)
    for line in sys.stdin:
        request = json.loads(line)
        codes = _run(**request)
        print(json.dumps(codes), flush=True)


def _run(folder: str, ranks: int, event: dict[str, Any] | None, variables: dict[str, str]) -> list[int]:
    from slurm.local_ranks import environment_of, free_port

    port = free_port()
    sys.stdout.flush()
    pids = {}
    for rank in range(ranks):
        pid = os.fork()
        if pid == 0:
            os.environ.update(environment_of(rank, ranks, port) | variables)
            _be_rank(folder, event if event and event["rank"] == rank else None)
        pids[pid] = rank
    codes = {}
    until = time.monotonic() + 240
    while len(codes) < ranks:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid in pids:
            codes[pids[pid]] = os.waitstatus_to_exitcode(status)
        elif time.monotonic() > until:
            for left in pids:
                if pids[left] not in codes:
                    os.kill(left, signal.SIGABRT)  # leaves the stacks in its log
            until += 10
        else:
            time.sleep(0.02)
    return [codes[rank] for rank in range(ranks)]


def _be_rank(folder: str, event: dict[str, Any] | None) -> None:
    code = 1
    try:
        if event is not None:
            _prepare(event)
        import core

        code = core.main([folder, "--quiet"])
    except SystemExit as ended:
        code = int(ended.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _prepare(event: dict[str, Any]) -> None:
    from training.step.train_step import Step

    take, taken = Step.take, 0

    def with_event(*arguments: Any, **options: Any) -> Any:
        nonlocal taken
        taken += 1
        if taken == event["step"]:
            _happen(event["what"])
        return take(*arguments, **options)

    Step.take = with_event  # type: ignore[assignment]


def _happen(what: str) -> None:
    if what == "raise":
        raise ValueError("something is wrong with this rank")
    if what == "exit":
        os._exit(7)
    os.kill(os.getpid(), signal.SIGKILL if what == "kill" else signal.SIGTERM)


if __name__ == "__main__":
    main()
