"""The parent process of a run: starts it, samples its memory from outside, records how it ended, exits alike.

    python -I -S memory/supervisor.py --output DIR [--attempt N] -- COMMAND...

Only a parent sees how a process ended, and only a small process outlives a shortage of memory: this one is an
interpreter with the standard library alone. `memory.supervision.options` documents the options before `--`.
"""

from __future__ import annotations

import os
import sys

if __name__ == "__main__":
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if os.path.exists(os.path.join(root, "__init__.py")):  # installed: this package is in highwater
        root = os.path.dirname(root)
    sys.path.append(root)  # -I leaves it out; at the end, so that the standard library goes first
    from memory.supervision.main import main

    main(sys.argv[1:])
