#!/bin/sh
# check_headers.sh -- every header compiles alone, and twice: check_headers.sh [CC]
set -u
cd "$(dirname "$0")/.." || exit 1
cc=${1:-cc}
bad=0
for header in include/*.h src/*/*.h src/import/*/*.h cli/*.h; do
    [ -e "$header" ] || continue
    case $header in
    cli/*) paths="-Iinclude" ;; # not src: the program sees the public header only
    *) paths="-Iinclude -Isrc" ;;
    esac
    # shellcheck disable=SC2086 # a list of options
    printf '#include "%s"\n#include "%s"\n' "$PWD/$header" "$PWD/$header" |
        "$cc" -std=c11 -D_DEFAULT_SOURCE -Wall -Wextra -Wstrict-prototypes -Werror \
            -fsyntax-only $paths -x c - || { echo "$header does not compile alone"; bad=1; }
done
# The public headers are C++ too.
if command -v c++ >/dev/null 2>&1; then
    printf "#include <plimsoll.h>\n#include <plimsoll_vgpu.h>\n#include <plimsoll_live.h>\n" |
        c++ -std=c++11 -Wall -Wextra -Werror -fsyntax-only -Iinclude -x c++ - || bad=1
fi
exit $bad
