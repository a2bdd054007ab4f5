#!/usr/bin/env python3
"""accuracy.py -- lays predictions beside what others measured, as a table for docs/accuracy.md.

    tools/accuracy.py timm_measured_gpu_memory.csv [build/plimsoll]

The table of the GPUMemNet study (model, batch_size, measured_max_gpu_memory_mib) is not part of this project. Rows whose
memory falls while the batch grows ran out of memory unnoticed, and are left out with what follows them.
"""
import collections
import csv
import json
import subprocess
import sys

SAME = {  # their timm model: ours
    "resnet34": "resnet34",
    "resnext50_32x4d": "resnext50_32x4d",
    "wide_resnet101_2": "wide_resnet101_2",
    "vgg11_bn": "vgg11_bn",
    "vgg13": "vgg13",
    "vgg13_bn": "vgg13_bn",
    "convnext_tiny": "convnext_tiny",
    "convnext_small": "convnext_small",
    "convnext_large": "convnext_large",
    "swin_tiny_patch4_window7_224": "swin_t",
    "vit_large_patch16_224": "vit_l_16",
}


def main():
    program = sys.argv[2] if len(sys.argv) > 2 else "build/plimsoll"
    measured = collections.defaultdict(dict)
    with open(sys.argv[1], newline="") as f:
        for row in csv.DictReader(f):
            measured[row["model"]][int(row["batch_size"])] = float(row["measured_max_gpu_memory_mib"])
    print("| model | batch | predicted, MiB | measured, MiB | middle, error |")
    print("| --- | ---: | ---: | ---: | ---: |")
    errors = []
    for theirs, ours in SAME.items():
        last = 0
        for batch, mib in sorted(measured[theirs].items()):
            if mib < last:
                break
            last = mib
            out = subprocess.run([program, "estimate", ours, "--batch", str(batch), "--optimizer", "adam", "--torch", "2.1",
                                  "--gpu", "a100", "--json"], stdout=subprocess.PIPE, check=False).stdout
            m = json.loads(out)["memory"]
            low, high = m["device_low"] / 2**20, m["device_high"] / 2**20
            error = ((low + high) / 2 - mib) / mib * 100
            errors.append(abs(error))
            print(f"| {ours} | {batch} | {low:.0f}-{high:.0f} | {mib:.0f} | {error:+.1f} % |")
    errors.sort()
    print(f"\n{len(errors)} rows, median error {errors[len(errors) // 2]:.1f} %, largest {errors[-1]:.1f} %")


main()
