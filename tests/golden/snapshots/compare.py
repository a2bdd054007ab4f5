#!/usr/bin/env python3
"""compare.py -- replays every snapshot of a folder: which ones does the simulated allocator agree with?

    compare.py PLIMSOLL FOLDER      exit status 1: it differs from one of them
"""
import json
import pathlib
import subprocess
import sys


def main():
    program, folder = sys.argv[1:]
    wrong = 0
    for file in sorted(pathlib.Path(folder).rglob("*.pickle")):
        version = file.stem.rpartition("-")[2]
        done = subprocess.run([program, "replay", file, "--torch", version, "--json"], check=False, capture_output=True, text=True)
        told = json.loads(done.stdout)["recorded"] if done.stdout else {"difference": done.stderr.strip()}
        agrees = told.get("agrees") is True
        wrong += not agrees
        print(f"{file.stem}: {'agrees' if agrees else told['difference']}")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
