#!/usr/bin/env python3
"""Writes tests/cases/alloc/tensorflow.txt: what TensorFlow's own BFC allocator did.

TensorFlow serves tensors on the CPU with the allocator that it has for GPUs if it is told to.  Random
tensors are made and dropped; after each step its bytes in use are recorded.  They show which chunk was
taken, and whether it was cut.  A tensor's shape is a tensor too, of 4 bytes.

    python tests/golden/bfc/record.py > tests/cases/alloc/tensorflow.txt
"""
import os
import random

LIMIT_MB = 768  # more than the tensors need: TensorFlow waits ten seconds before it gives up
STEPS = 400
os.environ["TF_CPU_ALLOCATOR_USE_BFC"] = "true"
os.environ["TF_CPU_BFC_MEM_LIMIT_IN_MB"] = str(LIMIT_MB)
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import tensorflow as tf  # noqa: E402


def use():
    return tf.config.experimental.get_memory_info("CPU:0")


def step(live, number, draw):
    """Makes or drops a tensor; returns the lines of the tape."""
    if live and draw.random() < 0.42:
        victim = draw.choice(sorted(live))
        del live[victim]
        return [f"- {victim}"]
    size = draw.randint(1, draw.choice([1000, 100_000, 2_000_000, 12_000_000, 40_000_000]))
    shape = tf.constant([size], tf.int32)
    live[number] = tf.raw_ops.Empty(shape=shape, dtype=tf.uint8, init=False)
    return [f"+ {number + 1} 4", f"+ {number} {size}", f"- {number + 1}"]


def main():
    draw, live = random.Random(0), {}
    print("# What TensorFlow's own allocator did; the format is that of vectors.txt.")
    print("#")
    print(f"# Written by tests/golden/bfc/record.py with TensorFlow {tf.__version__}, on the CPU.")
    print(f"\ncase random tensors\nallocator bfc\nconf memory_limit_mb:{LIMIT_MB},preallocate:False")
    for i in range(STEPS):
        lines = step(live, 2 * i + 1, draw)
        now = use()
        print("\n".join(lines))
        print(f"= allocated {now['current']} peak_allocated {now['peak']}")
    for name in sorted(live):
        del live[name]
        print(f"- {name}")
    print(f"= allocated {use()['current']}")


main()
