#!/usr/bin/env bash
# All checks of the GPU side in one command, within a budget of time. On a machine without a GPU they run in tiny
# sizes, which shows that the checks themselves still work.
# KIT_BUDGET_S: seconds in all (530 on a GPU). KIT_ONLY=machine,speed: only checks whose names begin so.
# KIT_PYTHON: the interpreter (python3). KIT_CPU=1: do not use the GPU. OUT: where the report goes.
set -u
export KIT_STARTED=${KIT_STARTED:-$(date +%s)}
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
python=${KIT_PYTHON:-python3}
export OUT=${OUT:-$PWD/gpu_report} KIT_WORK=${KIT_WORK:-$(mktemp -d "${TMPDIR:-/tmp}/gpu_checks.XXXXXX")}
mkdir -p "$OUT" "$KIT_WORK"
wheels=$root/.gpu/wheels
if [ -d "$wheels" ] && ! "$python" -c 'import hydra, submitit, fastokens' 2>/dev/null; then
  "$python" -m pip install -q --no-index --no-deps --no-compile --upgrade --target "$KIT_WORK/site" "$wheels"/*.whl 2>&1 | tail -3
  export PYTHONPATH=$KIT_WORK/site${PYTHONPATH:+:$PYTHONPATH}
fi
export PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1
export TORCHINDUCTOR_CACHE_DIR=$KIT_WORK/inductor KINETO_LOG_LEVEL=99
export KIT_DEVICE=cpu
if [ -z "${KIT_CPU:-}" ] && { [ -e /dev/nvidia0 ] || nvidia-smi -L 2>/dev/null | grep -q GPU; }; then
  KIT_DEVICE=cuda
else
  export CUDA_VISIBLE_DEVICES=
fi
echo "checks on $KIT_DEVICE, report in $OUT, scratch $KIT_WORK"
cd "$root" && exec "$python" "$here/run.py"
