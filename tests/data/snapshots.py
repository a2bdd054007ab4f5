#!/usr/bin/env python3
"""snapshots.py -- writes tests/data/snapshots: small memory snapshots as the versions of PyTorch
write them, by hand, for what the recorded ones of tests/golden/snapshots do not have.

    tests/data/snapshots.py

src: torch/csrc/cuda/Module.cpp and torch/cuda/_memory_viz.py of 1.13, 2.0, 2.1 and 2.13
"""
import pathlib
import pickle

HERE = pathlib.Path(__file__).resolve().parent / "snapshots"
MIB = 1 << 20
BASE = 0x7f0000000000
FRAMES = [{"name": "forward", "filename": "/usr/lib/python3.11/site-packages/torch/nn/modules/linear.py", "line": 114},
          {"name": "step", "filename": "/home/user/train.py", "line": 21}]
OTHER = [{"name": "load", "filename": "/home/user/train.py", "line": 5}]


def block(state, size, **more):
    return {"state": state, "size": size, **more}


def segment(address, blocks, **more):
    total = sum(b["size"] for b in blocks)
    return {"device": 0, "address": address, "total_size": total, "stream": 0, "segment_type": "large",
            "allocated_size": 0, "active_size": 0, **more, "blocks": blocks}


def action(what, addr, size, **more):
    return {"action": what, "addr": addr, "size": size, "stream": 0, **more}


# memory_snapshot() of 1.10: a list, blocks with nothing but size and state
list_1_10 = [segment(BASE, [block("active_allocated", 5 * MIB), block("inactive", 15 * MIB)]),
             segment(BASE + 32 * MIB, [block("active_awaiting_free", 1024), block("inactive", 2 * MIB - 1024)],
                     segment_type="small")]

# _record_memory_history of 1.13: blocks have the history of their addresses, the latest first
history_1_13 = [segment(BASE, [
    block("active_allocated", 5 * MIB, history=[{"addr": BASE, "real_size": 5 * MIB - 100, "frames": FRAMES},
                                                {"addr": BASE, "real_size": 77, "frames": OTHER}]),
    block("inactive", 15 * MIB, history=[{"addr": BASE + 5 * MIB, "real_size": 3 * MIB, "frames": OTHER}])])]

# 2.0: history and traces
history_2_0 = {"segments": history_1_13, "device_traces": [[
    action("segment_alloc", BASE, 20 * MIB, frames=FRAMES),
    action("alloc", BASE, 5 * MIB - 100, frames=FRAMES)]]}

# 2.1 and later: from the middle of a run.  One block was freed, one is still there, one came.
mid_run = {"segments": [segment(BASE, [
    block("inactive", 4 * MIB, address=BASE, requested_size=0, frames=[]),
    block("active_allocated", 6 * MIB, address=BASE + 4 * MIB, requested_size=6 * MIB, frames=OTHER),
    block("active_allocated", 10 * MIB, address=BASE + 10 * MIB, requested_size=10 * MIB - 1, frames=FRAMES)],
    segment_pool_id=(0, 0), is_expandable=False, frames=[])],
    "device_traces": [[
        action("free_requested", BASE, 4 * MIB, time_us=1, compile_context="N/A", user_metadata="", pool_id=(0, 0),
               frames=OTHER),
        action("free_completed", BASE, 4 * MIB, time_us=2, compile_context="N/A", user_metadata="", pool_id=(0, 0),
               frames=OTHER),
        action("alloc", BASE + 10 * MIB, 10 * MIB - 1, time_us=3, compile_context="0/0", user_metadata="mine",
               pool_id=(0, 0), frames=FRAMES),
        action("snapshot", 0, 16 * MIB)]],
    "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": ""}, "external_annotations": []}

# two devices; the second one does more, on a stream, in a private pool
two = {"segments": [segment(BASE, [block("active_allocated", 2 * MIB)], device=0),
                    segment(BASE + 64 * MIB, [block("active_allocated", 12 * MIB, requested_size=12 * MIB)],
                            device=1, stream=4711, segment_pool_id=(0, 1))],
       "device_traces": [[], [
           action("segment_alloc", BASE + 64 * MIB, 12 * MIB, stream=4711, pool_id=(0, 1), frames=FRAMES),
           action("alloc", BASE + 64 * MIB, 12 * MIB, stream=4711, pool_id=(0, 1), frames=FRAMES)]],
       "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:False"}}

# the recorded allocator cut a block that the simulated one would not: it must be named
different = {"segments": [segment(BASE, [
    block("active_allocated", 5 * MIB, requested_size=5 * MIB), block("active_allocated", MIB, requested_size=MIB),
    block("inactive", 14 * MIB)])],
    "device_traces": [[action("segment_alloc", BASE, 20 * MIB), action("alloc", BASE, 5 * MIB, frames=OTHER),
                       action("alloc", BASE + 5 * MIB, MIB, frames=FRAMES)]]}


# a block is freed in a pool that it is not of, which no allocator does
crossed = {"segments": [segment(BASE, [block("inactive", 20 * MIB)], segment_pool_id=(1, 0))],
           "device_traces": [[action("segment_alloc", BASE, 20 * MIB, pool_id=(1, 0)),
                              action("alloc", BASE, 5 * MIB, pool_id=(1, 0)),
                              action("free_requested", BASE, 5 * MIB, pool_id=(0, 0)),
                              action("free_completed", BASE, 5 * MIB, pool_id=(0, 0))]]}


# one object in many places: an action, its frames, a block, a list of frames within a list
SHARED = action("alloc", BASE, MIB, frames=FRAMES, pool_id=(0, 0))
HALF = block("active_allocated", MIB, requested_size=MIB, frames=FRAMES)
shared = {"segments": [segment(BASE, [HALF] * 2, segment_pool_id=SHARED["pool_id"])],
          "device_traces": [[SHARED, SHARED, action("free_requested", BASE, MIB, frames=FRAMES), SHARED,
                             action("alloc", BASE, MIB, frames=[FRAMES, FRAMES])], [SHARED]],
          "external_annotations": [[FRAMES] * 3] * 3}


class Evil:
    def __reduce__(self):
        return print, ("never",)


def main():
    HERE.mkdir(exist_ok=True)
    for name, value in [("list_1_10", list_1_10), ("history_1_13", history_1_13), ("history_2_0", history_2_0),
                        ("mid_run", mid_run), ("two", two), ("different", different), ("crossed", crossed),
                        ("shared", shared)]:
        (HERE / f"{name}.pickle").write_bytes(pickle.dumps(value, 2 if "1_1" in name else 4))
    (HERE / "code.pickle").write_bytes(pickle.dumps({"segments": [Evil()]}, 4))
    (HERE / "other.pickle").write_bytes(pickle.dumps({"weights": [1, 2]}, 4))


if __name__ == "__main__":
    main()
