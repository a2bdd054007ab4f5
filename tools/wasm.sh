#!/bin/sh
# wasm.sh -- compiles the library for wasm32-wasi: tools/wasm.sh OUT
#
# This proves that the code builds where size_t has 32 bits; it is not the web
# page.  Files are read through wasi-libc's emulated mmap; src/vgpu (the
# pretend GPU), src/live (this machine's GPUs) and what fetches from the hub are left out; zlib is compiled against (its header is plain C), not linked.
set -eu
out=$1
cd "$(dirname "$0")/.."
tools/deps.sh wasm
sysroot=${WASI_SYSROOT:-/usr}
[ -e "$sysroot/include/wasm32-wasi/stdio.h" ] || {
    echo "no wasi-libc below '$sysroot' (set WASI_SYSROOT)" >&2
    exit 1
}
rm -rf "$out"
mkdir -p "$out/include"
for header in zlib.h zconf.h; do
    path=$(echo "#include <$header>" | ${CC:-cc} -E -M - | tr ' ' '\n' | grep "/$header\$" | head -n 1)
    cp "$path" "$out/include/"
done
texts=$(printf '%s;' "$PWD"/src/families/*.fam)
cmake "-Dtexts=${texts%;}" "-Dsource=$out/families_text.c" -P cmake/families_text.cmake
n=0
for source in src/*/*.c src/import/*/*.c "$out/families_text.c"; do
    case $source in src/vgpu/* | src/live/* | *_windows.c | src/hub/fetch.c | src/hub/store.c | src/hub/web.c) continue ;; esac
    clang --target=wasm32-wasi --sysroot="$sysroot" -isystem "$sysroot/include/wasm32-wasi" \
        -std=c11 -O2 -Wall -Wextra -Werror -D_DEFAULT_SOURCE -D_WASI_EMULATED_MMAN \
        -Iinclude -Isrc -isystem "$out/include" -c "$source" -o "$out/$(basename "$source" .c).o"
    n=$((n + 1))
done
ar=$(command -v llvm-ar || ls /usr/bin/llvm-ar-* | head -n 1)
"$ar" rcs "$out/libplimsoll.a" "$out"/*.o
echo "$out/libplimsoll.a: $n files compiled for wasm32-wasi (vgpu and live left out, zlib not linked)"
