#!/bin/sh
# Makes sure of what pip cannot install: C and C++ compilers, make, the headers of liburing,
# libsodium, simdjson, libjpeg-turbo, libspng and zlib, and Python with venv.
# Uses apt where it may; otherwise prints the one line to type and stops.
set -eu
python=${PYTHON:-python3}

missing=
has_header() { echo "#include <$1>" | ${CC:-cc} -E - >/dev/null 2>&1; }
command -v "${CC:-cc}" >/dev/null 2>&1 || missing="$missing gcc libc6-dev"
command -v "${CXX:-c++}" >/dev/null 2>&1 || missing="$missing g++"
command -v make >/dev/null 2>&1 || missing="$missing make"
has_header liburing.h || missing="$missing liburing-dev"
has_header sodium.h || missing="$missing libsodium-dev"
has_header jpeglib.h || missing="$missing libjpeg-dev"
has_header spng.h || missing="$missing libspng-dev"
has_header zlib.h || missing="$missing zlib1g-dev"
echo '#include <simdjson.h>' | ${CXX:-c++} -x c++ -E - >/dev/null 2>&1 || missing="$missing libsimdjson-dev"
if command -v "$python" >/dev/null 2>&1; then
    "$python" -c 'import ensurepip, venv' 2>/dev/null || missing="$missing python3-venv"
else
    missing="$missing python3 python3-venv"
fi

if [ -n "$missing" ]; then
    install="apt-get install -y --no-install-recommends$missing"
    if ! command -v apt-get >/dev/null 2>&1; then
        echo "Lumen needs:$missing (as Debian names them). Install them with your system's package manager." >&2
        exit 1
    fi
    if [ "$(id -u)" = 0 ]; then
        sudo=
    elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
        sudo=sudo
    else
        # A machine without sudo has another way to be root; a new one has no list of packages yet.
        echo "Lumen needs a few system packages, then this command again." >&2
        if command -v sudo >/dev/null 2>&1; then
            echo "Type: sudo apt-get update && sudo $install" >&2
        else
            echo "As root, type: apt-get update && $install" >&2
        fi
        exit 1
    fi
    echo "Installing:$missing"
    export DEBIAN_FRONTEND=noninteractive
    $sudo apt-get update -qq
    # shellcheck disable=SC2086 # a list of words
    $sudo $install -qq
fi

"$python" - <<'CHECK'
import sys
if sys.version_info < (3, 10):
    found = ".".join(map(str, sys.version_info[:3]))
    sys.exit(f"Lumen needs Python 3.10 or later, found {found}; try: make PYTHON=python3.12 run")
CHECK
