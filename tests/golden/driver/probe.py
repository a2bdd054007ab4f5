#!/usr/bin/env python3
"""probe.py -- records where the CUDA driver puts allocations: which addresses, in which order, after which frees.

    probe.py OUT                   on a machine with a card; a process for each sequence

Needs libcuda.so.1 alone.  OUT has a line '# NAME ...' for each sequence, then its events: SIZE@PLACE of an allocation, -N for
the release of the N-th (from 0), in units of 2 MiB, places from the first one on.  tests/unit/test_place.c
replays them.
"""
import ctypes
import random
import subprocess
import sys

UNIT = 2 << 20
SEQUENCES = ["two", "twenty", "grow", "order", "few1", "torch1", "torchfree1", "mixb1", "large1"]
GIB = (1 << 30) // UNIT
BY_CHANCE = {  # what is requested, what is held at most, how often something is released, all in units
    "few": (lambda draw: draw.choice([1, 10]), 60 * GIB, 0.5),
    "torch": (lambda draw: draw.choice([1] * 4 + [10] * 4 + [draw.randrange(10, 400)]), 60 * GIB, 0.1),
    "torchfree": (lambda draw: draw.choice([1] * 4 + [10] * 4 + [draw.randrange(10, 400)]), 60 * GIB, 0.5),
    "mixb": (lambda draw: draw.choice([1, 2, 4, 8, 10, 12, 16, 17, 24, 32, 48, 64, 128, 256]), 40 * GIB, 0.5),
    "large": (lambda draw: draw.randrange(100, 2000), 70 * GIB, 0.5)}


class Card:
    def __init__(self):
        self.cuda, device, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)
        self.at, self.live, self.events = [], {}, []

    def call(self, name, *arguments):
        if code := getattr(self.cuda, name)(*arguments):
            raise RuntimeError(f"{name}: {code}")

    def take(self, units):
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(units * UNIT))
        self.live[len(self.at)] = units
        self.at.append(address.value)
        self.events.append(f"{units}@{(address.value - self.at[0]) // UNIT}")

    def give(self, number):
        self.call("cuMemFree_v2", ctypes.c_uint64(self.at[number]))
        del self.live[number]
        self.events.append(f"-{number}")


def give_all(card):
    for number in list(card.live):
        card.give(number)


def run(card, name, draw):
    if name == "two":
        for _ in range(600):
            card.take(1)
        for number in range(0, 600, 2):
            card.give(number)
        for _ in range(350):
            card.take(1)
        give_all(card)
        for _ in range(50):
            card.take(1)
    elif name == "twenty":
        for _ in range(100):
            card.take(10)
        for number in range(0, 100, 3):
            card.give(number)
        for _ in range(60):
            card.take(draw.choice([1, 2, 3, 4, 5, 6, 7, 10]))
    elif name == "grow":
        for units in range(1, 120):
            card.take(units)
        give_all(card)
        for units in range(119, 0, -1):
            card.take(units)
    elif name == "order":
        for units in 10, 1, 16, 17, 32, 33, 250, 1, 300, 1, 10, 10, 15, 20, 1, 1:
            card.take(units)
        for number in 0, 2, 4, 6:
            card.give(number)
        for units in 1, 10, 2, 15, 30, 5, 245, 3, 4, 6:
            card.take(units)
        give_all(card)
        for units in 10, 1, 16, 17, 32, 33, 250, 1, 300, 1:
            card.take(units)
    else:
        request, most, often = BY_CHANCE[name.rstrip("0123456789")]
        for step in range(2500):
            if card.live and (sum(card.live.values()) > most or draw.random() < often):
                card.give(draw.choice(list(card.live)))
            else:
                card.take(request(draw))
            if name.startswith("torchfree") and step % 500 == 499:
                give_all(card)


def main():
    if len(sys.argv) == 4:
        card = Card()
        run(card, sys.argv[3], random.Random(sys.argv[3]))
        version = ctypes.c_int()
        card.call("cuDriverGetVersion", ctypes.byref(version))
        print(f"# {sys.argv[3]}: CUDA {version.value}, from {card.at[0]:#x}")
        lines = [""]
        for event in card.events:
            if len(lines[-1]) + len(event) > 110:
                lines.append("")
            lines[-1] += " " * bool(lines[-1]) + event
        print("\n".join(lines))
        return
    with open(sys.argv[1], "w", encoding="utf-8") as out:
        for name in SEQUENCES:
            subprocess.run([sys.executable, __file__, sys.argv[1], "--", name], stdout=out, check=True)


if __name__ == "__main__":
    main()
