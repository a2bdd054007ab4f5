"""nvml.py -- what NVML, NVTX and the properties say of a pretend GPU."""
import os

import torch

cuda = torch.cuda

# ranges nest
assert cuda.nvtx.range_push("step") == 0 and cuda.nvtx.range_push("forward") == 1
assert cuda.nvtx.range_pop() == 1 and cuda.nvtx.range_pop() == 0
with cuda.nvtx.range("step {}", 1):
    cuda.nvtx.mark("here")
cuda.nvtx.range_end(cuda.nvtx.range_start("outside"))

# src: CUDA C++ Programming Guide, technical specifications, compute capability 8.9
card = cuda.get_device_properties(0)
assert card.shared_memory_per_block == 48 << 10
assert card.shared_memory_per_block_optin == 99 << 10
assert card.shared_memory_per_multiprocessor == 100 << 10
assert card.L2_cache_size == 72 << 20  # the 4090 is the largest of its architecture

try:
    import pynvml
except ImportError:
    print("fine, but there is no pynvml here")
    raise SystemExit

pynvml.nvmlInit()
assert pynvml.nvmlDeviceGetCount() == cuda.device_count() == 1
handle = pynvml.nvmlDeviceGetHandleByIndex(0)
assert pynvml.nvmlDeviceGetName(handle) == cuda.get_device_name()
assert pynvml.nvmlDeviceGetUUID(handle) == f"GPU-{card.uuid}"
assert pynvml.nvmlDeviceGetCudaComputeCapability(handle) == (8, 9)
assert pynvml.nvmlDeviceGetIndex(handle) == pynvml.nvmlDeviceGetMinorNumber(handle) == 0
assert pynvml.nvmlDeviceGetPciInfo(handle).busId == "00000000:01:00.0"
assert pynvml.nvmlDeviceGetMigMode(handle) == [0, 0]
same = pynvml.nvmlDeviceGetHandleByUUID(pynvml.nvmlDeviceGetUUID(handle))
assert pynvml.nvmlDeviceGetIndex(same) == 0

before = pynvml.nvmlDeviceGetMemoryInfo(handle)
x = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
after = pynvml.nvmlDeviceGetMemoryInfo(handle)
assert after.used - before.used == cuda.memory_reserved() == 256 << 20
assert (after.free, after.total) == cuda.mem_get_info()
newer = pynvml.nvmlDeviceGetMemoryInfo(handle, pynvml.nvmlMemory_v2)
assert (newer.free, newer.used, newer.total) == (after.free, after.used, after.total)
process, = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
assert process.pid == os.getpid() and process.usedGpuMemory == after.used
assert pynvml.nvmlDeviceGetGraphicsRunningProcesses(handle) == []
assert cuda.device_memory_used() == after.used

# nothing runs; what nobody knows is not made up
assert cuda.utilization() == cuda.memory_usage() == 0
for unknown in (cuda.temperature, cuda.power_draw, cuda.clock_rate):
    try:
        print(unknown.__name__, unknown())
        raise SystemExit(1)
    except pynvml.NVMLError_NotSupported:
        pass
print("fine")
