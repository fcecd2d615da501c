#!/bin/sh
# with_sanitizer.sh asan|tsan COMMAND...: runs a command with the library's sanitizer build inside a
# Python that was not built for it. Leaks are checked in the C tests, where no Python is in the way.
set -eu
variant=$1
shift
root=$(cd "$(dirname "$0")/.." && pwd)
LUMEN_LIBRARY="$root/c/build/$variant/liblumen_uring.so"
LUMEN_SANITIZER=$variant
ASAN_OPTIONS=detect_leaks=0:abort_on_error=1
UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
TSAN_OPTIONS=halt_on_error=1:ignore_noninstrumented_modules=1:report_signal_unsafe=0
# Only the servers the tests start are sanitized: see tests/e2e.
LUMEN_SANITIZER_PRELOAD=$(gcc -print-file-name="lib$variant.so")
export LUMEN_LIBRARY LUMEN_SANITIZER LUMEN_SANITIZER_PRELOAD ASAN_OPTIONS UBSAN_OPTIONS TSAN_OPTIONS
exec "$@"
