"""What is handed to sbatch, to the letter."""

from __future__ import annotations

import sys
from pathlib import Path

from slurm.records import SLURM, Array, Submission
from slurm.tokens.script import script

TASKS = f"""\
#!/bin/bash
#SBATCH --job-name=.crawl.slurm-1-0
#SBATCH --output=/data/.crawl.slurm/.submissions/1/%j.out
#SBATCH --open-mode=append
#SBATCH --array=0-1%1
#SBATCH --mem=600M
#SBATCH --requeue
tasks=(00000-of-00003 00002-of-00003)
task=${{tasks[${{SLURM_ARRAY_TASK_ID:-0}}]}}
exec >> /data/.crawl.slurm/"$task"/log.txt 2>&1
cd '/home/me/my texts' || exit 1
module load python
export PYTHONPATH=/data/.crawl.slurm/.snapshots/ab"${{PYTHONPATH:+:$PYTHONPATH}}"
export PYTHONSAFEPATH=1
exec srun --kill-on-bad-exit=1 {sys.executable} -u -m slurm.in_job.tokens \
/data/crawl "$task" 'part-*.txt' --workers 2
"""
MERGE = f"""\
#!/bin/bash
#SBATCH --job-name=.crawl.slurm-1-1
#SBATCH --output=/data/.crawl.slurm/.submissions/1/%j.out
#SBATCH --open-mode=append
#SBATCH --dependency=afterok:7
tasks=(merge)
task=${{tasks[${{SLURM_ARRAY_TASK_ID:-0}}]}}
exec >> /data/.crawl.slurm/"$task"/log.txt 2>&1
cd '/home/me/my texts' || exit 1
export PYTHONPATH=/data/.crawl.slurm/.snapshots/ab"${{PYTHONPATH:+:$PYTHONPATH}}"
export PYTHONSAFEPATH=1
exec srun --kill-on-bad-exit=1 {sys.executable} -u -m pretokenize_dataset merge /data/crawl
"""


def test_the_scripts() -> None:
    names = [["00000-of-00003"], ["00002-of-00003"]]
    options = {"mem": "600M", "requeue": True}
    tasks = Array(0, ".crawl.slurm-1-0", names, options, parallel=1)
    merge = Array(1, ".crawl.slurm-1-1", [["merge"]], {"dependency": "afterok:7"})
    submission = Submission(
        id="1", study=Path("/data/.crawl.slurm"), launcher=SLURM, created_s=0.0, user="me", host="login",
        cwd="/home/me/my texts", command="", arrays=[tasks, merge],
        snapshot="/data/.crawl.slurm/.snapshots/ab",
    )  # fmt: skip
    output = Path("/data/crawl")
    arguments = ["part-*.txt", "--workers", "2"]
    assert script(submission, tasks, ["module load python"], arguments, output) == TASKS
    assert script(submission, merge, [], ["merge", "/data/crawl"], output) == MERGE
