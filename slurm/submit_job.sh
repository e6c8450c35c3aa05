#!/bin/bash
# One run as a plain job, for those who keep a script of their own. From the checkout:
#
#     sbatch slurm/submit_job.sh model=256d optimizer.lr=1e-3
#     sbatch --time=2:00:00 --mem=16G --gres=gpu:1 slurm/submit_job.sh model=256d
#     python -m slurm script slurm=supercloud > my_job.sh      # the same with a site's options in it
#
# All arguments are overrides, as experiments.py takes them; `python -m slurm status` knows the run.
# Ahead of the time limit (--signal) and before a preemption the run checkpoints and the job goes back into the
# queue (--requeue) under the same number, into the same run folder and this output (--open-mode=append), with
# the code and the configuration of its first start. After 3 starts without a step forward it is given up.
#
#SBATCH --job-name=highwater
#SBATCH --output=slurm-%j.out
#SBATCH --open-mode=append
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=2
#SBATCH --mem=4G
#SBATCH --time=24:00:00
#SBATCH --signal=USR2@120
#SBATCH --requeue
set -euo pipefail

# HIGHWATER_CODE: the checkout, when you submit from elsewhere. PYTHON: the interpreter of its environment.
code=${HIGHWATER_CODE:-$SLURM_SUBMIT_DIR}
python=${PYTHON:-$code/.venv/bin/python}
[ -x "$python" ] || python=python3

# A later start goes on with the copy of the code that the first one has made and noted below runs_dir.
id=${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID}
runs=${HIGHWATER_RUNS_DIR:-runs}
for word in "$@"; do
    case $word in runs_dir=* | +runs_dir=* | ++runs_dir=*) runs=${word#*=} ;; esac
done
runs=${runs/#\~/${HOME:-}}    # a job that an array's task has submitted has the array's variables too
for note in "$runs"/*/.submissions/{"job-$id","job-$SLURM_JOB_ID"}/code; do
    [ "${SLURM_RESTART_COUNT:-0}" -gt 0 ] && [ -r "$note" ] && read -r noted < "$note" || continue
    [ ! -d "$noted" ] || code=$noted
done
export PYTHONPATH="$code${PYTHONPATH:+:$PYTHONPATH}" PYTHONSAFEPATH=1
HIGHWATER_OUTPUT=$(readlink "/proc/$$/fd/1" || true) && export HIGHWATER_OUTPUT

# Each task of srun is a rank of the run; when one fails, the others are ended.
exec "${job_srun[@]:-srun}" --kill-on-bad-exit=1 "${job_python[@]:-$python}" -u -m slurm.in_job.plain "$@"
