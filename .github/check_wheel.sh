#!/usr/bin/env bash
# Build the wheel and the source archive, install the wheel in an empty environment, and run a study with it.
# Usage: .github/check_wheel.sh [FOLDER OF THE BUILT FILES, default dist]
set -euo pipefail
cd "$(dirname "$0")/.."
dist=$(realpath -m "${1:-dist}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -c "import bootstrap; bootstrap.install_locked('dev')"  # uv
.venv/bin/uv build --quiet --out-dir "$dist"
python3 -m venv "$work/env"
"$work/env/bin/pip" install --quiet "$dist"/*.whl
cd "$work"  # not beside the sources: the wheel has to bring pipelines and site configurations
env/bin/chestfed --version
env/bin/chestfed study --k 1,2 --no-tracking --set preprocess.size=64 --set pretrain.epochs=1 \
  --set federated.stages=1 --set federated.stage_steps=4
