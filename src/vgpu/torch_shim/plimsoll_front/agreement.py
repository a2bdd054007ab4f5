"""PyTorch's own allocator against the simulated one, in words."""

MEANING = {  # of a counter of torch.cuda.memory_stats, and its unit
    "allocated_bytes": ("allocated memory", "bytes"),
    "reserved_bytes": ("reserved memory", "bytes"),
    "active_bytes": ("memory that is allocated or waits for a stream", "bytes"),
    "requested_bytes": ("requested memory", "bytes"),
    "inactive_split_bytes": ("free memory in segments that are partly in use", "bytes"),
    "allocation": ("allocated blocks", "blocks"),
    "active": ("blocks that are allocated or wait for a stream", "blocks"),
    "segment": ("segments", "segments"),
    "inactive_split": ("free blocks in segments that are partly in use", "blocks"),
    "oversize_allocations": ("allocated blocks of max_split_size_mb and above", "blocks"),
    "oversize_segments": ("segments of max_split_size_mb and above", "segments"),
    "num_alloc_retries": ("requests that were tried again after releasing what was cached", "times"),
    "num_ooms": ("requests that failed", "times"),
    "num_device_alloc": ("segments taken from the device", "times"),
    "num_device_free": ("segments given back to the device", "times"),
}
POOLS = {"all": "", "small_pool": "small pool: ", "large_pool": "large pool: "}
COLUMNS = {"peak": ", at its peak", "current": ", at the end", "allocated": ", all that was added",
           "freed": ", all that was taken away"}


def first_difference(theirs, ours):
    """(pool, column, their number, ours) of two counters; None: they are equal."""
    if not isinstance(theirs, dict):
        return ("all", None, theirs, ours) if theirs != ours else None
    if "peak" in theirs:  # one without pools
        theirs, ours = {"all": theirs}, {"all": ours}
    for pool in POOLS:
        for column in COLUMNS:
            pair = theirs.get(pool, {}).get(column), ours.get(pool, {}).get(column)
            if pair[0] != pair[1]:
                return (pool, column, *pair)
    return None


def differences(theirs, ours):
    """A sentence for each counter, {name: value as in memory_stats_as_nested_dict}, that both
    have and that is not equal: on the first of its numbers that is not."""
    for name, (what, unit) in MEANING.items():
        found = name in theirs and name in ours and first_difference(theirs[name], ours[name])
        if found:
            pool, column, want, have = found
            yield (f"{POOLS[pool]}{what}{COLUMNS.get(column, '')}: {want:,} {unit} in PyTorch, "
                   f"{have:,} simulated, {abs(have - want):,} {'more' if have > want else 'less'}")
