#!/usr/bin/env python3
"""`plimsoll run` with a CUDA build of PyTorch, on the stub libraries.

    run.py PLIMSOLL

PLIMSOLL_TEST_CUDA_PYTHON names a Python that has one; without it the test is skipped (77).
In each run the simulated allocator must agree with PyTorch's own to the byte.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"
TRUTH = EXAMPLES.parent / "tests" / "golden" / "gpu"
AGREES = "the simulated one agrees"

STREAMS = """
import torch
from torch.utils.data import DataLoader, TensorDataset
data = TensorDataset(torch.randn(64, 10), torch.randint(3, (64,)))
net = torch.nn.Linear(10, 3).cuda()
for x, y in DataLoader(data, 8, pin_memory=True, num_workers=1):
    assert x.is_pinned()
    torch.nn.functional.cross_entropy(net(x.cuda(non_blocking=True)), y.cuda()).backward()
side = torch.cuda.Stream()
with torch.cuda.stream(side):
    z = torch.randn(1000, 1000, device="cuda")
    z.record_stream(torch.cuda.current_stream())
w = torch.randn(1000, 1000, device="cuda")
w.record_stream(side)
del w, z
torch.cuda.empty_cache()
torch.cuda.reset_peak_memory_stats()
print("value", torch.ones(3, device="cuda").sum().item())
"""

RANDOM = """
import random
import sys
import torch
random.seed(int(sys.argv[1]))
torch.cuda.set_per_process_memory_fraction(0.8)
streams = [torch.cuda.current_stream(), torch.cuda.Stream()]
held, failed = [], 0
for i in range(1500):
    r = random.random()
    if r < 0.55:
        size = random.randrange(1, random.choice([4096, 1 << 20, 12 << 20, 128 << 20]))
        try:
            with torch.cuda.stream(random.choice(streams)):
                held.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
        except torch.OutOfMemoryError:
            failed += 1
            random.shuffle(held)
            del held[len(held) // 2:]
    elif r < 0.985 and held:
        del held[random.randrange(len(held))]
    elif r < 0.99:
        torch.cuda.empty_cache()
print("failed", failed)
"""

CARD = """
import torch
p = torch.cuda.get_device_properties(0)
free, total = torch.cuda.mem_get_info()
x = torch.empty(5 * 1024 * 1024, device="cuda")
print(p.name, p.major * 10 + p.minor, p.multi_processor_count, total > free > 0,
      torch.cuda.memory_allocated(), torch.cuda.memory_reserved())
"""

ACCELERATOR = """
import torch
memory = getattr(getattr(torch, "accelerator", None), "memory", torch.cuda)  # from 2.9 on
first = [torch.empty(30 << 20, dtype=torch.uint8, device="cuda") for _ in range(4)]
del first[1:]
memory.empty_cache()
memory.reset_peak_memory_stats()
memory.reset_accumulated_memory_stats()
second = torch.empty(1 << 20, dtype=torch.uint8, device="cuda")
print("peak", torch.cuda.max_memory_allocated())
"""

# What a graph's pool has free stays while the graph lives, and goes after it; the same of a
# MemPool.
POOLS = """
import torch

def fill():
    sizes = [30 << 20, 50 << 20, 1 << 12]
    return [torch.empty(n, dtype=torch.uint8, device="cuda") for n in sizes]

def reserved():
    torch.cuda.empty_cache()
    return torch.cuda.memory_reserved() >> 20

kept = fill()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    inside = fill()
    del inside[0]
seen = [reserved()]
more = torch.empty(30 << 20, dtype=torch.uint8, device="cuda")
graph.replay()
del inside, more
seen.append(reserved())
graph.reset()
seen.append(reserved())
if hasattr(torch.cuda, "MemPool"):
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        del fill()[0]
    reserved()
    del pool
    assert reserved() == seen[-1]
print("the graph holds", *(r - seen[-1] for r in seen[:-1]))  # the random state of a capture stays, 2 MiB in some versions
"""

# A forked process may use the card if its parent has not; a compiled model runs.
FORK = """
import multiprocessing
import torch

def use(n):
    try:
        return torch.ones(n << 20, device="cuda").numel() >> 20
    except RuntimeError as e:
        return str(e)

def ask(n):
    with multiprocessing.get_context("fork").Pool(1) as pool:
        answer = pool.apply(use, [n])
        pool.close()
        pool.join()
    return answer

assert not torch.cuda.is_initialized()
assert ask(3) == 3 and not torch.cuda.is_initialized() and use(5) == 5
print("then", ask(3))
"""

COMPILED = """
import torch
torch.set_grad_enabled(False)
net = torch.compile(torch.nn.Sequential(*[torch.nn.GELU() for _ in range(3)]))
x = torch.ones(4 << 20, device="cuda")
net(x)
torch.cuda.reset_peak_memory_stats()
net(x)
print("peak", torch.cuda.max_memory_allocated() >> 20)  # each by itself: 48
"""

CONVOLUTION = """
import torch
net, x = torch.nn.Conv2d(64, 64, 3, padding=1).cuda(), torch.randn(32, 64, 56, 56, device="cuda")
net(x).sum().backward()
"""

# What looks at values is not seen: the bias is added in place, and values are known behind it. The attention of an
# H100 has a workspace.
LINEAR = """
import torch
from torch.nn import functional as F
layer, x = torch.nn.Linear(512, 256).cuda(), torch.randn(64, 512, 512, device="cuda").transpose(1, 2)
layer(x)
torch.cuda.reset_peak_memory_stats()
before = torch.cuda.memory_allocated()
y = layer(x)
print("took", (torch.cuda.max_memory_allocated() - before) >> 20)  # the input in its order, and the output once
two = torch.full((2, 2), 2.0, device="cuda")
print("values", F.linear(two, two.requires_grad_(), two[0]).tolist())
q, k = torch.randn(2, 8, 1024, 64, device="cuda").bfloat16(), torch.randn(2, 2, 1024, 64, device="cuda").bfloat16()
q.requires_grad_(), k.requires_grad_()
y = F.scaled_dot_product_attention(q, k, k, is_causal=True, enable_gqa=True)
torch.cuda.reset_peak_memory_stats()
before = torch.cuda.memory_stats()["requested_bytes.all.current"]
y.backward(y)
# dq, dk and dv; in the workspace dq and the rows in fp32, dk and dv of each head, and 256 bytes
each, shared = q.numel(), k.numel()
print("attention", torch.cuda.memory_stats()["requested_bytes.all.peak"] - before -
      (2 * each + 4 * shared + 4 * each + 4 * each // 64 + 4 * each + 256))
"""

# Values: masks of ones, known ones, and a loop that ends by its length.
VALUES = """
import torch
ones = torch.ones(4, 512, device="cuda")
assert ones.bool().sum() == ones.numel() and ones.cumsum(1).long()[0, -1].item() == 512
mask = torch.ones(4, 512, dtype=torch.long)
mask[1, :100] = 0
there = mask.cuda().bool()
assert not there.all() and not there[1].all() and there[0].all() and there.nonzero().shape == (1948, 2)
assert torch.randn(4, 512, device="cuda")[there].shape == (1948,)
assert torch.tensor([2, 0, 3], device="cuda").tolist() == [2, 0, 3]
assert torch.randn(10, 3, device="cuda").repeat_interleave(torch.arange(10).cuda(), 0).shape == (45, 3)
steps, going = 0, torch.ones(2, dtype=torch.long, device="cuda")
while going.max() != 0:
    token = torch.randn(2, 5000, device="cuda").argmax(-1)
    steps += 1
    stop = torch.full((2,), steps >= 30, device="cuda") | (token == 2)
    going = going & ~stop
print("steps", steps, torch.randn(3, device="cuda").sum().item())
"""

# What a checkpoint runs again: dropout, and a selection, which is to be the same.
CHECKPOINT = """
import torch
from torch.utils.checkpoint import checkpoint

class Experts(torch.nn.Module):
    def forward(self, x):
        there = x.detach()[:, 0] > 0
        return torch.zeros_like(x).index_put((there,), x[there])

net = torch.nn.Sequential(torch.nn.Linear(64, 64), Experts(), torch.nn.Linear(64, 64), torch.nn.Dropout(0.1)).cuda()
for _ in range(2):
    x = torch.randn(512, 64, device="cuda", requires_grad=True)
    checkpoint(net, x, use_reentrant=False).sum().backward()
print("grad", x.grad.shape[0])
"""

ERROR = """
import torch
x = torch.ones(3, device="cuda")
raise KeyError("mine")
"""


def run(program, *options, script, arguments=(), conf=None):
    env = dict(os.environ)
    env.pop("PYTORCH_CUDA_ALLOC_CONF", None)
    if conf:
        env["PYTORCH_CUDA_ALLOC_CONF"] = conf
    command = [program, "run", *options, "--", os.environ["PLIMSOLL_TEST_CUDA_PYTHON"], script, *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=env, timeout=300)


def check(what, good, done):
    print(("ok   " if good else "FAIL ") + what, flush=True)
    if not good:
        print(done.stdout[-1000:], done.stderr[-1000:])
    return not good


def script_of(folder, name, text):
    path = pathlib.Path(folder) / name
    path.write_text(text)
    return str(path)


def same_error(done):
    """PyTorch's own text and the simulated one; what follows the figures is advice."""
    figures = re.search(r"(CUDA out of memory.*? reserved by PyTorch but unallocated\.)", done.stderr)
    report = json.loads(done.stdout)
    agrees = any(AGREES in c["what"] for c in report["caveats"])
    return done.returncode == 1 and agrees and bool(figures) and report["oom_text"].startswith(figures.group(1))


def collects(program, folder):
    """What is to measure a card runs here, each run a fork; it is then predicted, and its requests replay."""
    out, traces = os.path.join(folder, "card.jsonl"), os.path.join(folder, "traces")
    done = run(program, "--gpu", "h100", "--quiet", script=str(TRUTH / "collect.py"),
               arguments=("--suite", "mlp", "--out", out, "--traces", traces))
    says = [subprocess.run([sys.executable, str(TRUTH / name), "--program", program, *more], capture_output=True, text=True).stdout
            for name, more in (("replay.py", ("--traces", traces, "--runs", out)), ("compare.py", (out,)))]
    good = re.fullmatch(r"(\d+) runs: \1 with the peak of reserved bytes, \1 with all counters\n", says[0]) and \
        len(re.findall(r"^\w+: 9 runs, .* all within 0\.00 %$", says[1], re.M)) == 3 and '"process_end": ' in pathlib.Path(out).read_text()
    return check("collect.py, compare.py, replay.py", good, done)


def main(program):
    bad = 0
    for name in ("mlp", "resnet18_plain", "gpt2_124m", "lstm_lm"):
        done = run(program, "--gpu", "a100-40g", script=str(EXAMPLES / f"{name}.py"))
        bad += check(name, done.returncode == 0 and AGREES in done.stdout, done)

    gpt = str(EXAMPLES / "gpt2_124m.py")
    for conf in (None, "expandable_segments:True", "garbage_collection_threshold:0.6,max_split_size_mb:64"):
        done = run(program, "--vram", "11GiB", script=gpt, conf=conf)
        bad += check(f"a card that is just large enough, {conf}", done.returncode == 0 and AGREES in done.stdout, done)
        done = run(program, "--vram", "6GiB", "--json", script=gpt, conf=conf)
        bad += check(f"one that is not, and the text of the error, {conf}", same_error(done), done)

    with tempfile.TemporaryDirectory() as folder:
        done = run(program, "--gpu", "rtx4090", script=script_of(folder, "card.py", CARD))
        bad += check("the card", "RTX 4090 89 128 True 20971520 20971520" in done.stdout, done)
        path = script_of(folder, "by_chance.py", RANDOM)
        for seed, conf in enumerate((None, "max_split_size_mb:40,garbage_collection_threshold:0.5", "roundup_power2_divisions:4", "expandable_segments:True,garbage_collection_threshold:0.6")):
            done = run(program, "--vram", "3GiB", script=path, arguments=(str(seed),), conf=conf)
            good = done.returncode == 0 and AGREES in done.stdout and not "failed 0\n" in done.stdout
            bad += check(f"requests at random until it is full, {conf}", good, done)
        done = run(program, "--gpu", "rtx4090", script=script_of(folder, "streams.py", STREAMS))
        good = done.returncode == 0 and AGREES in done.stdout and "value 3.0" in done.stdout
        bad += check("streams, pinned memory, workers", good and "is a guess" not in done.stdout, done)
        done = run(program, "--gpu", "rtx4090", script=script_of(folder, "accelerator.py", ACCELERATOR))
        good = done.returncode == 0 and AGREES in done.stdout and "peak 32505856" in done.stdout
        bad += check("what torch.accelerator asks of the allocator", good, done)
        done = run(program, "--gpu", "rtx4090", script=script_of(folder, "pools.py", POOLS))
        good = done.returncode == 0 and AGREES in done.stdout and "the graph holds 82 82" in done.stdout
        bad += check("pools of CUDA graphs, and others", good, done)
        indices = str(EXAMPLES.parent / "tests" / "run" / "indices.py")
        done = run(program, "--gpu", "a100-40g", script=indices)
        bad += check("indexing by several tensors", done.stdout.startswith("fine") and AGREES in done.stdout, done)
        done = run(program, "--gpu", "rtx4090", script=script_of(folder, "fork.py", FORK))
        good = done.returncode == 0 and "then Cannot re-initialize CUDA in forked" in done.stdout
        bad += check("forked processes, before and after", good and "fork.py:7  12.00 MiB" in done.stdout, done)
        done = run(program, "--gpu", "rtx4090", script=script_of(folder, "compiled.py", COMPILED))
        good = done.returncode == 0 and AGREES in done.stdout and "peak 32" in done.stdout and not "UserWarning" in done.stderr
        bad += check("torch.compile", good, done)
        bad += collects(program, folder)
        done = run(program, "--gpu", "h100", script=script_of(folder, "convolution.py", CONVOLUTION))
        good = AGREES in done.stdout and re.findall(r"\| (\w+, \w+)$", done.stdout, re.M) == ["Workspace, estimated"]
        bad += check("cuDNN's workspace is marked", good, done)
        done = run(program, "--gpu", "h100", script=script_of(folder, "linear.py", LINEAR))
        good = done.returncode == 0 and AGREES in done.stdout and "values [[10.0, 10.0], [10.0, 10.0]]\n" in done.stdout
        bad += check("linear layers and attention", good and "took 96\n" in done.stdout and "attention 0\n" in done.stdout, done)
        done = run(program, "--gpu", "rtx4090", script=script_of(folder, "checkpoint.py", CHECKPOINT))
        bad += check("checkpoints", done.returncode == 0 and AGREES in done.stdout and "grad 512" in done.stdout, done)
        done = run(program, "--gpu", "rtx4090", script=script_of(folder, "values.py", VALUES))
        good = done.returncode == 0 and AGREES in done.stdout and "steps 30 0.0" in done.stdout
        bad += check("values that are known", good and "values.py:11" not in done.stdout.partition("Remarks")[2], done)
        values = EXAMPLES.parent / "tests" / "run" / "values"
        done = run(program, "--gpu", "rtx4090", script=str(values / "guessed.py"))
        bad += check("values that are not", done.stdout.startswith("fine") and AGREES in done.stdout, done)
        done = run(program, "--gpu", "rtx4090", script=str(values / "generate.py"))
        if "No module named 'transformers'" not in done.stderr:
            bad += check("generate() of transformers", done.stdout.startswith("fine") and AGREES in done.stdout, done)
        done = run(program, "--gpu", "rtx4090", script=script_of(folder, "error.py", ERROR))
        bad += check("a script that raises", done.returncode == 1 and "KeyError: 'mine'" in done.stderr, done)
    return 1 if bad else 0


if __name__ == "__main__":
    if not os.environ.get("PLIMSOLL_TEST_CUDA_PYTHON"):
        print("skipped: PLIMSOLL_TEST_CUDA_PYTHON names no Python with a CUDA build of PyTorch")
        sys.exit(77)
    sys.exit(main(sys.argv[1]))
