#!/bin/sh
# golden.sh -- runs every tests/golden/**/record*.py: each writes its own files.
set -eu
cd "$(dirname "$0")/.."
found=$(find tests/golden -name 'record*.py' 2>/dev/null | sort)
[ -n "$found" ] || { echo "tests/golden holds no record*.py"; exit 0; }
python3 -c 'import torch' 2>/dev/null || {
    echo "make golden needs python3 with PyTorch (checking needs neither)" >&2
    exit 1
}
for script in $found; do
    echo "$script"
    python3 "$script"
done
