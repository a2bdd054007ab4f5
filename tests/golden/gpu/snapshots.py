#!/usr/bin/env python3
"""snapshots.py PROGRAM -- memory snapshots of an H100 that begin in the middle of a program.

Random requests of 2026-11-27 against PyTorch's allocator on an NVIDIA H100 80GB HBM3 (driver 580.159.04), within 3 or
4 % of the card, so that memory runs short: on several streams, with max_split_size_mb and with
garbage_collection_threshold.  counters.jsonl has what torch.cuda.memory_stats() said at the end, current and peak.
`plimsoll replay` must find the same address for each block, the version by itself, and these counters.
"""
import gzip
import json
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent / "snapshots"


def replay(program, packed):
    with tempfile.NamedTemporaryFile(suffix=".pickle") as file:
        file.write(gzip.decompress(packed.read_bytes()))
        file.flush()
        return json.loads(subprocess.run([program, "replay", file.name, "--json"], stdout=subprocess.PIPE).stdout)  # 1: a request failed


def differences(row, told):
    recorded = told["recorded"]
    if not recorded["agrees"]:
        yield f"does not agree: {recorded['difference']}"
    if not row["torch"].startswith(recorded["torch"] + "."):
        yield f"was compared with PyTorch {recorded['torch']}"
    for name, (current, peak) in row["counters"].items():
        said = told["stats"][name]
        if (said["current"], said["peak"]) != (current, peak):
            yield f"{name}: {current}, at most {peak}, were recorded; {said['current']}, {said['peak']} are told"


def main(program):
    bad = 0
    for line in (HERE / "counters.jsonl").read_text().splitlines():
        row = json.loads(line)
        found = list(differences(row, replay(program, HERE / f"{row['file']}.pickle.gz")))
        bad += bool(found)
        print(f"{row['file']} {row['conf'] or 'no settings'}: {'; '.join(found) or 'equal'}")
    sys.exit(bad > 0)


main(*sys.argv[1:])
