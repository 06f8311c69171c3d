#!/bin/sh
# bring_torch.sh VENV REQUIREMENT [or-none]: puts torch into a virtual environment, as a CPU build: tests need no more,
# and what pip takes on Linux by itself comes with gigabytes of CUDA. With `or-none` any torch that is there will do, and
# a machine for which there is no build goes without.
set -eu
venv=$1 requirement=$2 or_none=${3:-}
pip="$venv/bin/pip --disable-pip-version-check"
# Minutes without a sign of life are for nobody: on a terminal pip shows what it gets.
quiet=$(test -t 2 || echo --quiet)

if [ -n "$or_none" ] && "$venv/bin/python" -c 'import torch' >/dev/null 2>/dev/null; then
  exit 0
fi
plan=$(mktemp)
trap 'rm -f "$plan"' EXIT
echo "Getting a CPU build of $requirement ..."
if $pip install --quiet --dry-run --report "$plan" "$requirement" && ! grep -q '"name": "nvidia' "$plan"; then
  $pip install $quiet "$requirement" && exit 0
# uv knows where the CPU builds of torch are.
elif $pip install --quiet uv &&
  "$venv/bin/uv" pip install $quiet --python "$venv/bin/python" --torch-backend=cpu "$requirement"; then
  exit 0
fi
if [ -n "$or_none" ]; then
  echo "There is no CPU build of $requirement for this machine: tests that need torch are left out."
  exit 0
fi
echo "There is no CPU build of $requirement for this machine; taking what pip takes."
$pip install $quiet "$requirement"
