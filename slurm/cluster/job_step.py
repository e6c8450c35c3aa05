"""The srun and the Python of a job's step, as two variables of its batch script.

    job_srun=(srun)                        default_lines, before slurm.setup
    job_python=(/home/me/venv/bin/python)
    module load cuda                       slurm.setup
    job_python=(python)                    chosen_lines: slurm.python
    job_srun=(srun --mpi=pmix)             chosen_lines: slurm.srun_args

A run that shares its job is started by an srun of its own, which reads the arguments from SRUN_ARGS.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping

from conf.schema import Slurm

SRUN, PYTHON = '"${job_srun[@]}" --kill-on-bad-exit=1', '"${job_python[@]}" -u'
SRUN_ARGS = "HIGHWATER_SRUN_ARGS"
"""Environment variable of a job: `slurm.srun_args`, quoted for a shell."""


def default_lines() -> list[str]:
    """Lines of shell: the job runs the Python of this command, without further arguments of srun."""
    return ["job_srun=(srun)", f"job_python=({shlex.quote(sys.executable)})"]


def chosen_lines(wanted: Slurm) -> list[str]:
    """Lines of shell for `slurm.python` and `slurm.srun_args`; none if neither is set."""
    arguments = shlex.join(word for argument in wanted.srun_args for word in shlex.split(argument))
    lines = [f"export {SRUN_ARGS}={shlex.quote(arguments)}", f"job_srun=(srun {arguments})"]
    return [*([f"job_python=({wanted.python})"] if wanted.python else []), *(lines if arguments else [])]


def srun_arguments(environment: Mapping[str, str]) -> list[str]:
    """Arguments of `slurm.srun_args` inside a job."""
    return shlex.split(environment.get(SRUN_ARGS, ""))


def python_of(wanted: Slurm) -> str:
    """Python of a run's job, with the key that sets it."""
    return f"{wanted.python} (slurm.python)" if wanted.python else f"{sys.executable} (this command's)"
