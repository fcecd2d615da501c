#!/bin/sh
# with_sanitizer.sh asan|tsan COMMAND...: runs the end-to-end tests' servers on the library's sanitizer
# build, inside a Python that was not built for it: the runtime is preloaded into the servers alone.
# Leaks are checked in the C tests, where no Python is in the way. ThreadSanitizer looks at our own
# code; ONNX Runtime, Python and libc are not instrumented and are ignored.
set -eu
variant=$1
shift
root=$(cd "$(dirname "$0")/.." && pwd)
LUMEN_E2E_LIBRARY="$root/c/build/$variant/liblumen_uring.so"
# libstdc++ beside it: the runtime looks for the exception functions when it starts.
LUMEN_E2E_PRELOAD="$(gcc -print-file-name="lib$variant.so") $(gcc -print-file-name=libstdc++.so.6)"
ASAN_OPTIONS=detect_leaks=0:abort_on_error=1
UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
TSAN_OPTIONS=halt_on_error=1:ignore_noninstrumented_modules=1:report_signal_unsafe=0:exitcode=66
export LUMEN_E2E_LIBRARY LUMEN_E2E_PRELOAD ASAN_OPTIONS UBSAN_OPTIONS TSAN_OPTIONS
exec "$@"
