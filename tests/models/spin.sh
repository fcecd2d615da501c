#!/bin/sh
# spin.sh: verifies the SPIN models, and their mutants, which must fail. Where spin is not installed
# it says so and succeeds.  spin.sh BUILD_DIR
set -u
build=${1:-build}
if ! command -v spin >/dev/null 2>&1; then
    echo "skipped  the SPIN models: spin is not installed (apt-get install spin)"
    exit 0
fi
here=$(cd "$(dirname "$0")" && pwd)
status=0

# check MODEL good|bad FLAGS
check() {
    dir=$build/spin/$1-$(echo "$3" | tr -d ' -')
    mkdir -p "$dir"
    began=$(date +%s%N)
    (cd "$dir" && spin -a $3 "$here/$1.pml" >spin.log 2>&1 &&
        ${CC:-gcc} -O2 -w -DSAFETY -o pan pan.c && ./pan -m100000 >pan.log 2>&1)
    states=$(sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' "$dir/pan.log")
    errors=$(sed -n 's/.*errors: \([0-9]*\).*/\1/p' "$dir/pan.log")
    complete=yes
    grep -q "max search depth too small" "$dir/pan.log" && complete=no
    if [ "$2" = good ] && [ "$errors" = 0 ] && [ $complete = yes ]; then verdict=ok
    elif [ "$2" = bad ] && [ "${errors:-0}" -gt 0 ]; then verdict=killed
    else verdict=FAILED; status=1; fi
    printf '%-8s spin %-8s %-24s %10s states, %d ms\n' "$verdict" "$1" "$3" "${states:-?}" \
        $((($(date +%s%N) - began) / 1000000))
}

check sleep good ""
check sleep good "-DSTOP"
check returns good ""
check sleep bad "-DNO_WAKE"
check sleep bad "-DNO_RECHECK"
check sleep bad "-DNO_CHAIN"
check sleep bad "-DSTOP -DNO_WAKE_ALL"
check sleep bad "-DSTOP -DNO_STOP_CHECK"
check returns bad "-DNO_WAKE"
check returns bad "-DNO_DEPTH"
check returns bad "-DPLAIN_EXCHANGE"
exit $status
