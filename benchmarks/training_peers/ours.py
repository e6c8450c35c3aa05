"""A whole run of ours, as `experiments.py` starts it: `core.py RUN`, from its config.yaml on."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from turns import Job, Turns

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))


def main() -> None:
    job = Job.of_command_line()
    turns = Turns(job.threads)
    turns.hook()
    import core

    sys.exit(core.main([job.folder, "--quiet"]))


if __name__ == "__main__":
    main()
