#!/bin/sh
# deps.sh -- installs what a job needs and the machine lacks, and nothing else.
#
#     tools/deps.sh [build] [check] [run] [onnx] [fuzz] [lint] [wasm] [dist] [dist-check]
#
# It looks for the thing itself (a program, a header), not for a package, so a
# compiler from elsewhere counts; only what is missing is asked of apt.
set -eu

missing=
wanted= # what the job can do without
need() # need PACKAGE PROGRAM...: one of the programs
{
    package=$1
    shift
    for program; do
        command -v "$program" >/dev/null 2>&1 && return
    done
    missing="$missing $package"
}
need_header() # need_header PACKAGE HEADER
{
    echo "#include <$2>" | ${CC:-cc} -E - >/dev/null 2>&1 || missing="$missing $1"
}
want() # want PACKAGE PROGRAM
{
    command -v "$2" >/dev/null 2>&1 || wanted="$wanted $1"
}
want_header() # want_header PACKAGE HEADER
{
    echo "#include <$2>" | ${CC:-cc} -E - >/dev/null 2>&1 || wanted="$wanted $1"
}
want_file() # want_file PACKAGE GLOB...: one of the files
{
    package=$1
    shift
    # shellcheck disable=SC2068 # the globs are meant to expand
    for file in $@; do
        [ ! -e "$file" ] || return 0
    done
    wanted="$wanted $package"
}
need_file() # need_file PACKAGE GLOB
{
    # shellcheck disable=SC2086 # the glob is meant to expand
    ls $2 >/dev/null 2>&1 || missing="$missing $1"
}

for job in "${@:-build}"; do
    case $job in
    build)
        need gcc "${CC:-cc}" cc
        need cmake cmake
        need_header libc6-dev stdio.h
        need_header zlib1g-dev zlib.h
        want ninja-build ninja                       # builds faster than make
        want_header libncurses-dev ncursesw/curses.h # the terminal view of `plimsoll top`
        want_header libsqlite3-dev sqlite3.h         # its log
        ;;
    check)
        need python3 python3
        need_header libcmocka-dev cmocka.h
        need pkg-config pkg-config
        need_file locales "/usr/share/i18n/locales/de_DE"
        want_file libcurl4 "/usr/lib/*/libcurl*.so.4" "/usr/lib*/libcurl*.so.4" # loaded to fetch from a hub
        ;;
    run)
        need g++ "${CXX:-c++}" c++
        need python3 python3
        need_file python3-venv "/usr/lib/python3*/ensurepip/__init__.py"
        ;;
    onnx)
        need_file libonnx-testdata "/usr/share/libonnx-testdata/data/node/*"
        ;;
    fuzz)
        need cmake cmake
        need clang clang
        need_header libc6-dev stdio.h
        need_header zlib1g-dev zlib.h
        need_file libclang-rt-14-dev "/usr/lib/llvm-*/lib/clang/*/lib/linux/*fuzzer*"
        ;;
    lint)
        need clang clang
        need clang-format clang-format
        need clang-tidy clang-tidy
        need mypy mypy
        ;;
    wasm)
        need clang clang
        need lld wasm-ld wasm-ld-14 wasm-ld-15 wasm-ld-16 wasm-ld-18
        need_file wasi-libc "/usr/include/wasm32-wasi/stdio.h"
        need_header zlib1g-dev zlib.h
        ;;
    dist)
        need git git
        need cmake cmake
        need dpkg dpkg-deb
        need_file python3-venv "/usr/lib/python3*/ensurepip/__init__.py"
        need_file debian-archive-keyring /usr/share/keyrings/debian-archive-keyring.gpg
        ;;
    dist-check)
        need lintian lintian
        need qemu-user-static qemu-aarch64-static
        need_file wine64 /usr/lib/wine/wine64
        need musl-tools musl-gcc
        need binutils readelf
        need pkg-config pkg-config
        ;;
    *)
        echo "deps.sh: unknown job '$job'" >&2
        exit 2
        ;;
    esac
done
[ -n "$missing$wanted" ] || exit 0

if ! command -v apt-get >/dev/null 2>&1; then
    [ -n "$missing" ] || exit 0
    echo "please install:$missing (there is no apt-get here to do it)" >&2
    exit 1
fi
sudo=
if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo >/dev/null 2>&1; then
        [ -n "$missing" ] || exit 0
        echo "please install:$missing (this is not root and there is no sudo)" >&2
        exit 1
    fi
    sudo=sudo
fi

echo "installing:$missing$wanted"
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# shellcheck disable=SC2086 # a list of words
apt_install()
{
    $sudo apt-get install -y --no-install-recommends $1 >"$log" 2>&1
}
# Package lists may be absent (a fresh container) or stale: then once more.
install() { apt_install "$1" || { $sudo apt-get update >"$log" 2>&1 && apt_install "$1"; }; }
if [ -n "$missing" ] && ! install "$missing"; then
    tail -n 5 "$log" >&2
    echo "could not install:$missing (the lines above are apt's)" >&2
    exit 1
fi
if [ -n "$wanted" ] && ! install "$wanted"; then
    echo "could not install:$wanted (it is built without)" >&2
fi
