#!/usr/bin/env bash
# Build the wheel and the source archive, install the wheel in an empty environment, and run a study with it.
# Usage: .github/check_wheel.sh [--offline] [FOLDER OF THE BUILT FILES, default dist]
# --offline: with the packages that .venv has, in place of those that the index has for the wheel.
set -euo pipefail
cd "$(dirname "$0")/.."
offline=
[ "${1:-}" != --offline ] || { offline=yes && shift; }
dist=$(realpath -m "${1:-dist}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ "$offline" ]; then
  .venv/bin/python -m hatchling build --directory "$dist"
  .venv/bin/python -m venv --without-pip "$work/env"  # .venv's, not to hide its packages
  paths='import sysconfig; print(sysconfig.get_path("purelib"))'
  .venv/bin/python -c "$paths" > "$("$work/env/bin/python" -c "$paths")/packages.pth"
  install=(--no-index --no-deps)
else
  python3 -c "import bootstrap; bootstrap.install_locked('dev')"  # uv
  .venv/bin/uv build --quiet --out-dir "$dist"
  python3 -m venv "$work/env"
  install=()
fi
version=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' chestfed/_version.py)
"$work/env/bin/python" -m pip install --quiet "${install[@]}" "$dist/chestfed-$version-py3-none-any.whl"
cd "$work"  # not beside the sources: the wheel has to bring pipelines and site configurations
"$work/env/bin/python" -c "import chestfed, sys; sys.exit(not chestfed.__file__.startswith('$work'))"
env/bin/python -m pip check  # what the wheel needs is there
env/bin/chestfed --version
env/bin/chestfed study --k 1,2 --no-tracking --set samples.size=tiny --set preprocess.size=64 \
  --set pretrain.epochs=1 --set federated.stages=1 --set federated.stage_steps=4
