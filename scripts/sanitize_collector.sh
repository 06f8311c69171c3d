#!/usr/bin/env bash
# The tests of the native collector under AddressSanitizer, then under ThreadSanitizer; Linux, g++, torch.
#
#   scripts/sanitize_collector.sh [PYTHON]
#
# Python and torch are not instrumented: only what the collector itself does is checked. Leaks are not: the interpreter
# keeps what it allocates.
set -euo pipefail
cd "$(dirname "$0")/.."
PYTHON=${1:-python3}
LOGS=$(mktemp -d)
trap 'rm -rf "$LOGS"' EXIT
CXXLIB=$(gcc -print-file-name=libstdc++.so)

echo "== AddressSanitizer"
LANEWISE_NATIVE_FLAGS="-fsanitize=address -fno-omit-frame-pointer -g -O1" \
  LD_PRELOAD="$(gcc -print-file-name=libasan.so) $CXXLIB" \
  ASAN_OPTIONS="detect_leaks=0 exitcode=99" \
  "$PYTHON" -m pytest tests/capture/context/test_native.py tests/capture/context/test_agreement.py \
  tests/capture/context/test_device.py -k "not times"

echo "== ThreadSanitizer"
# Without random addresses: newer kernels place mappings where this sanitizer keeps its shadow. Without the tests that
# read traces: a background thread of polars' allocator crashes inside this sanitizer.
LANEWISE_NATIVE_FLAGS="-fsanitize=thread -g -O1" \
  LD_PRELOAD="$(gcc -print-file-name=libtsan.so) $CXXLIB" \
  TSAN_OPTIONS="exitcode=0 log_path=$LOGS/tsan" \
  setarch -R "$PYTHON" -m pytest tests/capture/context/test_native.py tests/capture/context/test_device.py \
  -k "not windows"
if grep -h "lanewise_context" "$LOGS"/* 2>/dev/null; then
  cat "$LOGS"/*
  echo "ThreadSanitizer reports the collector" >&2
  exit 1
fi
echo "== clean"
