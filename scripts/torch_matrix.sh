#!/usr/bin/env bash
# The collector of `lanewise watch` on several versions of torch: it is built, checked and tested on each, in turn.
#
#   scripts/torch_matrix.sh VERSION...        # 2.9.1 2.14.1; python3 of the path, a virtual environment for each
#
# Each environment is removed afterwards: on Linux a torch from PyPI takes about 6 GB. Versions for which the disk has not
# 30 GB left are passed over. Prints one line for each version; exit code 1 if any of them failed.
set -uo pipefail

top=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tests=(tests/capture/context/test_native.py tests/capture/context/test_agreement.py tests/capture/context/test_endings.py)
failed=0

for version in "$@"; do
  free=$(df --output=avail -BG "$work" | tail -1 | tr -dc 0-9)
  if ((free < 30)); then
    echo "torch $version: passed over, $free GB of disk are left"
    failed=1
    continue
  fi
  environment="$work/$version"
  log="$work/$version.log"
  if ! (python3 -m venv "$environment" && "$environment/bin/pip" install -q "torch==$version" pytest "$top") >"$log" 2>&1; then
    echo "torch $version: cannot be installed: $(grep -v WARNING "$log" | tail -1)"
    failed=1
  else
    # The tests are those of the working tree, and so is what they test.
    export PYTHONPATH="$top/src" LANEWISE_CACHE_DIR="$work/cache-$version" OMP_NUM_THREADS=1
    said=$("$environment/bin/python" -m lanewise doctor 2>/dev/null | grep -E '(^| )watch ')
    if (cd "$top" && "$environment/bin/python" -m pytest -q -p no:cacheprovider "${tests[@]}") >"$log" 2>&1 && [[ $said == *"built and checked"* ]]; then
      echo "torch $version: passed; $said"
    else
      echo "torch $version: FAILED; $said"
      tail -20 "$log"
      failed=1
    fi
    unset PYTHONPATH LANEWISE_CACHE_DIR
  fi
  rm -rf "$environment"
done
exit $failed
