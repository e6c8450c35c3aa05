"""The parent of a run: starts it, watches its memory from outside, notes how it ended, and exits as it did.

    python -I -S memory/supervisor.py --output DIR [--attempt N] -- COMMAND...

Only a parent learns how a process ended, and only a small one outlives a shortage of memory. So this is a
bare interpreter: standard library alone, some 11 MB of which half is the interpreter's own program text.
`memory.supervision.options` says what may stand before `--`.
"""

from __future__ import annotations

import os
import sys

READY = "--ready"
"""Stands first once the kernel has been asked; then 1 if it will tell of our parent's end, else 0."""

if __name__ == "__main__":
    HERE = os.path.dirname(os.path.abspath(__file__))
    sys.path.append(os.path.join(HERE, "supervision"))
    if sys.argv[1:2] != [READY]:
        # What the kernel is asked for survives an exec, and ctypes, 0.7 MB, does not
        import prctl

        prctl.adopt_orphans()
        told = "--parent" in sys.argv and prctl.ask_to_end_with_parent()
        at = sys.orig_argv.index(sys.argv[0]) + 1
        os.execv(sys.executable, [*sys.orig_argv[:at], READY, str(int(told)), *sys.argv[1:]])
    import lean  # before anything of `memory`, which imports what this stands in for

    lean.spare()
    # -I leaves the program's own folder out; at the end, so that the standard library goes first
    sys.path[-1] = os.path.dirname(HERE)
    from memory.supervision.main import main

    main(sys.argv[3:], told_of_parent=sys.argv[2] == "1")
