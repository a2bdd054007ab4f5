#!/usr/bin/env python3
"""driver.py FILE... -- the rule by which CUDA's driver places allocations, and whether what probe.py recorded follows it.

 * Memory lies in reservations of address space, each of a multiple of 32 MiB.  An allocation takes the newest reservation
   that has room for it, and in it the smallest free range, of several the lowest.
 * Where none has room, a new one is made: of the allocation's size, rounded up to 32 MiB, at the upper end of the highest
   gap that is larger than that by 32 MiB at least; the driver aligns what mmap() gave it.
 * A reservation in which nothing is left goes.  What the context has left of its own are the oldest: first those at higher
   addresses.

Sizes are multiples of 2 MiB, as those of PyTorch's segments; smaller ones share pages by a rule of their own.  Seen on an
H100 with driver 580.159.04, CUDA 13.0.  Prints what differs; exit 1 if anything does.
"""
import pathlib
import re
import sys

ALIGN = 16  # units of 2 MiB


def round_up(units):
    return -(-units // ALIGN) * ALIGN


class Reservation:
    def __init__(self, begin, end, stays=False):
        self.begin, self.end, self.stays = begin, end, stays
        self.taken = {}  # place: units

    def holes(self):
        at = self.begin
        for place in sorted(self.taken):
            if place > at:
                yield place - at, at
            at = place + self.taken[place]
        if at < self.end:
            yield self.end - at, at

    def find(self, units):
        return min((hole for hole in self.holes() if hole[0] >= units), default=(0, None))[1]


class Driver:
    """top: the upper end of the gap for the first reservation of its own; context: ranges that the context has left."""

    def __init__(self, top, context):
        self.top = top
        self.reservations = [Reservation(*each, stays=True) for each in sorted(context, reverse=True)]

    def gaps(self):
        """From the highest; the last has no lower end."""
        above = self.top
        for each in sorted((r for r in self.reservations if not r.stays), key=lambda r: -r.begin):
            yield each.end, above
            above = each.begin
        yield None, above

    def take(self, units):
        for reservation in reversed(self.reservations):
            if (place := reservation.find(units)) is not None:
                break
        else:
            size = round_up(units)
            end = next(above for below, above in self.gaps() if below is None or above - below >= size + ALIGN)
            reservation = Reservation(end - size, end)
            self.reservations.append(reservation)
            place = reservation.begin
        reservation.taken[place] = units
        return place

    def give(self, place):
        reservation = next(r for r in self.reservations if place in r.taken)
        del reservation.taken[place]
        if not reservation.taken and not reservation.stays:
            self.reservations.remove(reservation)


def read_sequences(path):
    """(name, events): (units, place) of an allocation, the number of the released one."""
    for part in re.split(r"^# ", path.read_text(encoding="utf-8"), flags=re.M)[1:]:
        head, _, body = part.partition("\n")
        name, first = re.fullmatch(r"(\w+): CUDA \d+, from (0x\w+)", head).groups()
        base = int(first, 16) // (2 << 20)
        events = []
        for event in body.split():
            units, at, place = event.partition("@")
            events.append((int(units), base + int(place)) if at else -int(event))
        yield name, events


def find_context(events):
    """What a recording shows of the address space before it: the first place that a reservation begins at, as those of the
    context end there, and where these begin, at an allocation elsewhere."""
    context, own = {}, []
    for event in events:
        if isinstance(event, tuple) and event[1] % ALIGN == 0 and not own:
            own.append(event[1] + round_up(event[0]))
        if isinstance(event, tuple) and event[1] % ALIGN and (not own or event[1] >= own[0]):
            end = round_up(event[1])
            context[end] = min(context.get(end, event[1]), event[1])
    return own[0], [(begin, end) for end, begin in context.items()]


def check(path):
    count = wrong = 0
    for name, events in read_sequences(path):
        driver, places = Driver(*find_context(events)), []
        for i, event in enumerate(events):
            if not isinstance(event, tuple):
                driver.give(places[event])
                continue
            units, place = event
            places.append(place)
            count += 1
            if (got := driver.take(units)) != place:
                wrong += 1
                print(f"{path.name}: {name}, event {i}: {units} units at {place}, by the rule at {got}")
                break
    print(f"{path.name}: {count} allocations, {wrong} sequences that differ")
    return wrong


if __name__ == "__main__":
    sys.exit(any([check(pathlib.Path(path)) for path in sys.argv[1:]]))
