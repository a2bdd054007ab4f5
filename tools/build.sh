#!/bin/sh
# build.sh -- cmake --build, with how far it is in place of a line for each file.
#
#     tools/build.sh FOLDER [ARGUMENT...]     the arguments are those of cmake --build
#
# On a terminal one line is rewritten; elsewhere a line says each quarter.  What the compilers say is shown in full.
set -u

folder=$1
shift
terminal=
quarter=0 # the last one that was printed
[ ! -t 1 ] || [ "${TERM:-dumb}" = dumb ] || terminal=1
clear_line=$(printf '\r\033[K')

show_step() # show_step STEP: '[57/180] Building ...' of ninja, '[ 57%] Building ...' of make
{
    step=${1%%]*}
    step=${step#[}
    of=100
    case $step in */*) of=${step#*/} ;; esac
    done=${step%%[/%]*}
    done=${done# } done=${done# }
    [ "$of" -gt 0 ] || return 0
    if [ "$terminal" ]; then
        printf '%s[%*s/%s] building' "$clear_line" "${#of}" "$done" "$of"
    elif [ $((done * 4 / of)) -gt "$quarter" ]; then
        quarter=$((done * 4 / of))
        echo "[$done/$of] building"
    fi
}

show_line() # show_line LINE
{
    [ -z "$terminal" ] || printf '%s' "$clear_line"
    printf '%s\n' "$1"
}

show_output()
{
    while IFS= read -r line || [ -n "$line" ]; do
        case $line in
        '['*[0-9]/[0-9]*'] '* | '['*[0-9]'%] '*) show_step "$line" ;;
        'ninja: Entering '* | 'ninja: no work '* | 'Consolidate compiler '* | '-- '*) ;; # of the work, not by it
        *) show_line "$line" ;;
        esac
    done
    [ -z "$terminal" ] || printf '%s' "$clear_line"
}

exec 4>&1
status=$({ { cmake --build "$folder" "$@" 2>&1 3>&-; echo $? >&3; } | show_output >&4; } 3>&1)
exit "$status"
