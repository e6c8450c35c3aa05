"""A `python` for docs pages: commands run in forks of a process that has torch and this product imported.

A process of its own takes two to five CPU seconds to import torch, and the pages start more than two hundred.
Options of Python itself (`-I`, `-S`) start a real one. Tests of each command start it as a user does.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import runpy
import shutil
import socket
import subprocess
import sys
import tempfile
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

CLIENT = """#!{python} -IS
import json, os, socket, sys
given = sys.argv[1:]
if not given or given[0][0] == "-" and given[0] not in ("-", "-c", "-m"):
    os.execv("{python}", ["{python}", *given])
server = socket.socket(socket.AF_UNIX)
server.connect("{address}")
socket.send_fds(server, [b"+"], [0, 1, 2])
server.sendall(json.dumps([given, os.getcwd(), dict(os.environ)]).encode())
server.shutdown(socket.SHUT_WR)
sys.exit(int(server.recv(8) or 1))
"""


@contextmanager
def preloaded_python(folder: Path, checkout: Path) -> Iterator[Path]:
    """Folder of a program `python` that runs the files of `checkout`, for the start of PATH."""
    folder.mkdir()
    sockets = Path(tempfile.mkdtemp())  # a path of at most 107 bytes
    address, program = sockets / "socket", folder / "python"
    program.write_text(CLIENT.format(python=sys.executable, address=address))
    program.chmod(0o755)
    server = subprocess.Popen(
        [sys.executable, "-c", "from tests.preloaded_python import main; main()", str(address), str(program)],
        cwd=checkout, stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert server.stdout is not None
        assert server.stdout.readline() == b"ready\n"
        yield folder
    finally:
        server.kill()
        server.communicate()
        shutil.rmtree(sockets)


def main() -> None:
    """Serve at the address of the first argument; the second becomes `sys.executable`."""
    address, program = sys.argv[1:]
    for module in ("torch._dynamo", "core", "experiments", "pretokenize_dataset", "analysis"):
        importlib.import_module(module)

    work = _serve(address)
    sys.executable = program
    work()


def _serve(address: str) -> Callable[[], None]:
    """Fork for each connection; returns in the fork that does the work, with what it does."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(address)
        server.listen()
        server.settimeout(5.0)  # seconds
        print("ready", flush=True)
        tests = os.getppid()
        while True:
            try:
                connection, _ = server.accept()
            except TimeoutError:
                if os.getppid() != tests:
                    sys.exit()
                continue
            connection.settimeout(None)
            if os.fork() == 0:
                break
            connection.close()
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
    _, streams, _, _ = socket.recv_fds(connection, 1, 3)
    message = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    worker = os.fork()
    if worker:
        code = os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])
        with contextlib.suppress(OSError):
            connection.sendall(str(code if code >= 0 else 128 - code).encode())
        os._exit(0)
    connection.close()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin = os.fdopen(0, closefd=False)  # the old one remembers whether it could seek
    arguments, folder, environment = json.loads(message)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    return lambda: _run(arguments)


def _run(arguments: list[str]) -> None:
    """As `python ARGUMENTS` does."""
    first, *rest = arguments
    sys.path[0] = "" if first.startswith("-") else str(Path(first).resolve().parent)
    if first == "-m":
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif first.startswith("-"):
        code = sys.stdin.read() if first == "-" else rest.pop(0)
        sys.argv = [first, *rest]
        sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(code, "<string>", "exec"), vars(sys.modules["__main__"]))
    else:
        sys.argv = arguments
        runpy.run_path(first, run_name="__main__")
