"""two_cards.py -- what a script may ask of a machine with two cards."""
import threading

import torch

cuda = torch.cuda
held = cuda.memory_allocated
assert cuda.device_count() == 2 and cuda.current_device() == 0

# tensors are where they were asked for, and count there
x = torch.ones(1 << 20, device="cuda:1")
assert x.device.index == 1 and (held(0), held(1)) == (0, 4 << 20)
with cuda.device(1):
    assert torch.empty(1, device="cuda").device.index == 1 == cuda.current_device()
assert cuda.current_device() == 0
y = x * 2  # an op runs where its tensors are
assert y.device.index == 1 and (held(0), held(1)) == (0, 8 << 20)
assert torch.zeros_like(x).device.index == 1 and x.new_empty(3).device.index == 1
z = x.to("cuda:0")
assert z.device.index == 0 and held(0) == 4 << 20
assert z.cuda(0) is z and z.cuda(1).device.index == 1
assert cuda.memory_stats(1)["allocation.all.current"] == 2
assert cuda.max_memory_allocated(1) >= 12 << 20
cuda.reset_peak_memory_stats(1)
assert cuda.max_memory_allocated(1) == 8 << 20 and cuda.max_memory_allocated(0) == 4 << 20
assert cuda.mem_get_info(1)[1] == cuda.get_device_properties(1).total_memory
assert cuda.get_device_properties(0).uuid != cuda.get_device_properties(1).uuid
assert cuda.get_device_name(1) == cuda.get_device_name(0)
assert not cuda.can_device_access_peer(0, 1), "GeForce cards do not read one another"

# values travel
assert torch.tensor([3, 4], device="cuda:1").to("cuda:0").tolist() == [3, 4]


def refused(f, words):
    try:
        f()
    except RuntimeError as e:
        assert words in str(e), e
    else:
        raise SystemExit(f"not refused: {words}")


refused(lambda: x + z, "at least two devices, cuda:1 and cuda:0!")
refused(lambda: z.view(1024, 1024) @ x.view(1024, 1024), "at least two devices, cuda:0 and cuda:1!")
refused(lambda: torch.where(z > 0, z, x), "at least two devices, cuda:0 and cuda:1!")
refused(lambda: z[torch.zeros(3, dtype=torch.long, device="cuda:1")],
        "indices should be either on cpu or on the same device as the indexed tensor (cuda:0)")
refused(lambda: cuda.set_device(2), "invalid device ordinal")

# copies between cards that cannot read one another go through contiguous tensors of one type
def peaks_of(f):
    cuda.reset_peak_memory_stats(0)
    cuda.reset_peak_memory_stats(1)
    before = held(0), held(1)
    f()
    return tuple(cuda.max_memory_allocated(i) - before[i] for i in (0, 1))


square, half = x.view(1024, 1024), torch.empty(1024, 1024, dtype=torch.half, device="cuda:0")
target = z.view(1024, 1024)
MIB = 1 << 20
assert peaks_of(lambda: target.copy_(square)) == (0, 0)
assert peaks_of(lambda: target.copy_(square.t())) == (0, 4 * MIB)
assert peaks_of(lambda: target.t().copy_(square)) == (4 * MIB, 0)
assert peaks_of(lambda: half.copy_(square)) == (4 * MIB, 0)
assert peaks_of(lambda: half.copy_(square, non_blocking=True)) == (0, 2 * MIB)
assert peaks_of(lambda: target.copy_(square[0])) == (0, 4 * MIB)

# a thread has its own current device and streams; foreach takes tensors of both cards
seen = []
thread = threading.Thread(target=lambda: (cuda.set_device(1), seen.append(
    torch.empty(1, device="cuda").device.index)))
thread.start()
thread.join()
assert seen == [1] and cuda.current_device() == 0
stream = cuda.Stream(device=1)
assert stream.device.index == 1 and cuda.current_stream(1) == cuda.default_stream(1)
with cuda.stream(stream):
    assert cuda.current_device() == 1 and cuda.current_stream() == stream
    assert cuda.current_stream(0) == cuda.default_stream(0)
assert [t.device.index for t in torch._foreach_add([x, z], 1)] == [1, 0]
cuda.synchronize(1)

# backward: each card's gradients in a thread of that card; optimizers hold state on both
first, second = torch.nn.Linear(64, 64).to("cuda:0"), torch.nn.Linear(64, 64).to("cuda:1")
parameters = [*first.parameters(), *second.parameters()]
optimizer = torch.optim.AdamW(parameters)
second(first(torch.randn(8, 64, device="cuda:0")).to("cuda:1")).sum().backward()
torch.nn.utils.clip_grad_norm_(parameters, 1.0)
optimizer.step()
assert [p.grad.device.index for p in parameters] == [0, 0, 1, 1]
assert [optimizer.state[p]["exp_avg"].device.index for p in parameters] == [0, 0, 1, 1]

# snapshots name the card
cuda.memory._record_memory_history()
more = torch.empty(1 << 26, device="cuda:1")
snapshot = cuda.memory._snapshot()
assert {s["device"] for s in snapshot["segments"]} == {0, 1}
for index in (0, 1):
    own = [s for s in snapshot["segments"] if s["device"] == index]
    assert sum(s["allocated_size"] for s in own) == held(index)
    assert (more.data_ptr() in [t["addr"] for t in snapshot["device_traces"][index]]) == index
print("fine")
