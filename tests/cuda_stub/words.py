#!/usr/bin/env python3
"""words.py -- what is said where PyTorch's allocator and the simulated one differ."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "src" / "vgpu" / "torch_shim"))
from plimsoll_front.agreement import differences  # noqa: E402


def counter(current=0, peak=0, allocated=0, freed=0):
    return {"current": current, "peak": peak, "allocated": allocated, "freed": freed}


def pools(small, large):
    return {"all": {k: small[k] + large[k] for k in small}, "small_pool": small, "large_pool": large}


SMALL, LARGE = counter(512, 1024, 2048, 1536), counter(0, 20 << 20, 20 << 20, 20 << 20)
PYTORCH = {"allocated_bytes": pools(SMALL, LARGE), "inactive_split": pools(SMALL, LARGE),
           "oversize_segments": counter(), "num_ooms": 0, "max_split_size": -1}
CASES = [
    ({}, []),
    ({"allocated_bytes": pools(SMALL, counter(0, 21 << 20, 20 << 20, 20 << 20))},
     ["allocated memory, at its peak: 20,972,544 bytes in PyTorch, 22,021,120 simulated, 1,048,576 more"]),
    ({"inactive_split": pools(counter(511, 1024, 2048, 1536), counter(1, 20 << 20, 20 << 20, 20 << 20))},
     ["small pool: free blocks in segments that are partly in use, at the end: 512 blocks in PyTorch, "
      "511 simulated, 1 less"]),
    ({"oversize_segments": counter(allocated=2), "num_ooms": 1},
     ["segments of max_split_size_mb and above, all that was added: 0 segments in PyTorch, 2 simulated, 2 more",
      "requests that failed: 0 times in PyTorch, 1 simulated, 1 more"]),
]
for other, wanted in CASES:
    said = list(differences(PYTORCH, {**PYTORCH, **other}))
    assert said == wanted, said
    assert not any("{" in sentence for sentence in said)
