"""Replacement of core.py for tests of local runs: does what the run's `notes` say, "" for all but seed 1.

Writes order.txt of the study: a line when a run begins and ends, with its session and current folder.
"""

import json
import os
import pathlib
import signal
import sys
import time

import yaml

folder = pathlib.Path(sys.argv[1])
config = yaml.safe_load((folder / "config.yaml").read_text())


def note(event):
    with open(folder.parent / "order.txt", "a") as file:
        file.write(f"{config['seed']} {event} {os.getsid(0)} {pathlib.Path.cwd()}\n")


def leave(state, code, reason=None, val_loss=None):
    note("ends")
    beat = {"heartbeat_s": time.time(), "step": 1}
    (folder / "status.json").write_text(json.dumps({"state": state, "reason": reason, **beat}))
    (folder / "run.json").write_text(json.dumps({"results": {"val_loss": val_loss} if val_loss else None}))
    sys.exit(code)


note("begins")
todo = config["notes"] if config["seed"] == 1 or config["notes"] in ("wait", "meet") else ""
if todo == "fail" or (config["notes"] == "cliff" and config["optimizer"]["lr"] == 1.0):
    leave("failed", 1, "diverged")
if todo == "crash":
    sys.exit("the last words")
if todo == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
if todo == "wait":
    signal.signal(signal.SIGINT, lambda *_: leave("cancelled", 130, "interrupted (Ctrl-C)"))
    signal.signal(signal.SIGTERM, lambda *_: leave("cancelled", 1, "stopped by SIGTERM"))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT, signal.SIGTERM])
    (folder / "up").touch()
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(0.05)
if todo == "meet":
    (folder / "up").touch()
    while len(list(folder.parent.glob("*/up"))) < 4:
        time.sleep(0.01)
leave("done", 0, val_loss=2.0 + config["seed"] + config["optimizer"]["lr"])
