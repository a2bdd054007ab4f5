#!/bin/bash -eu
# build.sh -- every target of tests/fuzz, as OSS-Fuzz wants them (projects/plimsoll there is this folder):
#
#     SRC=... WORK=... OUT=... CC=clang CXX=clang++ CFLAGS=... LIB_FUZZING_ENGINE=... build.sh
#
# $SRC/plimsoll is the source.  In $OUT: the fuzzers, NAME_seed_corpus.zip, and NAME.dict where the input
# has words.  zlib and SQLite are linked in: where fuzzers run they are not installed.
fuzz=$SRC/plimsoll/tests/fuzz
build=$WORK/plimsoll
archive() { "$CC" -print-file-name="lib$1.a"; }

cmake -S "$SRC/plimsoll" -B "$build" -DCMAKE_BUILD_TYPE=None -DPLIM_DEBUG=ON -DPLIM_HARDENING=OFF \
    -DPLIM_FUZZ_ENGINE="$LIB_FUZZING_ENGINE" -DZLIB_LIBRARY="$(archive z)" -DSQLite3_LIBRARY="$(archive sqlite3)"
cmake --build "$build" -j"$(nproc)" --target fuzzers

for source in "$fuzz"/fuzz_*.c; do
    name=$(basename "$source" .c)
    target=${name#fuzz_}
    cp "$build/$name" "$OUT/"
    (cd "$fuzz/corpus/$target" && cmake -E tar cf "$OUT/${name}_seed_corpus.zip" --format=zip -- *)
    words=$("$fuzz/words.py" "$target")
    [ -z "$words" ] || echo "$words" >"$OUT/$name.dict"
done
