"""Reads back what this project's own command wrote."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from peer import flat, main

if __name__ == "__main__":
    main(lambda *_: sys.exit("only --digest"), lambda output: flat(output / "tokens.npy", "<u2", 128))
