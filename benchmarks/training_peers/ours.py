"""A whole run of ours, as `experiments.py` starts it: `core.py RUN`, from its config.yaml on."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from turns import Job, Turns

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))


def main() -> None:
    job = Job.of_command_line()
    import core
    import experiment_utils
    from conf.check import to_config
    from training.spinning import settle_waiting

    # As `core` does it in its time: the hook loads torch before.
    settle_waiting(to_config(experiment_utils.read_config(Path(job.folder))), {}, is_alone=True)
    Turns(job.threads).hook()
    sys.exit(core.main([job.folder, "--quiet"]))


if __name__ == "__main__":
    main()
