"""tapes.py A B -- shows where two tapes of the same run differ, allocation by allocation.

Frees between two allocations are compared as a set: the order in
which a function releases its local variables is unspecified."""

import difflib
import sys


def read(path):
    """[(bytes, name, phase, freed)]: one for each allocation, with the bytes of what
    was freed since the one before."""
    out, live, phase, freed = [], {}, "load", []
    for line in open(path):
        word = line.split()
        if word[0] == "@":
            phase = f"{word[1]} {word[2]}"
        elif word[0] == "+":
            size, name = int(word[2]), " ".join(word[4:])
            out.append((size, name, phase, tuple(sorted(freed))))
            live[word[1]] = size
            freed = []
        elif word[0] == "-":
            freed.append(live.pop(word[1], 0))
    return out


def differences(a, b, frees=False):
    """Opcodes of difflib where sizes (and, if asked, frees) differ."""
    def key(row):
        return (row[0], row[3]) if frees else row[0]
    match = difflib.SequenceMatcher(None, [key(r) for r in a], [key(r) for r in b], False)
    return [op for op in match.get_opcodes() if op[0] != "equal"]


def show(a, b, most=12, frees=False):
    ops = differences(a, b, frees)
    for tag, i, j, k, l in ops[:most]:
        print(f"{tag} at {i} / {k}, {a[min(i, len(a) - 1)][2]}")
        for sign, rows in (("-", a[i:j]), ("+", b[k:l])):
            for size, name, phase, freed in rows[:8]:
                extra = f"  freed {list(freed)}" if frees else ""
                print(f"  {sign} {size:>12} {name} ({phase}){extra}")
    if len(ops) > most:
        print(f"... {len(ops) - most} more")
    return not ops


if __name__ == "__main__":
    sys.exit(not show(read(sys.argv[1]), read(sys.argv[2]), frees="--frees" in sys.argv))
