#!/usr/bin/env bash
# Puts the wheels that a GPU machine without network lacks into .gpu/, which git ignores. Such a machine gets this
# checkout, .gpu/ included, and runs: bash benchmarks/gpu/run.sh
# Usage: bundle.sh [PYTHON_VERSION]   of the GPU machine, 3.12 by default; it has torch and numpy itself.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
version=${1:-3.12}
python=${KIT_PYTHON:-python3}
wheels=$root/.gpu/wheels
mkdir -p "$wheels"
pinned() { grep -i "^$1==" "$root/requirements.lock" | head -1 | cut -d' ' -f1; }
platforms=()
for tag in manylinux_2_28 manylinux_2_27 manylinux_2_17 manylinux2014 manylinux1; do
  platforms+=(--platform "${tag}_x86_64")
done
for name in hydra-core omegaconf submitit fastokens orjson obstore nvidia-ml-py; do
  wanted=$(pinned "$name")
  ls "$wheels/$(echo "$name" | tr - _)"-*.whl >/dev/null 2>&1 || [ -z "$wanted" ] ||
    "$python" -m pip download -q --no-deps --only-binary=:all: --python-version "$version" --implementation cp \
      "${platforms[@]}" -d "$wheels" "$wanted"
done
ls "$wheels"/antlr4_python3_runtime-*.whl >/dev/null 2>&1 || # no wheel of this one is published
  "$python" -m pip wheel -q --no-deps -w "$wheels" "$(pinned antlr4-python3-runtime)"
git -C "$root" rev-parse HEAD >"$root/.gpu/commit"
du -sm "$root/.gpu" | awk '{ print $1 " MB of wheels in " $2 }'
