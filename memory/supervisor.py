"""The parent process of a run: starts it, samples its memory from outside, records how it ended, exits alike.

    python -I -S memory/supervisor.py --output DIR [--attempt N] -- COMMAND...

Only a parent sees how a process ended, and only a small process outlives a shortage of memory: this one is an
interpreter with the standard library alone. `memory.supervision.options` documents the options before `--`.
"""

from __future__ import annotations

import os
import sys

if __name__ == "__main__":
    # -I leaves the program's own folder out; at the end, so that the standard library goes first
    sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    from memory.supervision.main import main

    main(sys.argv[1:])
