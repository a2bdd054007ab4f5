#!/usr/bin/env python3
"""check.py PROGRAM [WHAT...] -- scripts on a pretend GPU, against what is known.

Needs a Python with a CPU build of PyTorch: PLIMSOLL_TEST_PYTHON, or the one that
runs this file.  Without one it exits with 77, which ctest counts as skipped.
"""

import json
import os
import pathlib
import re
import resource
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
EXAMPLES = HERE.parent.parent / "examples"
PROGRAM = os.path.abspath(sys.argv[1])
PYTHON = os.environ.get("PLIMSOLL_TEST_PYTHON") or sys.executable
OOM = re.compile(r"CUDA out of memory\. Tried to allocate \d+\.\d\d [GMK]iB\. GPU 0 has a total "
                 r"capacity of .* of which .* is free\. .*Of the allocated memory .* is allocated "
                 r"by PyTorch, and .* is reserved by PyTorch but unallocated\.")
problems = []


def check(what, ok, more=""):
    if not ok:
        problems.append(f"{what}: {more}")
        print(f"not so: {what}: {str(more)[-600:]}")


def run(script, *options, args=(), gpu=("--gpu", "rtx4090")):
    return subprocess.run([PROGRAM, "run", *gpu, *options, "--", PYTHON, str(script), *args],
                          capture_output=True, text=True, cwd=HERE)


def report(done):
    return json.loads(done.stdout)


def torch_is_there():
    return runs("import importlib.util as u, os, sys; s = u.find_spec('torch'); "
            "sys.exit(not s or os.path.exists(os.path.join(os.path.dirname(s.origin), 'lib', "
            "'libtorch_cuda.so')))")


def runs(text):
    return subprocess.run([PYTHON, "-c", text], capture_output=True).returncode == 0


# ---- figures ----------------------------------------------------------------------


def figures():
    done = run(EXAMPLES / "tensors.py", "--quiet")
    check("three tensors", done.stdout.splitlines()[:3] ==
          ["20971520/20971520", "16777216/20971520", "0/0"], done.stdout + done.stderr)
    done = run(EXAMPLES / "mlp.py", "--workspace", "off", "--quiet")
    check("the parameters of the MLP", "model 1452544\n" in done.stdout, done.stdout)
    check("its outputs", "forward 57344\n" in done.stdout, done.stdout)
    done = run(HERE / "api.py", "--quiet")
    check("torch.cuda", done.stdout.startswith("fine"), done.stdout + done.stderr)


# ---- examples ------------------------------------------------------------------------


def examples():
    run(EXAMPLES / "tensors.py")  # the shim is there from here on
    cases = [("mlp", 2_000_000, "660MiB", "945MiB"), ("resnet18_plain", 64, "8GiB", "2GiB"),
             ("gpt2_124m", 8, "24GiB", "6GiB"), ("lstm_lm", 64, "8GiB", "4GiB")]
    if runs("import accelerate; from transformers import BertForSequenceClassification, Trainer"):
        cases.append(("bert_trainer", 16, "8GiB", "3GiB"))
    else:
        print("bert_trainer is left out: transformers with its Trainer does not import here")
    for name, batch, enough, few in cases:
        script, args = EXAMPLES / f"{name}.py", ("--batch", str(batch))
        enough = "80GiB" if name == "mlp" else enough
        start = time.monotonic()
        done = run(script, "--json", args=args, gpu=("--vram", enough))
        seconds = time.monotonic() - start
        check(f"{name} runs", done.returncode == 0, done.stderr)
        if done.returncode:
            continue
        r = report(done)
        check(f"{name} fits", r["num_ooms"] == 0 and r["oom_text"] is None, r["oom_text"])
        check(f"{name} is quick", seconds < 20, seconds)
        live = sum(line["live_at_peak"] for line in r["lines"])
        check(f"{name}: the lines hold the peak", 0 < live <= r["peak_allocated"] <=
              r["peak_reserved"], (live, r["peak_allocated"]))
        check(f"{name}: lines are the script's",
              all(f"{name}.py:" in line["line"] for line in r["lines"] if line["live_at_peak"]
                  and line["line"] not in (None, "(backward)")), r["lines"][:3])
        print(f"{name}: {r['peak_allocated']} allocated, {r['peak_reserved']} reserved, "
              f"{seconds:.1f} s")
        done = run(script, "--json", args=args, gpu=("--vram", few))
        r = report(done)
        check(f"{name} on {few} dies", done.returncode == 1, done.returncode)
        check(f"{name} says why", "torch.OutOfMemoryError: CUDA out of memory" in done.stderr,
              done.stderr)
        check(f"{name} in PyTorch's words", OOM.match(r["oom_text"] or ""), r["oom_text"])
        check(f"{name} names the line", f"{name}.py:" in (r["oom_line"] or ""), r["oom_line"])
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    check("less than 2 GB of memory", peak < 2_000_000, f"{peak} KB")


# ---- the largest batch -------------------------------------------------------------------


def fits():
    """What fit says of the built-in ResNet-18 is what the script takes."""
    for memory in ("2GiB", "4GiB"):
        said = subprocess.run([PROGRAM, "fit", "resnet18", "--vram", memory, "--torch", "2.13",
                               "--optimizer", "sgd,momentum=0.9,weight_decay=1e-4", "--json"],
                              capture_output=True, text=True)
        batch = re.search(r'"batch":(\d+),"limited"', said.stdout)
        check(f"fit on {memory}", batch, said.stdout + said.stderr)
        for more, code in ((0, 0), (1, 1)) if batch else ():
            done = run(EXAMPLES / "resnet18_plain.py", "--workspace", "high", "--quiet",
                       args=("--batch", str(int(batch[1]) + more)), gpu=("--vram", memory))
            check(f"{memory}, {more} over the largest batch {batch[1]}", done.returncode == code,
                  done.stdout + done.stderr)


# ---- tapes -----------------------------------------------------------------------------


def events(path):
    """Allocations as they come; the frees between two of them in any order."""
    out, frees, size = [], [], {}
    for line in open(path):
        words = line.split()
        if words and words[0] == "+":
            size[words[1]] = int(words[2])
            out += [sorted(frees), int(words[2])]
            frees = []
        elif words and words[0] == "-":
            frees.append(size[words[1]])
    return out + [sorted(frees)]


def tapes():
    cases = [("mlp", "sgd", "mse"), ("mlp", "adam", "mse"), ("cnn", "sgd", "cross_entropy"),
             ("cnn", "adam", "cross_entropy"), ("gpt", "adam", "cross_entropy")]
    with tempfile.TemporaryDirectory() as folder:
        for net, optimizer, loss in cases:
            model, live, said = (os.path.join(folder, net + end)
                                 for end in (".pt2", ".live", ".said"))
            subprocess.run([PYTHON, HERE / "export.py", net, model], check=True,
                           capture_output=True)
            done = run(HERE / "train.py", "--save", live, "--json", args=(net, optimizer))
            check(f"{net}, {optimizer} runs", done.returncode == 0, done.stderr)
            r = report(done)
            with open(said, "w") as f:
                subprocess.run([PROGRAM, "tape", model, "--loss", loss, "--optimizer", optimizer,
                                "--torch", r["torch"], "--gpu", "rtx4090"], stdout=f, check=True)
            one, other = events(said), events(live)
            first = next((i for i, (a, b) in enumerate(zip(one, other)) if a != b), None)
            check(f"{net}, {optimizer}: the predicted tape is the one that ran", one == other,
                  (len(one), len(other), first,
                   one[first or 0:][:6], other[first or 0:][:6]))
            print(f"{net}, {optimizer}: {len(one) // 2} allocations")
            again = subprocess.run([PROGRAM, "replay", live, "--torch", r["torch"], "--json"],
                                   capture_output=True, text=True)
            stats = json.loads(again.stdout)["stats"]
            check(f"{net}, {optimizer}: replay says the same",
                  (stats["allocated_bytes"]["peak"], stats["reserved_bytes"]["peak"]) ==
                  (r["peak_allocated"], r["peak_reserved"]), stats)


# ---- what else may happen -------------------------------------------------------------------


def script(folder, text):
    path = os.path.join(folder, "script.py")
    pathlib.Path(path).write_text(text)
    return path


BAD = [  # what, script, exit status, in standard error
    ("an error of the script's own", "import torch\n1 / 0\n", 1, "ZeroDivisionError"),
    ("its exit status", "import torch, sys\nsys.exit(7)\n", 7, ""),
    ("a second card", "import torch\ntorch.ones(1, device='cuda:1')\n", 1, "one GPU"),
    ("NCCL", "import torch\ntorch.cuda.nccl.version()\n", 1, "NCCL is not simulated"),
    ("CUDA graphs", "import torch\ntorch.cuda.CUDAGraph()\n", 1, "graphs are not simulated"),
    ("a forked child that uses the card",
     "import torch, os\ntorch.ones(1, device='cuda')\npid = os.fork()\n"
     "if not pid:\n    torch.ones(1, device='cuda')\nos.waitpid(pid, 0)\n", 0,
     "in forked subprocess"),
]
GOOD = [
    ("torch.compile", "import torch\nm = torch.compile(torch.nn.Linear(2, 2).cuda())\n"
     "m(torch.ones(1, 2, device='cuda'))\n", "torch.compile was left out"),
    ("loader workers", "import torch\nfrom torch.utils.data import DataLoader\n"
     "d = DataLoader(torch.randn(8, 4), 2, num_workers=2, pin_memory=True)\n"
     "n = sum(x.cuda().shape[0] for x in d)\nassert n == 8\n", ""),
    ("a value that was read", "import torch\nx = torch.ones(2, device='cuda').sum()\n"
     "assert x.item() == 0\n", "script.py:3  a value read from the card is 0"),
    ("steps", "import torch\np = torch.nn.Parameter(torch.ones(9, device='cuda'))\n"
     "o = torch.optim.SGD([p], 0.1)\nwhile True:\n    p.sum().backward()\n    o.step()\n", "fits"),
]


def cases():
    with tempfile.TemporaryDirectory() as folder:
        for what, text, code, words in BAD:
            done = run(script(folder, text))
            check(what, done.returncode == code and words in done.stderr,
                  (done.returncode, done.stderr))
        for what, text, words in GOOD:
            done = run(script(folder, text), "--steps", "2")
            check(what, done.returncode == 0 and words in done.stdout, done.stdout + done.stderr)
        text = "import torch\ntorch.ones(1, device='cuda')\nwhile True: pass\n"
        done = run(script(folder, text), "--limit", "2")
        check("a limit", done.returncode == 0 and "stopped after 2 s" in done.stdout, done.stdout)
        text = "import torch\nprint(torch.ones(1, device='cuda').sum().item())\n"
        done = run(script(folder, text), "--scalar", "1", "--quiet")
        check("another scalar", done.stdout.startswith("1.0\n"), done.stdout)
        done = subprocess.run([PROGRAM, "run", "--gpu", "t4", "--", PYTHON, "-S", "-c", ""],
                              capture_output=True, text=True)
        check("nothing to report", done.returncode == 3 and "nothing to report" in done.stderr,
              done.stderr)
        env = dict(os.environ, PYTHONPATH="")
        done = subprocess.run([PROGRAM, "run", "--gpu", "t4", "--", "/usr/bin/env", "-i",
                               "false"], capture_output=True, text=True, env=env)
        check("another program's status", done.returncode == 1, done.returncode)


if not torch_is_there():
    print("no Python with a CPU build of PyTorch: set PLIMSOLL_TEST_PYTHON")
    sys.exit(77)
for part in sys.argv[2:] or ("figures", "examples", "fits", "tapes", "cases"):
    globals()[part]()
print(f"{len(problems)} problems")
sys.exit(len(problems) > 0)
