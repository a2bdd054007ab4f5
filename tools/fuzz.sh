#!/bin/sh
# fuzz.sh -- runs fuzz targets: tools/fuzz.sh BUILD SECONDS [TARGET...]
# As many at a time as there are cores. New inputs go to BUILD/corpus/<target>;
# what crashes is left in BUILD.
set -eu
build=$1 seconds=$2
shift 2
source=$(cd "$(dirname "$0")/.." && pwd)
if [ $# = 0 ]; then
    for file in "$source"/tests/fuzz/fuzz_*.c; do
        [ -e "$file" ] || { echo "there is no fuzz target yet"; exit 0; }
        name=$(basename "$file" .c)
        set -- "$@" "${name#fuzz_}"
    done
fi
cd "$build"
for target; do
    [ -x "fuzz_$target" ] || { echo "there is no fuzz target '$target'" >&2; exit 2; }
done
export source seconds
# shellcheck disable=SC2016 # for the inner shell
printf '%s\n' "$@" | xargs -P "$(nproc)" -I '{}' sh -eu -c '
    target=$1 seeds=$source/tests/fuzz/corpus/$1
    mkdir -p "corpus/$target"
    [ -d "$seeds" ] || seeds=
    "$source/tests/fuzz/words.py" "$target" >"fuzz_$target.dict"
    words=-dict=fuzz_$target.dict
    [ -s "fuzz_$target.dict" ] || words=
    # shellcheck disable=SC2086 # no seeds, no words: no argument
    if ! "./fuzz_$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=1024 $words \
        -artifact_prefix="crash-$target-" "corpus/$target" $seeds >"fuzz_$target.log" 2>&1; then
        tail -n 60 "fuzz_$target.log"
        exit 1
    fi
    echo "fuzz $target, $seconds s: $(tail -n 1 "fuzz_$target.log")"' fuzz '{}'
