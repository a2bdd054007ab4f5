#!/usr/bin/env python3
"""frames.py FRAME LIBRARIES [--update] -- what a terminal shows, frame by frame.

Each frame of FRAMES is drawn by live_frame on the machine of scenarios/growing.txt, or another,
and compared with frames/NAME.txt, which --update writes: then read the diff.  At the end, a day of
readings and frames, a second apart, takes no memory that the first tenth of it did not take.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

from machines import write_root

HERE = pathlib.Path(__file__).resolve().parent

# name: scenario, arguments of live_frame
FRAMES = {
    "80x24": ("growing", "80 24 20"),
    "200x50": ("growing", "200 50 120"),
    "ascii": ("growing", "--ascii 80 24 20"),
    "paint": ("growing", "--paint 80 24 60"),
    "by_user": ("growing", "80 24 3 ssssssssssss"),
    "by_predicted": ("growing", "80 24 3 ss"),
    "no_predictions": ("container", "80 24 3 ss"),  # that column is not there: by the next
    "reversed": ("growing", "80 24 3 r"),
    "second_row": ("growing", "80 24 20 >"),
    "filter": ("growing", "80 24 3 /XORG"),
    "filter_none": ("growing", "80 24 3 /zebra!"),
    "question": ("growing", "80 24 3 k"),
    "yes": ("growing", "80 24 3 ky"),
    "no": ("growing", "80 24 3 kn"),
    "force": ("growing", "80 24 3 >k9q"),
    "help": ("growing", "80 24 3 h"),
    "small": ("growing", "39 24 1"),
    "least": ("growing", "40 10 3"),
    "mig": ("mig", "100 30 3"),
    "lost": ("lost", "80 24 3"),
    "lying": ("lying", "80 24 3"),
    "container": ("container", "80 24 3 k"),
    "no_gpu": ("no_gpu", "80 24 3"),
}
HOUR, DAY = 3600, 86400


def run(frame, libraries, scenario, arguments, root=None):
    root = root or next(line.split()[2] for line in
                (HERE / "scenarios" / f"{scenario}.txt").read_text().splitlines()
                if line.startswith("# root"))
    with tempfile.TemporaryDirectory() as folder:
        write_root(root, pathlib.Path(folder))
        env = dict(os.environ, PLIMSOLL_NVML=f"{libraries}/nvml-550.so", PLIMSOLL_ROOT=folder,
                   PLIMSOLL_SCENARIO=str(HERE / "scenarios" / f"{scenario}.txt"))
        return subprocess.run([frame, *arguments.split(" ")], env=env, check=True, timeout=300,
                              stdout=subprocess.PIPE).stdout.decode("utf-8")


def main():
    frame, libraries = (os.path.abspath(x) for x in sys.argv[1:3])
    failed = 0
    for name, (scenario, arguments) in FRAMES.items():
        got = run(frame, libraries, scenario, arguments)
        expected = HERE / "frames" / f"{name}.txt"
        if "--update" in sys.argv:
            expected.parent.mkdir(exist_ok=True)
            expected.write_text(got, encoding="utf-8")
        elif not expected.exists() or expected.read_text(encoding="utf-8") != got:
            print(f"{expected}: now\n{got}")
            failed += 1
    # Reading /proc takes most of the time: an hour of it has to do.
    for seconds, root in ((HOUR, "host"), (DAY, "empty")):
        more = run(frame, libraries, "r550", f"--day 80 24 {seconds}", root)
        if more != "0 bytes more\n":
            print(f"{seconds} readings take {more}")
            failed += 1
    print(f"{len(FRAMES)} frames and a day, {failed} differ")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
