#!/usr/bin/env python3
"""check.py PROGRAM [WHAT...] -- scripts on a pretend GPU, against what is known.

Needs a Python with a CPU build of PyTorch: PLIMSOLL_TEST_PYTHON, or the one that
runs this file.  Without one it exits with 77, which ctest counts as skipped.
"""

import functools
import json
import os
import pathlib
import re
import resource
import subprocess
import sys
import tempfile
import time

from problems import check, problems

HERE = pathlib.Path(__file__).resolve().parent
EXAMPLES = HERE.parent.parent / "examples"
PROGRAM = os.path.abspath(sys.argv[1])
PYTHON = os.environ.get("PLIMSOLL_TEST_PYTHON") or sys.executable
OOM = re.compile(r"CUDA out of memory\. Tried to allocate \d+\.\d\d [GMK]iB\. GPU 0 has a total "
                 r"capacity of .* of which .* is free\. .*Of the allocated memory .* is allocated "
                 r"by PyTorch, and .* is reserved by PyTorch but unallocated\.")


def run(script, *options, args=(), gpu=("--gpu", "rtx4090"), stdin=None):
    return subprocess.run([PROGRAM, "run", *gpu, *options, "--", PYTHON, str(script), *args],
                          capture_output=True, text=True, cwd=HERE, input=stdin)


def report(done):
    return json.loads(done.stdout)


def torch_is_there():
    return runs("import importlib.util as u, os, sys; s = u.find_spec('torch'); "
            "sys.exit(not s or os.path.exists(os.path.join(os.path.dirname(s.origin), 'lib', "
            "'libtorch_cuda.so')))")


def runs(text):
    return subprocess.run([PYTHON, "-c", text], capture_output=True).returncode == 0


# ---- the shim ---------------------------------------------------------------------


def shim():
    """Builds the shim and the process group, so that no other part has to."""
    with tempfile.TemporaryDirectory() as folder:
        text = "import re, torch\ntorch.distributed.init_process_group('nccl')\n" \
               "print('loaded', *set(re.findall(r'/.*plimsoll.*[.]so.*', open('/proc/self/maps').read())))\n"
        done = run(script(folder, text), "--world", "2", "--rank", "0")
    check("both are there", done.returncode == 0, done.stderr)
    loaded = re.search("^loaded (.*)", done.stdout, re.M)
    files = loaded.group(1).split() if loaded else []
    hardened = subprocess.run([sys.executable, HERE.parent.parent / "tools/check_hardening.py", *files],
                              capture_output=True, text=True)
    check("they are hardened", len(files) > 2 and hardened.returncode in (0, 77), (files, hardened.stdout))


# ---- figures ----------------------------------------------------------------------

EXTENSIONS = """
import sys, torch
torch.empty(4, device="cuda").normal_()
assert "torch._dynamo" not in sys.modules  # which changes with torch.Tensor, as scripts may have
from torch.utils.cpp_extension import load
fused_adam = load(name="fused_adam", sources=["fused_adam_frontend.cpp", "multi_tensor_adam.cu"])
before = torch.cuda.memory_allocated()
assert fused_adam.multi_tensor_adam(1 << 16, None, []) is None
assert torch.cuda.memory_allocated() == before
assert not hasattr(fused_adam, "another")
try:
    load("mine", "mine.cu")
except RuntimeError as e:
    assert "'mine' is CUDA code" in str(e) and "choose an option" in str(e), e
    print("fine")
"""


def figures():
    done = run(EXAMPLES / "tensors.py", "--quiet")
    check("three tensors", done.stdout.splitlines()[:3] ==
          ["20971520/20971520", "16777216/20971520", "0/0"], done.stdout + done.stderr)
    done = run(EXAMPLES / "mlp.py", "--workspace", "off", "--quiet")
    check("the parameters of the MLP", "model 1452544\n" in done.stdout, done.stdout)
    check("its outputs", "forward 57344\n" in done.stdout, done.stdout)
    done = run(HERE / "api.py", "--quiet")
    check("torch.cuda", done.stdout.startswith("fine"), done.stdout + done.stderr)
    done = run(HERE / "indices.py", "--quiet")
    check("indexing", done.stdout.startswith("fine"), done.stdout + done.stderr)
    with tempfile.TemporaryDirectory() as folder:
        package = pathlib.Path(folder) / "bitsandbytes"  # as much of it as matters
        package.mkdir()
        (package / "__init__.py").write_text("import torch\nfrom .cextension import lib\n")
        (package / "cextension.py").write_text(
            "class Native:\n"
            "    formatted_error = 'CUDA toolkit not found. '\n"
            "    def cadam(self):\n"
            "        raise RuntimeError(self.formatted_error + 'lib.cadam')\n"
            "lib = Native()\n")
        script = pathlib.Path(folder) / "train.py"
        script.write_text("import bitsandbytes\nbitsandbytes.lib.cadam()\n")
        done = run(script, "--quiet")
        check("bitsandbytes names the way out", "RuntimeError: plimsoll: bitsandbytes runs CUDA "
              "code of its own, which needs a CUDA build" in done.stderr, done.stderr)
        script.write_text(EXTENSIONS)
        done = run(script, "--quiet")
        check("extensions stand in or are refused", done.stdout.startswith("fine"), done.stderr)
        script.write_text("import torch\nraise ImportError('libcudart.so.12: cannot open shared object file')\n")
        done = run(script)
        check("a package that is compiled for CUDA", "remove the package if it is optional"
              in done.stdout, done.stdout)
    done = run(HERE / "nvml.py", "--quiet")
    check("NVML, NVTX, properties", done.stdout.startswith("fine"), done.stdout + done.stderr)


# ---- examples ------------------------------------------------------------------------


def has_transformers():
    return runs("from transformers import GPT2LMHeadModel, LlamaForCausalLM")


def has_trainer():
    return runs("import accelerate\n"
                "from transformers import BertForSequenceClassification, Trainer")


def examples():
    cases = [("mlp", 2_000_000, "660MiB", "945MiB"), ("resnet18_plain", 64, "8GiB", "2GiB"),
             ("gpt2_124m", 8, "24GiB", "6GiB"), ("lstm_lm", 64, "8GiB", "4GiB")]
    if has_trainer():
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
        if name == "mlp":
            markdown = run(script, "--md", args=args, gpu=("--vram", enough)).stdout
            check("--md has the same peak, and nothing else on stdout",
                  f"{r['peak_requested']:,} bytes |" in markdown and markdown.count("### Peak") == 1 and
                  "It fits" in markdown.split("\n\n")[0], markdown)
        owners = [(tensor["category"], line["source"] or "") for line in r["lines"]
                  for tensor in line["tensors"]] if name != "bert_trainer" else []
        check(f"{name}: optimizer state is the step's",
              all("optimizer.step()" in source for what, source in owners
                  if what == "optimizer_state"), owners)
        check(f"{name}: gradients are the forward's",
              not any("backward()" in source for what, source in owners if what == "gradient"),
              owners)
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


# ---- the flags of cudnn ------------------------------------------------------------------


def searches():
    """The flags of torch.backends.cudnn are those of the script."""
    text = "import torch\ntorch.backends.cudnn.{} = {}\n" \
           "torch.nn.Conv2d(8, 8, 3, device='cuda')(torch.ones(4, 8, 32, 32, device='cuda'))\n"
    took = {}
    with tempfile.TemporaryDirectory() as folder:
        for flag, on in (("benchmark", True), ("benchmark", False), ("allow_tf32", True), ("allow_tf32", False)):
            r = report(run(script(folder, text.format(flag, on)), "--json", gpu=("--gpu", "a100")))
            check(f"{flag} {on}: a search", r["card"]["cudnn_search"] == (flag == "benchmark" and on), r["card"])
            took[flag, on] = r["peak_requested"]
        done = run(script(folder, "import torch\nheld = torch.cuda.memory_reserved\n"
                          "conv = torch.nn.Conv2d(8, 8, 3, device='cuda')\n"
                          "def step():\n"
                          "    x = torch.ones(4, 8, 32, 32, device='cuda')\n"
                          "    torch.empty(64 << 20, device='cuda')\n"
                          "    conv(x)\n"
                          "    return held() < 256 << 20\n"
                          "torch.backends.cudnn.benchmark = True\n"
                          "print(step(), step())\n"), gpu=("--gpu", "a100"))
        check("only the first search empties the cache", "True False\n" in done.stdout, done.stdout)
    copies = (4 * 8 * 32 * 32 + 8 * 8 * 9) * 4
    check("without TF32 nothing is copied", took["allow_tf32", True] - took["allow_tf32", False] == copies, took)


# ---- the largest batch -------------------------------------------------------------------


def largest_batch(memory):
    """What fit says of the built-in ResNet-18, and the memory that this takes."""
    said = subprocess.run([PROGRAM, "fit", "resnet18", "--vram", memory, "--torch", "2.13",
                           "--optimizer", "sgd,momentum=0.9,weight_decay=1e-4", "--json"],
                          capture_output=True, text=True)
    batch = re.search(r'"batch":(\d+),"batch_margin"', said.stdout)
    check(f"fit on {memory}", batch, said.stdout + said.stderr)
    return int(batch[1]) if batch else 0, str(int(memory[0]) << 30)


def fits():
    """What fit says of the built-in ResNet-18 is what the script takes."""
    for memory in ("2GiB", "4GiB"):
        batch, card = largest_batch(memory)
        for more, code in ((0, 0), (1, 1)) if batch else ():
            done = run(EXAMPLES / "resnet18_plain.py", "--workspace", "high", "--quiet",
                       args=("--batch", str(batch + more)), gpu=("--vram", card))
            check(f"{memory}, {more} over the largest batch {batch}", done.returncode == code,
                  done.stdout + done.stderr)


# ---- batch finders ------------------------------------------------------------------------


def finders():
    """Batch finders end with a batch that fit allows; accelerate's, which begins each trial anew,
    with the largest of those that it tries."""
    most, card = largest_batch("2GiB")
    tenths = [40]  # it takes a tenth off, and rounds down
    while tenths[-1] > most:
        tenths.append(int(tenths[-1] * 0.9))
    for package, which, start, allowed in (("accelerate", "accelerate", 40, tenths[-1:]),
                                           ("lightning", "binsearch", 8, range(16, most + 1))):
        if not runs(f"import {package}"):
            print(f"{which} is left out: {package} does not import here")
            continue
        done = run(HERE / "finders.py", "--workspace", "high", "--quiet", args=(which, str(start)),
                   gpu=("--vram", card))
        batch = re.search(r"^batch (\d+)$", done.stdout, re.M)
        check(f"{which}, where fit says {most}", batch and int(batch[1]) in allowed,
              done.stdout + done.stderr)


# ---- tapes -----------------------------------------------------------------------------


def events(path):
    """Allocations as they come; the frees between two of them in any order.  What usually takes nothing is in a predicted tape
    for its upper bound."""
    out, frees, size = [], [], {}
    for line in open(path):
        words = line.split()
        if words and words[0] == "+":
            size[words[1]] = int(words[2])
            if size[words[1]]:
                out += [sorted(frees), int(words[2])]
                frees = []
        elif words and words[0] == "-" and size[words[1]]:
            frees.append(size[words[1]])
    return out + [sorted(frees)]


def replay(tape, torch, *options):
    done = subprocess.run([PROGRAM, "replay", tape, "--torch", torch, "--json", *options],
                          capture_output=True, text=True)
    return json.loads(done.stdout) if done.stdout else {"error": done.stderr}


def peaks(replayed):
    stats = replayed["stats"]
    return stats["allocated_bytes"]["peak"], stats["reserved_bytes"]["peak"]


# ---- halving ---------------------------------------------------------------------------

# script, first batch, card
HALVED = [("mlp", 1 << 18, "2GiB"), ("resnet18_plain", 256, "4GiB"), ("gpt2_124m", 32, "12GiB"),
          ("lstm_lm", 256, "8GiB"), ("bert_trainer", 128, "6GiB")]


def takes(path, batch, memory):
    done = run(path, "--quiet", args=("--batch", str(batch)), gpu=("--vram", memory))
    return done.returncode == 0


@functools.lru_cache(maxsize=None)
def tape_takes(path, batch, memory, folder):
    """The tape of a run that had all it wanted, on the card with so much memory."""
    tape = os.path.join(folder, "tape")
    done = run(path, "--json", "--save", tape, args=("--batch", str(batch)), gpu=("--vram", "1TiB"))
    again = replay(tape, report(done)["torch"], "--vram", memory)
    return again["num_ooms"] == 0


def halving():
    """Halving the batch until the script runs ends where the tapes say that it does."""
    with tempfile.TemporaryDirectory() as folder:
        for name, batch, memory in HALVED:
            if name == "bert_trainer" and not has_trainer():
                continue
            path, tried = EXAMPLES / f"{name}.py", 0
            while batch:
                runs_here = takes(path, batch, memory)
                said = tape_takes(path, batch, memory, folder)
                check(f"{name}, batch {batch} on {memory}: run and tape agree", runs_here == said,
                      (runs_here, said))
                tried += 1
                if runs_here:
                    break
                batch //= 2
            check(f"{name} was halved and runs", tried > 1 and batch, (tried, batch))
            print(f"| {name} | {memory} | {batch} | {batch * 2} |")


def tapes():
    cases = [("mlp", "sgd", "mse"), ("mlp", "adam", "mse"), ("cnn", "sgd", "cross_entropy"),
             ("cnn", "adam", "cross_entropy"), ("gpt", "adam", "cross_entropy"),
             ("factors", "sgd", "mse"), ("factors", "adagrad", "mse"),
             ("factors", "sparse_adam", "mse")]
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
            check(f"{net}, {optimizer}: replay says the same",
                  peaks(replay(live, r["torch"])) == (r["peak_allocated"], r["peak_reserved"]))


def segments():
    """checkpoint_sequential: the curve that is predicted is the one that runs."""
    with tempfile.TemporaryDirectory() as folder:
        for net, loss in ("mlp", "mse"), ("vgg", "cross_entropy"):
            model = os.path.join(folder, net + ".pt2")
            subprocess.run([PYTHON, HERE / "segments.py", net, model], check=True,
                           capture_output=True)
            done = run(HERE / "segments.py", "--workspace", "off", args=(net,))
            check(f"{net} runs", done.returncode == 0, done.stderr)
            ran = [tuple(map(int, line.split())) for line in done.stdout.splitlines()
                   if line[:1].isdigit() and len(line.split()) == 2]
            check(f"{net}: all of them", len(ran) >= 6, done.stdout)
            for number, peak in ran:
                said = json.loads(subprocess.run(
                    [PROGRAM, "estimate", model, "--loss", loss, "--torch", "2.13", "--gpu", "rtx4090",
                     "--workspace", "off", "--checkpoint", f"segments={number}", "--json"],
                    capture_output=True, text=True, check=True).stdout)
                check(f"{net}: {number} segments", said["memory"]["peak_requested"] == peak,
                      (said["memory"]["peak_requested"], peak))
            print(f"{net}: the least of {len(ran)} is {min(ran, key=lambda r: r[1])}")


# ---- short scripts ---------------------------------------------------------------------------


PAGE = HERE.parent.parent / "docs" / "pretend-gpu.md"
TABLE = re.compile(r"(?<=<!-- short scripts -->\n).*?(?=<!-- end -->)", re.S)


def short_scripts():
    """Those of scripts/, which end by themselves, in one process: a list of their names, what they
    are, seconds, peaks and remarks."""
    done = run(HERE / "scripts.py", "--workspace", "off", "--json", gpu=("--gpu", "a100-40g"))
    check("they run", done.returncode == 0, done.stderr)
    r = report(done)
    check("they fit", r["end"] == "done" and not r["num_ooms"], r["end"])
    rows = []
    for ran in (json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")):
        path = HERE / "scripts" / ran["script"]
        text = path.read_text()
        remarks = [c["what"] for c in r["caveats"]
                   if c["line"].startswith(f"scripts/{path.name}:")]
        peak = re.search(r"^# peak: (\d+)$", text, re.M)
        check(f"{path.stem}: its peak", peak and int(peak[1]) == ran["peak"], ran)
        check(f"{path.stem} ends well", not ran["error"] and ran["printed"], ran)
        check(f"{path.stem} leaves nothing", not ran["left"] or "# needs:" in text, ran)
        rows.append((path.stem, text.split('"""')[1], ran["seconds"], ran["peak"], remarks))
    check("a dozen of them", len(rows) >= 12, len(rows))
    return rows


def table_row(name, what, seconds, peak, remarks):
    guesses = [way for r in remarks if " guess" in r for way in
               re.split(", | and ", re.split(" is a guess| are guess", r)[0]) if "which" not in way]
    words = ["guesses: " + ", ".join(f"`{g}`" if "(" in g else g for g in dict.fromkeys(guesses))
             ] * bool(guesses) + list(dict.fromkeys(r for r in remarks if " guess" not in r))
    return f"| `{name}` | {what.rstrip('.')} | {seconds:.1f} s | {peak:,} | {'; '.join(words)} |\n"


def scripts():
    """The short scripts take what they say, and the page says the same, but for the seconds."""
    page = TABLE.search(PAGE.read_text())[0]
    timeless = re.sub(r"\d+\.\d s \|", "", page)
    for row in short_scripts():
        check(f"{row[0]}: {PAGE.name}", re.sub(r"\d+\.\d s \|", "", table_row(*row)) in timeless,
              table_row(*row))


def scripts_table():
    """Writes the table of the short scripts: with every package that they need, and an idle machine."""
    rows = "".join(table_row(*row) for row in short_scripts())
    head = "| script | what it is | time | peak, bytes | remarks |\n| --- | --- | --- | --- | --- |\n"
    PAGE.write_text(TABLE.sub(lambda _: head + rows, PAGE.read_text()))


# ---- torch.distributed ---------------------------------------------------------------------

# tests/run/world.py as rank 3 of 8: peak allocated bytes
WORLD_PEAKS = {"ddp": 1_309_319_680, "ddp_view": 1_111_991_296, "fsdp1": 520_262_144,
               "fsdp2": 532_864_000, "fsdp2_bf16": 373_441_536, "hsdp": 612_602_368,
               "tp": 308_466_688, "fsdp2_tp": 337_800_704, "zero1": 805_660_160}


def world_words():
    """What cannot be meant is said in one line."""
    rank = ("--world", "8", "--rank")
    for options, words in ((("--rank", "3"), "'--rank' needs '--world N'"),
                           (("--world", "8"), "'--world' needs '--rank': a rank in 0..7"),
                           ((*rank, "8"), "8 is not in 0..7 (--world 8)"),
                           ((*rank, "-1"), "got '-1'"), ((*rank, "1,x"), "got '1,x'"),
                           ((*rank, "3,1"), "1 does not come after 3"),
                           (("--world", "100", "--rank", "all"), "64 is the most")):
        done = run(HERE / "world.py", *options)
        check(f"{options} is refused", done.returncode == 2 and words in done.stderr and
              done.stderr.count("\n") == 1, done.stderr)
    done = subprocess.run([PROGRAM, "run", "--gpu", "t4", *rank, "0", "--", "torchrun", "x.py"],
                          capture_output=True, text=True)
    check("torchrun within --world", done.returncode == 2 and "torchrun without '--world'"
          in done.stderr, done.stderr)


def line_of(done, word):
    return next((line.split()[1:] for line in done.stdout.splitlines() if line.startswith(word)),
                [done.stderr])


ROOT, BLOCK = 4 * 2 * 8192 * 1024, 4 * (2 * 1024 * 4096 + 4096 + 1024 + 2 * 1024)
WHOLE = ROOT + 4 * BLOCK  # bytes of the parameters of world.py; BLOCK: of one of its blocks
TP = ROOT // 8 + 4 * 4 * ((2 * 1024 * 4096 + 4096) // 8 + 1024 + 2 * 1024)
# A rank's bytes at its peak, in backward or the optimizer: parameters, with what is gathered,
# and the state of AdamW, which is twice the rank's own
WORLD_KINDS = {"ddp": (WHOLE, 2 * WHOLE), "ddp_view": (WHOLE, 2 * WHOLE),
               "zero1": (WHOLE, ROOT), "tp": (TP, 2 * TP),
               "fsdp1": (WHOLE // 8 + ROOT + 2 * BLOCK, WHOLE // 4),  # one of them fetched ahead
               "fsdp1_flat": (WHOLE // 8 + ROOT + 2 * BLOCK, WHOLE // 4),
               "fsdp2": (WHOLE // 8 + ROOT + BLOCK, WHOLE // 4),
               "fsdp2_bf16": (WHOLE // 8 + (ROOT + BLOCK) // 2, WHOLE // 4),
               "hsdp": (WHOLE // 4 + ROOT + BLOCK, WHOLE // 2)}


def kinds():
    """Shards, what is gathered of them, and what belongs to them are told from activations."""
    rank = ("--world", "8", "--rank", "3", "--json")
    for what, (parameters, state) in WORLD_KINDS.items():
        told = report(run(HERE / "world.py", *rank, args=(what,), gpu=("--gpu", "h100")))
        peak = told["peak"]
        check(f"{what}: parameters and optimizer state", (peak["parameter"], peak[
            "optimizer_state"], peak["input"]) == (parameters, state, 4 * 256 * 8), peak)
        check(f"{what}: two steps", told["steps"] == 2, told["steps"])
        if what in ("ddp", "ddp_view"):  # with the buckets, or in them
            check(f"{what}: gradients", peak["gradient"] == WHOLE * (1 + (what == "ddp")), peak)
    told = report(run(HERE / "world.py", *rank, "--by", "module", args=("fsdp2_tp",),
                      gpu=("--gpu", "h100")))
    rows = {row["line"]: {} for row in told["lines"]}
    for row in told["lines"]:
        for t in row["tensors"]:
            held = rows[row["line"]]
            held[t["category"]] = held.get(t["category"], 0) + t["bytes"]
    head, up = 4 * 8192 * 1024, 4 * (1024 * 4096 + 4096)
    check("modules behind wrappers", rows["head"]["parameter"] == head // 2 + head // 8 and
          rows["layers.3.up"]["parameter"] == up // 8 and
          rows["layers.3.up"]["optimizer_state"] == up // 4, rows)
SUBCLASS = """
import datetime, torch, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard
mesh = init_device_mesh("cuda", (8,))
x = DTensor.from_local(torch.zeros(4, 16, device="cuda"), mesh, [Shard(0)])
assert bool((x == 0).all()) and not (x != 0).any()
dist.distributed_c10d._set_pg_timeout(datetime.timedelta(seconds=9), mesh.get_group())
dist.destroy_process_group()
print("fine")
"""


NODE = """
import os, torch
from torch.distributed.device_mesh import init_device_mesh
names = "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE"
card = int(os.environ["LOCAL_RANK"])
assert torch.cuda.device_count() == 4 and not torch.cuda.is_initialized()
init_device_mesh("cuda", (6,))  # chooses the card, as it is not used yet
assert torch.cuda.current_device() == card
net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64).cuda(), device_ids=[card])
net(torch.ones(8, 64, device="cuda")).sum().backward()
print("node", *(os.environ[name] for name in names))
"""


def world():
    """One rank of eight, with peers that are not there."""
    world_words()
    rank = ("--world", "8", "--rank", "3")
    for what, peak in WORLD_PEAKS.items():
        done = run(HERE / "world.py", *rank, args=(what,), gpu=("--gpu", "h100"))
        check(f"{what} peaks where it should", line_of(done, "peak")[0] == str(peak),
              (line_of(done, "peak"), peak))
        check(f"{what}: backend, rank, size", line_of(done, "rank") == ["3", "8", "nccl"],
              done.stdout[:80])
        check(f"{what}: the report says which rank", " rank 3 of 8\n" in done.stdout, done.stdout)
        check(f"{what}: NCCL's buffers are in a range", re.search(
            r"device .*\s+with the CUDA context and NCCL's buffers \(.*-.*B\)", done.stdout), done.stdout)
    check("objects of others are ours", line_of(done, "objects") ==
          ["[3,", *["3,"] * 6, "3]", "3"], line_of(done, "objects"))
    with tempfile.TemporaryDirectory() as folder:
        done = run(script(folder, SUBCLASS), *rank, "--quiet")
        check("reads of a DTensor, a group's timeout", done.stdout.startswith("fine"), done.stderr)
        done = run(script(folder, NODE), "--world", "6", "--rank", "5", gpu=("--gpu", "4xh100"))
        check("the second node, of two ranks", line_of(done, "node") == ["1", "2", "1", "2"], done.stdout)
        check("its second card", "cuda:1 is the fullest" in done.stdout and re.search(
            r"cuda:0  unused .*\n.*cuda:1  yes .*\n.*cuda:2  unused .*\n.*cuda:3  unused", done.stdout),
            done.stdout)
    for what in "fsdp2", "fsdp2_bf16", "fsdp2_checkpoints":
        done = run(HERE / "world.py", *rank, "--workspace", "off", args=(what, "tracked"),
                   gpu=("--gpu", "h100"))
        said = line_of(done, "tracked")
        check(f"{what}: PyTorch's tracker says the same", len(said) == 2 and said[0] == said[1],
              said)
        print(f"{what}: {said[0]} bytes")


# ZeRO on 8 ranks: what lies on the card when all is made, and is held after a step.
ZERO_NET, LARGEST = 50_360_320, 8192 * 1024  # parameters, those of the largest
ZERO_STEP = (64 << 20) + 2 * 4 * 256 * 8192 + 8 * 4 * 256 + 512  # two workspaces, logits, tokens, loss
FLAG = 512  # of the fused Adam


def zero_arithmetic(made, held):
    """DeepSpeed's three stages, alike on each rank."""
    p, part = ZERO_NET, ZERO_NET // 8
    for stage in "1", "2":
        check(f"ZeRO-{stage}: made", made[stage] == 2 * p + 4 * part + FLAG, made)
        check(f"ZeRO-{stage}: held", held[stage] == 2 * p + 12 * part + ZERO_STEP + 2 * FLAG, held)
        # the buffer has room for the gradient of the largest parameter
        offloaded = f"{stage} optimizer"
        check(f"ZeRO-{offloaded}: made", made[offloaded] == 2 * (p + LARGEST), made)
        check(f"ZeRO-{offloaded}: held", held[offloaded] == 2 * (p + LARGEST) + ZERO_STEP, held)
    check("ZeRO-3: the bucket, a part of parameters, gradients, master parameters",
          0 <= made["3"] - 2 * 500_000_000 - (2 + 2 + 4) * part < 1 << 20, made)
    check("ZeRO-3: the moments", held["3"] - held["3 optimizer"] == (2 + 12) * part + 3 * FLAG, held)
    check("ZeRO-3: parameters on the CPU",
          made["3 optimizer"] - made["3 optimizer parameters"] == 2 * part, made)


def frameworks():
    """DeepSpeed, megatron-core and torchtitan, as far as they are installed: run by name."""
    folder, world = HERE / "frameworks", lambda rank: ("--world", "8", "--rank", rank, "--quiet")

    def figures_of(name, args, rank="3"):
        done = run(folder / f"{name}.py", *world(rank), args=args.split(), gpu=("--gpu", "h100"))
        line = next((li.split() for li in done.stdout.splitlines()
                     if li.startswith(("made ", "parameters "))), [])
        check(f"{name} {args} runs as rank {rank}", done.returncode == 0 and line, done.stderr)
        peak = re.search(r"^peak_allocated (\d+)$", done.stdout, re.M)
        r = dict(zip(line[::2], line[1::2]), peak=peak and peak[1])
        print(name, args, "rank", rank, r)
        return {k: int(v) for k, v in r.items() if v and v.isdigit()}
    if runs("import deepspeed"):
        stages = ("1", "2", "3", "1 optimizer", "2 optimizer", "3 optimizer", "3 optimizer parameters")
        all_of = {a: figures_of("zero", a) for a in stages}
        if all("held" in r for r in all_of.values()):
            zero_arithmetic(*({a: r[k] for a, r in all_of.items()} for k in ("made", "held")))
        for a, peak in ("1", 1_394_779_648), ("2", 1_361_220_096), ("3", 1_445_095_424):
            check(f"ZeRO-{a}: its peak", all_of[a].get("peak") == peak, all_of[a])
            check(f"ZeRO-{a}: rank 0 as rank 3", figures_of("zero", a, "0") == all_of[a])
    if runs("import megatron.core"):
        for args, data in ("1", 8), ("4", 2), ("2 sequence", 4):
            r = figures_of("megatron_gpt", args)
            check(f"Megatron {args}: two moments in fp32, divided among {data}",
                  r.get("state") == 8 * r.get("parameters", 0) // data, r)
    if runs("from torchtitan.config import ConfigManager"):
        norms = (2 * 6 + 1) * 256  # are not divided by tensor parallelism
        for tensor in 1, 2:
            r = figures_of("titan", f"--parallelism.tensor_parallel_degree={tensor}")
            check(f"torchtitan, {tensor} by tensor", r.get("state") ==
                  r.get("parameters", 0) + (tensor - 1) * norms, r)


def ranks():
    """Processes that are there: under torchrun, and one for each rank."""
    launch = [PROGRAM, "run", "--gpu", "h100"]
    for number, backend in ((1, "nccl"), (1, "gloo"), (2, "nccl"), (2, "gloo")):
        done = subprocess.run([*launch, "--", PYTHON, "-m", "torch.distributed.run",
                               f"--nproc_per_node={number}", HERE / "world.py", "fsdp2"
                               if backend == "nccl" else "ddp", backend],
                              capture_output=True, text=True)
        check(f"torchrun starts {number} with {backend}", done.returncode == 0, done.stderr)
        check(f"{number} with {backend}: objects travel", line_of(done, "objects") ==
              (["[0]", "0"] if number == 1 else ["[0,", "1]", "0"]), done.stdout)
        check(f"{number} with {backend}: a table of several ranks",
              done.stdout.count("rank  peak allocated") == (number > 1), done.stdout)
    done = subprocess.run([*launch, "--md", "--world", "2", "--rank", "all", "--", PYTHON, HERE / "world.py", "ddp", "gloo"],
                          capture_output=True, text=True)
    check("in Markdown, too: the table, and a report a rank",
          re.match(r"## Ranks\n\n\| rank \| peak allocated \| reserved \| fits \|\n\| ---: \| ---: \| ---: \| --- \|\n"
                   r"(\| [01] \| [\d.]+ MiB \| [\d.]+ MiB \| yes \|\n){2}\n", done.stdout) and
          done.stdout.count("### Peak") == 2, done.stdout + done.stderr)
    for schedule, kept in ("1f1b", [4, 3, 2, 1]), ("gpipe", [8] * 4):
        done = run(HERE / "pipeline.py", "--world", "4", "--rank", "all", "--json",
                   args=(schedule,), gpu=("--gpu", "h100"))
        check(f"{schedule} runs", done.returncode == 0, done.stderr)
        held = sorted(re.findall(r"^stage (\d) holds (\d)", done.stderr, re.M))
        check(f"{schedule}: each stage holds what it should", held ==
              [(str(i), str(n)) for i, n in enumerate(kept)], held)
        reports = [json.loads(line) for line in done.stdout.splitlines()]
        peaks = [r["peak_allocated"] for r in reports]
        check(f"{schedule}: a report a rank, the worst first", len(reports) == 4 and
              {r["rank"] for r in reports} == {0, 1, 2, 3} and
              peaks == sorted(peaks, reverse=True), peaks)


def trainer():
    """transformers' Trainer runs as --loop trainer says, but for the numbers it logs."""
    if not has_trainer():
        print("left out: transformers with its Trainer does not import here")
        return
    with tempfile.TemporaryDirectory() as folder:
        model, tape = os.path.join(folder, "bert.pt2"), os.path.join(folder, "bert.tape")
        subprocess.run([PYTHON, "-W", "ignore", HERE / "labelled.py", model], check=True,
                       capture_output=True)
        # with padding: a mask of ones is known to be one, and is left out, as on a card
        padded = (EXAMPLES / "bert_trainer.py").read_text().replace(
            "torch.ones(args.length, dtype=torch.long)", "(torch.arange(args.length) > 0).long()")
        done = run(script(folder, padded), "--save", tape)
        check("it runs", done.returncode == 0, done.stderr)
        ran = replay(tape, "2.13")["stats"]["requested_bytes"]["peak"]
        said = json.loads(subprocess.run(
            [PROGRAM, "estimate", model, "--loop", "trainer", "--optimizer", "adamw,impl=fused",
             "--torch", "2.13", "--gpu", "rtx4090", "--json"],
            capture_output=True, text=True, check=True).stdout)["memory"]
        off = ran - said["peak_requested"]
        check("its peak", 0 <= off < 64, (ran, said["peak_requested"]))
        print(f"the Trainer: {ran}, of which {off} for what it logs")


PACKAGED = """
import torch
from inner.deep import grow
kept = grow(3)
"""


TRAINER = """
import sys
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_embd=128, n_head=4, vocab_size=1000))
rows = [{"input_ids": torch.arange(64), "labels": torch.arange(64)} for _ in range(8)]
args = TrainingArguments(sys.argv[1], per_device_train_batch_size=4, max_steps=2,
                         report_to=[], save_strategy="no")
Trainer(model=model, args=args, train_dataset=rows).train()
"""


def inside_trainer(folder):
    """What the Trainer's one line holds is told apart, and its figures stay."""
    path = script(folder, TRAINER)
    own, inside = (report(run(path, "--lines", which, "--json", "--workspace", "off",
                              args=(folder,))) for which in ("own", "all"))
    live = [[row for row in r["lines"] if row["live_at_peak"]] for r in (own, inside)]
    check("the Trainer has one line", len(live[0]) == 1, live[0])
    check("all of its lines", sum(row["live_at_peak"] for row in live[1]) ==
          live[0][0]["live_at_peak"], live)
    check("its peaks", all(own[k] == inside[k] for k in own if k.startswith("peak_")), inside)
    files = {row["line"].rpartition(":")[0] for row in inside["lines"] if row["line"]}
    check("the model's file", "transformers/models/gpt2/modeling_gpt2.py" in files, files)
    check("no file of PyTorch's", not [f for f in files if f.startswith(("torch/", "/"))
                                       and f != path], files)
    state = sum(row["live_at_peak"] for row in live[1]
                if row["line"].startswith("accelerate/optimizer.py"))
    weights = 1000 * 128 + 1024 * 128 + 2 * (12 * 128 * 128 + 13 * 128) + 2 * 128
    # besides two moments of fp32 Adam keeps at most a step count for each parameter
    check("optimizer state", 0 <= state - 2 * 4 * weights <= 28 * 4, (state, weights))


def lines():
    """--lines all names those of installed packages; PyTorch's and Python's never."""
    with tempfile.TemporaryDirectory() as folder:
        package = pathlib.Path(folder, "lib", "site-packages", "inner")
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("")
        (package / "deep.py").write_text(
            "import functools, torch\n"
            "@functools.wraps(len)\n"
            "def grow(n):\n"
            "    layer = torch.nn.Linear(n * 100, 10, device='cuda')\n"
            "    return layer(torch.ones(8, n * 100, device='cuda')).relu().sum().backward()"
            " or layer\n")
        path = script(folder, f"import sys\nsys.path.insert(0, {str(package.parent)!r})" + PACKAGED)
        for option, expected in (((), {f"{path}:5"}), (("--lines", "own"), {f"{path}:5"}),
                                 (("--lines", "all"), {"inner/deep.py:4", "inner/deep.py:5"})):
            done = run(path, *option, "--json")
            rows = report(done)["lines"] if not done.returncode else []
            check(f"lines {option}", {row["line"] for row in rows} == expected, (rows, done.stderr))
        check("the text of a package's line", {row["source"] for row in rows} > {
            "layer = torch.nn.Linear(n * 100, 10, device='cuda')"}, rows)
        if has_trainer():
            inside_trainer(folder)
        done = run(path, "--lines", "some")
        check("another word", done.returncode == 2 and "expected one of own|all" in done.stderr,
              done.stderr)


# ---- what else may happen -------------------------------------------------------------------


def script(folder, text):
    path = os.path.join(folder, "script.py")
    pathlib.Path(path).write_text(text)
    return path


# what, script, exit status, in standard error
BAD = [
    ("an error of the script's own", "import torch\n1 / 0\n", 1, "ZeroDivisionError"),
    ("its exit status", "import torch, sys\nsys.exit(5)\n", 5, ""),
    ("a second card", "import torch\ntorch.ones(1, device='cuda:1')\n", 1, "one pretend GPU"),
    ("a model for a second card", "import torch\ntorch.nn.Linear(1, 1).to('cuda:1')\n", 1,
     "one pretend GPU"),
    ("CUDA graphs", "import torch\ntorch.cuda.CUDAGraph()\n", 1, "graphs are not simulated"),
    ("a forked child that uses the card",
     "import torch, os\ntorch.ones(1, device='cuda')\npid = os.fork()\n"
     "if not pid:\n    torch.ones(1, device='cuda')\nos.waitpid(pid, 0)\n", 0,
     "in forked subprocess"),
    ("a forked child of one that only asked for cards",
     "import torch, os\ntorch.cuda.is_available()\npid = os.fork()\n"
     "if not pid:\n    torch.ones(1, device='cuda')\nos.waitpid(pid, 0)\n", 0,
     "in forked subprocess"),
    ("a loader worker that uses the card as its parent does",
     "import torch\nfrom torch.utils.data import DataLoader\n"
     "class D(list):\n    def __getitem__(self, i):\n        return torch.ones(1, device='cuda').shape\n"
     "torch.ones(1, device='cuda')\n"
     "list(DataLoader(D([1, 2]), num_workers=1))\n", 1, "Cannot re-initialize CUDA in forked"),
    ("the card's memory, read", "import torch, ctypes\n"
     "ctypes.string_at(torch.ones(9, device='cuda').data_ptr(), 4)\n", 139,
     "was ended by signal 11: it may have accessed GPU memory"),
    ("and who read it", "import torch, ctypes\n"
     "ctypes.string_at(torch.ones(9, device='cuda').data_ptr(), 4)\n", 139,
     "script.py\", line 2"),
    ("a signal", "import torch, os\nos.kill(os.getpid(), 9)\n", 137, "was ended by signal 9"),
]
# what, script, exit status, in the report
ENDS = [
    ("an early end", "import torch\ntorch.ones(9, device='cuda')\n1 / 0\n", 1,
     "No verdict\n", "the script ended with ZeroDivisionError at ",
     "script.py:3: division by zero\n"),
    ("a key", "import torch, os, signal\ntorch.ones(9, device='cuda')\n"
     "os.kill(os.getpid(), signal.SIGINT)\n", 130, "It fits, as far as it ran",
     "ended by SIGINT"),
    ("os._exit", "import torch, os\ntorch.ones(9, device='cuda')\nos._exit(9)\n", 9, "It fits\n",
     "script.py:2"),
    ("no memory, in other words", "import torch\ntry:\n    torch.empty(1 << 40, device='cuda')\n"
     "except torch.OutOfMemoryError as e:\n    raise RuntimeError('too much') from e\n", 1,
     "Out of memory at ", "script.py:3"),
    ("a smaller batch", "import torch\nbatch, model = 1 << 27, torch.nn.Linear(64, 64).cuda()\n"
     "while True:\n    try:\n        x = torch.randn(batch, 64, device='cuda')\n"
     "        model(x).sum().backward()\n        break\n"
     "    except torch.OutOfMemoryError:\n        batch //= 2\nprint(batch)\n", 0,
     "It fits, after running out of memory 3 times", "script.py:5 "),
]
GOOD = [
    ("torch.compile", "import torch\nm = torch.compile(torch.nn.Linear(2, 2).cuda())\n"
     "m(torch.ones(1, 2, device='cuda'))\n", "script.py:2  torch.compile was ignored"),
    ("loader workers", "import torch\nfrom torch.utils.data import DataLoader\n"
     "d = DataLoader(torch.randn(8, 4), 2, num_workers=2, pin_memory=True)\n"
     "n = sum(x.cuda().shape[0] for x in d)\nassert n == 8\n", ""),
    ("a forked child whose parent has not used the card",
     "import torch, os\nassert not torch.cuda.is_initialized()\npid = os.fork()\n"
     "if not pid:\n    x = torch.ones(9 << 20, device='cuda')\n    assert torch.cuda.is_initialized()\n"
     "    del x\n    os._exit(0)\n"
     "assert not os.waitpid(pid, 0)[1] and not torch.cuda.is_initialized()\n",
     "script.py:5  36.00 MiB"),
    ("such children and their parent",
     "import torch, multiprocessing\n"
     "def use(n):\n    return torch.ones(n << 20, device='cuda').numel()\n"
     "with multiprocessing.get_context('fork').Pool(2) as pool:\n"
     "    assert sum(pool.map(use, [3, 5])) == 8 << 20\n    pool.close()\n    pool.join()\nuse(7)\n",
     "script.py:3  28.00 MiB"),
    ("loader workers that use the card before their parent does",
     "import torch\nfrom torch.utils.data import DataLoader\n"
     "class D(list):\n    def __getitem__(self, i):\n        return torch.ones(1, device='cuda').shape\n"
     "assert len(list(DataLoader(D([1, 2]), num_workers=1, collate_fn=list))) == 2\n", "script.py:5"),
    ("workers that are processes of their own",
     "import torch\nfrom torch.utils.data import DataLoader\n"
     "if __name__ == '__main__':\n"
     "    d = DataLoader(torch.randn(8, 4), 2, num_workers=2, multiprocessing_context='spawn')\n"
     "    n = sum(x.cuda().shape[0] for x in d)\n    assert n == 8\n", ""),
    ("a value that was read", "import torch\nx = torch.rand(2, device='cuda').sum()\n"
     "assert x.item() == 0\n", "script.py:3  item() is a guess: 0 (--scalar)"),
    ("a branch", "import torch\nx = torch.rand(2, device='cuda')\nif x[0] < x[1]:\n    1 / 0\n",
     "script.py:3  bool(), which decides a branch, is a guess: False (--scalar)"),
    ("a line that reads much", "import torch\ny = torch.rand(2, device='cuda').sum()\n"
     "a = y.item(), bool(y > 3), y.item()\n",
     "script.py:3  item() and bool(), which decides a branch, are guesses (--scalar) (3 x)\n"),
    ("a line that holds nearly everything", "import torch\nfrom torch import nn\n"
     "m = nn.Sequential(nn.Linear(8, 9), nn.ReLU(), nn.Linear(9, 9), nn.ReLU()).cuda()\n"
     "m(torch.ones(99999, 8, device='cuda')).sum().backward()\n",
     "script.py:4  holds 100.0 % of the peak: --by module shows its parts\n"),
    ("values that are known", "import torch\nx = torch.arange(5, device='cuda')\n"
     "assert x.max().item() == 4 and (x > 2).any()\n", "It fits"),
    ("steps", "import torch\np = torch.nn.Parameter(torch.ones(9, device='cuda'))\n"
     "o = torch.optim.SGD([p], 0.1)\nwhile True:\n    p.sum().backward()\n    o.step()\n", "fits"),
    ("no optimizer step", "import torch\np = torch.nn.Parameter(torch.ones(9, device='cuda'))\n"
     "p.sum().backward()\n", "no optimizer step was reached: optimizer state is not part of the peak"),
    ("steps without torch._dynamo, and with it", "import sys, torch\n"
     "p = torch.nn.Parameter(torch.ones(9, device='cuda'))\no = torch.optim.SGD([p], 0.1)\n"
     "p.sum().backward()\no.step()\nassert not p.grad_fn and 'torch._dynamo' not in sys.modules\n"
     "import torch._dynamo\no.zero_grad()\np.sum().backward()\no.step()\n", "fits"),
    ("one card", "import torch\nassert torch.cuda.device_count() == 1\n", "The script did not use the card"),
]


def cases():
    with tempfile.TemporaryDirectory() as folder:
        for what, text, code, words in BAD:
            done = run(script(folder, text))
            check(what, done.returncode == code and words in done.stderr,
                  (done.returncode, done.stderr))
        for what, text, code, *words in ENDS:
            done = run(script(folder, text))
            check(what, done.returncode == code and all(w in done.stdout for w in words),
                  (done.returncode, done.stdout))
        for what, text, words in GOOD:
            done = run(script(folder, text), "--steps", "2")
            check(what, done.returncode == 0 and words in done.stdout, done.stdout + done.stderr)
        text = "import torch\ntorch.ones(1, device='cuda')\nwhile True: pass\n"
        done = run(script(folder, text), "--limit", "2")
        check("a limit", done.returncode == 0 and "stopped after 2 s" in done.stdout and
              "as far as it ran" in done.stdout, done.stdout)
        text = "import torch\nprint(torch.rand(1, device='cuda').sum().item())\n"
        done = run(script(folder, text), "--scalar", "1", "--quiet")
        check("another scalar", done.stdout.startswith("1.0\n"), done.stdout)
        text = "import sys, torch\nprint(torch.ones(int(input()), device='cuda').shape)\n"
        done = run(script(folder, text), "--quiet", stdin="500\n")
        check("standard input", done.stdout.startswith("torch.Size([500])"), done.stdout)


LOOKS = """
import importlib.util, subprocess, sys
try:
    import torch
except ImportError as e:
    print(importlib.util.find_spec("torch"), type(e).__name__, e.name, flush=True)
if len(sys.argv) < 2:
    subprocess.run([sys.executable, __file__, "child"], check=True)
"""


def places():
    """What is there to run, and what is not."""
    def other(*command, env=None, **options):
        return subprocess.run([PROGRAM, "run", "--gpu", "t4", *command], capture_output=True,
                              text=True, env=env, **options)
    done = other("--", PYTHON, "-c", "")
    check("nothing to report", done.returncode == 3 and "used no PyTorch: nothing to report" in done.stderr,
          done.stderr)
    for words, option in [("-I", "I"), ("-E", "E"), ("-S", "S"), ("-u -W ignore -sI", "I"), ("-Xutf8 -E", "E")]:
        done = other("--", "env", PYTHON, *words.split(), "-c", "import sys; sys.exit('-S' in sys.argv)", "-S")
        check(f"python {words}", done.returncode == 1 and f"option '-{option}' keeps" in done.stderr, done.stderr)
    done = other("--", PYTHON, "-c", "", "-I")
    check("an option of the script's", "'-I'" not in done.stderr, done.stderr)
    done = other("--", "/usr/bin/env", "-i", "false", env=dict(os.environ, PYTHONPATH=""))
    check("another program's status", done.returncode == 1, done.returncode)
    done = other("--", "ls", "/")
    check("no Python", done.returncode == 3 and "'ls' used no PyTorch" in done.stderr, done.stderr)
    done = other("--", "/nonexistent/python")
    check("no program", done.returncode == 4 and "No such file" in done.stderr, done.stderr)
    with tempfile.TemporaryDirectory() as folder:
        path = script(folder, "import os, torch\ntorch.ones(8, device='cuda')\nos.chdir('/')\n")
        tape = pathlib.Path(folder, "tape")
        tape.write_text("of before")
        other("--save", "tape", "--", "false", cwd=folder)
        check("a tape of before stays, if there is no other", tape.read_text() == "of before", tape)
        other("--save", "tape", "--", PYTHON, path, cwd=folder)
        check("a tape where the run began", tape.read_text() != "of before", tape)
        fake = pathlib.Path(folder, "torch")
        fake.mkdir()
        (fake / "__init__.py").write_text("")
        (fake / "version.py").write_text("__version__ = '2.5.1+cpu'\n")
        path = script(folder, "import torch\n")
        done = other("--", PYTHON, path)
        check("an old PyTorch", done.returncode == 3 and
              "PyTorch 2.5.1+cpu is too old: 'plimsoll run' needs 2.6 or newer" in done.stderr,
              done.stderr)
        fake.rename(os.path.join(folder, "gone"))
        bare = os.path.join(folder, "bare")
        subprocess.run([PYTHON, "-m", "venv", "--without-pip", bare], check=True)
        done = other("--", os.path.join(bare, "bin", "python"), path)
        check("no PyTorch", done.returncode == 1 and "No module named 'torch'" in done.stderr and
              "this Python has no PyTorch: install it" in done.stderr.splitlines()[-1], done.stderr)
        pathlib.Path(folder, "looks.py").write_text(LOOKS)
        done = other("--", os.path.join(bare, "bin", "python"), os.path.join(folder, "looks.py"))
        check("a script that does without it", done.stdout == "None ModuleNotFoundError torch\n" * 2 and
              done.returncode == 3 and "this Python has no PyTorch" in done.stderr, done.stdout + done.stderr)
        env = dict(os.environ, PATH=bare, XDG_CACHE_HOME=folder)
        env.pop("CXX", None)
        done = other("--", PYTHON, path, env=env)
        check("no compiler", done.returncode == 4 and "no C++ compiler" in done.stderr, done.stderr)


def streams():
    """Those that are closed, of `run` and its script or of the script alone, and one that is full."""
    with tempfile.TemporaryDirectory() as folder:
        text = "import torch\nprint(torch.ones(8, device='cuda').shape)\n"
        command = [PYTHON, script(folder, text)]
        run = [PROGRAM, "run", "--gpu", "t4", "--"]
        for closed in "2>&-", "<&-", "<&- 2>&-", "2>/dev/full":
            for what, words in {"run": [*run, *command],
                                "the script": [*run, "sh", "-c", f'exec "$@" {closed}', "sh", *command]}.items():
                done = subprocess.run(words if what != "run" else ["sh", "-c", f'exec "$@" {closed}', "sh", *words],
                                      capture_output=True, text=True)
                check(f"{what} with {closed}", done.returncode == 0 and done.stdout.startswith("torch.Size([8])\n") and
                      "It fits" in done.stdout, done)
        for closed in ">&-", ">&- 2>&-", "<&- >&- 2>&-":
            done = subprocess.run([*run, "sh", "-c", f'exec "$@" {closed}', "sh", *command], capture_output=True, text=True)
            check(f"the script with {closed}", done.returncode == 0 and done.stdout.startswith("T4"), done)


def several():
    """Several cards, several processes, a limit of one's own: what the tape keeps."""
    with tempfile.TemporaryDirectory() as folder:
        for name, args in (("resnet18_plain", ("--batch", "256")), ("lstm_lm", ("--batch", "200"))):
            path = EXAMPLES / f"{name}.py"
            r = report(run(path, "--json", args=args, gpu=("--gpu", "rtx3060,a100,rtx4090")))
            check(f"{name} ran on the largest", "A100" in r["card"]["name"], r["card"])
            for card, gpu in zip(r["cards"], ("rtx3060", "a100", "rtx4090")):
                alone = report(run(path, "--json", args=args, gpu=("--gpu", gpu)))
                check(f"{name} on {gpu}: as alone", alone["cards"] == [card],
                      (card, alone["cards"]))
        text = ("import torch\ntorch.cuda.set_per_process_memory_fraction(0.25)\n"
                "x = torch.ones(1 << 28, device='cuda')\ny = torch.ones(1 << 30, device='cuda')\n")
        tape = os.path.join(folder, "tape")
        r = report(run(script(folder, text), "--json", "--save", tape, gpu=("--gpu", "t4")))
        again = replay(tape, r["torch"], "--gpu", "t4")
        check("a limit of one's own", r["num_ooms"] == again["num_ooms"] == 1, again)
        check("at the same request", "Tried to allocate 4.00 GiB" in r["oom_text"] and
              "Tried to allocate 4.00 GiB" in again["oom_text"], again["oom_text"])
        check("with the same peaks", peaks(again) == (r["peak_allocated"], r["peak_reserved"]))
        text = ("import subprocess, sys, torch\nx = torch.ones(1 << 20, device='cuda')\n"
                "if len(sys.argv) < 2:\n"
                "    subprocess.run([sys.executable, __file__, 'child'], check=True)\n")
        done = run(script(folder, text), "--json", "--save", tape)
        check("two processes", len([json.loads(line) for line in done.stdout.splitlines()]) == 2 and
              "2 processes used the card" in done.stderr, done.stdout + done.stderr)
        check("two tapes", len([f for f in os.listdir(folder) if f.startswith("tape")]) == 2)


ATTENTION = """
import sys, torch
import torch.nn.functional as F
q = torch.randn(4, 16, 2048, 64, device="cuda", dtype=torch.half, requires_grad=True)
F.scaled_dot_product_attention(q, q, q).sum().backward()
more = torch.empty(int(sys.argv[1]) << 20, device="cuda", dtype=torch.uint8)
print("the end", file=open(sys.argv[2], "a"))
print(sys.stdin.read() if len(sys.argv) > 3 else "words")
"""


def alone():
    """Cards where attention takes another kernel: the script runs there by itself."""
    again = "'NVIDIA T4': the script ran again on that card"
    with tempfile.TemporaryDirectory() as folder:
        path, log = script(folder, ATTENTION), os.path.join(folder, "log")
        for more, code in ("64", 0), ("15000", 1):
            pathlib.Path(log).write_text("")
            done = run(path, "--json", args=(more, log), gpu=("--gpu", "t4,rtx4090,a100"), stdin="")
            check("it runs", done.returncode == 0, done.stderr)
            r = report(done)
            check("its output comes once", done.stderr.count("words\n") == 1, done.stderr)
            check("it ran again where attention differs",
                  pathlib.Path(log).read_text() == "the end\n" * (2 - code),
                  pathlib.Path(log).read_text())
            check("it says so", [again in c["what"] for c in r["caveats"]].count(True) == 1,
                  r["caveats"])
            for card, gpu in zip(r["cards"], ("t4", "rtx4090", "a100")):
                own = run(path, "--json", args=(more, log), gpu=("--gpu", gpu))
                check(f"{gpu} with {more} MiB more: as alone", report(own)["cards"] == [card] and
                      own.returncode == (code if gpu == "t4" else 0), (card, own.stdout))
            line = r["cards"][0]["oom_line"] or ""
            check("where it runs out", line.endswith("script.py:6") == bool(code), line)
        words = run(path, args=("64", log), gpu=("--gpu", "t4,a100"), stdin="").stdout
        check("in the table", re.search(r"^  T4 +14.56 GiB  yes +1\d\d\.\d\d MiB +1\d\d\.\d\d MiB$", words, re.M)
              and again in words, words)
        cases = [("with standard input", [PYTHON, path, "64", log, "reads"],
                  "it has standard input"),
                 ("as a child of the command", ["sh", "-c", '"$@"; exit $?', "sh", PYTHON, path,
                                                "64", log], "run the script on that card alone")]
        for what, command, words in cases:
            pathlib.Path(log).write_text("")
            done = subprocess.run([PROGRAM, "run", "--gpu", "t4,a100", "--json", "--", *command],
                                  capture_output=True, text=True, cwd=HERE, input="some words\n")
            r = report(done)
            check(f"{what} it is not run again", pathlib.Path(log).read_text() == "the end\n",
                  done.stderr)
            check(f"{what}: no figures known to be wrong", [r["cards"][0][k] for k in (
                "fits", "peak_allocated", "peak_reserved", "device_low")] == [None] * 4, r["cards"])
            check(f"{what}: why", any(words in c["what"] for c in r["caveats"]), r["caveats"])
        path = script(folder, ATTENTION + "import time\n"
                      "if torch.cuda.get_device_capability() < (8, 0): time.sleep(1000)\n")
        for what, option, stop in ("--limit", ("--limit", "8"), False), ("a signal", (), True):
            process = subprocess.Popen(
                [PROGRAM, "run", "--gpu", "t4,a100", "--json", *option, "--", PYTHON, path, "64",
                 log], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                text=True)
            seen = any("running the script again" in line for line in process.stderr)
            if stop:
                process.terminate()
            out, err = process.communicate(timeout=60)
            check(f"{what} ends the second run", seen and process.returncode == 0, (out, err))
            check(f"{what}: what is known", json.loads(out)["cards"][0]["fits"] ==
                  (None if stop else "yes"), out)


def leaks():
    """Memory that grows from step to step: where, how fast, and what holds it."""
    grows = re.compile(r"^# grows: (\d+), (\d+) bytes, (\d+) tensors, every (\d+): (.*)$", re.M)
    for path in sorted((HERE / "leaks").glob("*.py")):
        line, *figures, holder = grows.search(path.read_text()).groups()
        r = report(run(path, "--json"))
        found = {g["line"].rpartition(":")[2]: g for g in r["growth"]}
        g = found.get(line, {})
        check(f"{path.stem} grows", [g.get(k) for k in ("bytes", "tensors", "every")] ==
              [int(f) for f in figures], r["growth"])
        check(f"{path.stem}: what holds it", g.get("holder") == holder, r["growth"])
        r = report(run(path, "--json", "--steps", "3"))
        shows = figures[1:] != ["0", "1"] and figures[2] == "1"  # tensors of each step
        check(f"{path.stem} may grow, after three steps",
              not r["growth_sure"] and bool(r["growth"]) == shows, r["growth"])
    path = HERE / "leaks" / "every_two.py"
    words = run(path, gpu=("--gpu", "t4")).stdout
    check("in words", "It fits for the 10 steps that ran, but memory grows\n" in words and
          "128.00 KiB every 2 steps (1 tensor), held by `predictions` in `every_two.py`" in words
          and "Out of memory near step" in words, words)
    words = run(path, "--steps", "4").stdout
    check("too few steps for a verdict", "It fits, as far as 4 steps show\n" in words
          and "grow" not in words, words)
    path = HERE / "leaks" / "validation.py"
    words = run(path, "--steps", "3", gpu=("--gpu", "t4")).stdout
    check("three steps in words",
          "It fits for the 3 steps that ran, but memory may grow\n" in words and
          "Memory may grow: 522.50 KiB a step in each of the last 2 steps\n" in words and
          "on T4, if it goes on\n" in words, words)
    shown = re.findall(r"^ +(\d+)  \w", words.partition("Phases of the first and the last step")[2],
                       re.M)
    check("phases of the first and the last step", set(shown) == {"0", "2"}, words)


def clean():
    """What no step adds to is not said to grow."""
    for path in sorted((HERE / "clean").glob("*.py")):
        needs = re.search(r"^# needs: (.*)$", path.read_text(), re.M)
        if needs and not runs("import " + needs[1].replace(" ", ", ")):
            print(f"{path.stem} is left out: it needs {needs[1]}")
            continue
        for steps in (), ("--steps", "3"):
            done = run(path, "--json", *steps)
            check(f"{path.stem} runs", done.returncode == 0, done.stderr)
            r = report(done) if done.stdout.startswith("{") else {}
            check(f"{path.stem} does not grow", r.get("growth") == [] and r["steps"] > 2,
                  (steps, done.stdout))
    names = ["mlp", "resnet18_plain", "gpt2_124m", "lstm_lm"]
    for name in names + ["bert_trainer"] * has_trainer():
        r = report(run(EXAMPLES / f"{name}.py", "--json", args=("--steps", "6"),
                       gpu=("--gpu", "b200")))
        check(f"{name} does not grow", r["growth"] == [], r["growth"])


def modules():
    """The same memory by line, by module and by op."""
    done = {by: report(run(HERE / "modules.py", "--json", "--by", by, gpu=("--gpu", "t4")))
            for by in ("line", "module", "op")}
    live = {by: sum(row["live_at_peak"] for row in r["lines"]) for by, r in done.items()}
    total = {by: sum(row["requested"] for row in r["lines"]) for by, r in done.items()}
    check("the same in all", len(set(live.values())) == len(set(total.values())) == 1 and
          all(r["by"] == by and r["peak_requested"] == live[by] for by, r in done.items()),
          (live, total))
    rows = {row["line"]: {} for row in done["module"]["lines"]}
    for row in done["module"]["lines"]:
        for t in row["tensors"]:
            kinds = rows[row["line"]]
            kinds[t["category"]] = kinds.get(t["category"], 0) + t["bytes"]
    weight = 4 * (1024 * 4096 + 1024)  # of `down`, with its bias
    down = rows["1.down"]
    check("what belongs to a module", down["parameter"] == weight and
          down["optimizer_state"] == 2 * weight, down)
    check("its backward pass", down["temporary"] == 4 * 4096 * 4096 and
          down["gradient"] == weight, down)
    check("its forward pass", rows["0"]["activation"] == 4 * (4096 * 4096 + 4096 * 1024),
          rows["0"])  # of relu and of the sum
    ops = {row["line"]: row["live_at_peak"] for row in done["op"]["lines"]}
    check("relu", ops["relu"] == 2 * 4 * 4096 * 4096, ops)
    words = run(HERE / "modules.py", "--by", "module", gpu=("--gpu", "t4")).stdout
    check("in words", "\nLive at the peak, by module\n  1.down  " in words and
          "\n  (outside modules)  " in words, words)


# ---- a machine of several cards ----------------------------------------------------------

TWO = ("--gpu", "2xrtx4090")
# what, script, exit status, in its output or the errors
MACHINE = [
    ("no third card", "import torch\ntorch.ones(1, device='cuda:2')\n", 1,
     "there are 2 pretend GPUs, and the script asks for cuda:2"),
    ("one is visible", "import os\nos.environ['CUDA_VISIBLE_DEVICES'] = '1'\nimport torch\n"
     "print(torch.cuda.device_count(), torch.ones(1, device='cuda').device)\n", 0, "1 cuda:0"),
    ("none is visible", "import torch, os\nos.environ['CUDA_VISIBLE_DEVICES'] = ''\n"
     "print(torch.cuda.is_available())\n", 0, "False"),
    ("the second is full", "import torch\nx = [torch.empty(20 << 30, dtype=torch.uint8, "
     "device=f'cuda:{i}') for i in (0, 1, 1)]\n", 1, "GPU 1 has a total capacity of 23.64 GiB"),
]


def machine():
    """Two cards in one process, each with an allocator of its own."""
    cases = [("two_cards", TWO), ("model_parallel", TWO), ("data_parallel", ("--gpu", "rtx4090"))]
    for name, gpu in cases + [("device_map", TWO)] * has_trainer():
        done = run(HERE / f"{name}.py", "--quiet", gpu=gpu)
        check(f"{name} on {gpu[1]}", done.stdout.startswith("fine"), done.stdout + done.stderr)
    done = run(HERE / "data_parallel.py", "--json", gpu=TWO)
    words = re.search(r"^fine (\d+) (\d+)$", done.stderr, re.M)
    check("DataParallel on two cards", words, done.stdout + done.stderr)
    if words:
        r = report(done)
        check("a replica is made of parameters",
              [c["peak"]["parameter"] for c in r["cards"]] == [int(words[1])] * 2, r["cards"][1])
        check("the replicas' lines", all(line["line"] for line in r["cards"][1]["lines"]
                                         if line["live_at_peak"]), r["cards"][1]["lines"])
        check("what is not counted", "NCCL" in r["cards"][0]["caveats"][-1]["what"], r["cards"][0])
    with tempfile.TemporaryDirectory() as folder:
        for what, text, code, words in MACHINE:
            done = run(script(folder, text), gpu=TWO)
            check(what, done.returncode == code and words in done.stdout + done.stderr,
                  (done.returncode, done.stdout, done.stderr))
        check("which card is named", re.search(
            r"\nOut of memory: cuda:1 is the fullest, with 20\.00 GiB of 23\.64 GiB reserved\n"
            r"cuda:1 ran out of memory at \S*script\.py:2\n", done.stdout), done.stdout)
        caught = next(text for what, text, *_ in ENDS if what == "a smaller batch")
        done = run(script(folder, caught), gpu=TWO)
        check("a smaller batch on a machine", done.returncode == 0 and
              "It fits, after running out of memory 3 times: cuda:0 is the fullest" in done.stdout and
              done.stdout.count("\nAttempts that failed\n") == 1 and
              "Tried to allocate" not in done.stdout, done.stdout)
        text = ("import torch\nfrom torch import nn\n"
                "nn.DataParallel(nn.Linear(8, 8).cuda())(torch.ones(4, 8, device='cuda'))"
                ".square().sum().backward()\n")
        done = run(script(folder, text), "--json", gpu=TWO)
        check("a thread works for the line that started it", all(
            line["line"].endswith("script.py:3") for line in report(done)["cards"][1]["lines"]),
            done.stdout)
        tape = os.path.join(folder, "tape")
        text = ("import torch\nx = torch.ones(1 << 20, device='cuda:0')\n"
                "y = torch.ones(8 << 20, device='cuda:1')\n")
        r = report(run(script(folder, text), "--json", "--save", tape, gpu=TWO))
        check("each has its own", [(c["device"], c["peak_requested"]) for c in r["cards"]] ==
              [(0, 4 << 20), (1, 32 << 20)] and r["fullest"] == 1, r)
        for i, end in enumerate(("", ".cuda1")):
            check(f"its tape {i}", peaks(replay(tape + end, "2.13", "--gpu", "rtx4090"))[0] ==
                  r["cards"][i]["peak_allocated"])


# ---- what is made, refused, accepted -----------------------------------------------------

def answer(name):
    """What a script of this folder prints as its one line of JSON."""
    done = run(HERE / f"{name}.py", "--quiet")
    lines = [line for line in done.stdout.splitlines() if line[:1] == "{"]
    check(f"{name} runs", done.returncode == 0 and lines, done.stdout + done.stderr)
    return json.loads(lines[0]) if lines else None


# The words of CUDA's kernels, which name the kernel.
Z = "z = lambda *n, t=None: torch.zeros(n, dtype=t, device='cuda')\n"
CUDA_WORDS = [
    ("F.softmax(z(2, 3, t=torch.int64), -1)", "\"host_softmax\" not implemented for 'Long'"),
    ("F.gelu(z(2, t=torch.int64))", "\"GeluCUDAKernelImpl\" not implemented for 'Long'"),
    ("torch.mm(z(2, 3, t=torch.int64), z(3, 2, t=torch.int64))",
     "\"addmm_cuda\" not implemented for 'Long'"),
    ("torch.mm(z(2, 3), z(3, 2, t=torch.float16))",
     "expected mat1 and mat2 to have the same dtype, but got: float != c10::Half"),
    ("F.cross_entropy(z(3, 5), z(3))", "expected target dtype to be Long or Byte, but got Float"),
    ("torch.gcd(z(2), z(2))", "\"gcd_cuda\" not implemented for 'Float'"),
    ("F.embedding(z(2), z(3, 4))", "but got torch.cuda.FloatTensor instead"),
]


def factories():
    """Ops that make tensors follow PyTorch's defaults."""
    r = answer("factories")
    check("each op of the dispatcher", r["ops"] >= 60 and r["made"] > 3 * r["ops"], r)
    check("made as on the CPU", r["differ"] == [], r["differ"])
    check("could be compared", {name for name, _ in r["unknown"]} <= {"a complex literal"},
          r["unknown"])
    print(f"{r['ops']} ops of the dispatcher, {r['made']} tensors")


def refused():
    """What PyTorch refuses is refused, with its exception and its words."""
    r = answer("refused")
    check("the CPU refuses them", r["accepted"] == [] and r["refused"] >= 600, r)
    check("as on the CPU, or in CUDA's words", r["differ"] == [], r["differ"])
    print(f"{r['refused']} calls")
    with tempfile.TemporaryDirectory() as folder:
        for call, words in CUDA_WORDS:
            text = f"import torch\nfrom torch.nn import functional as F\n{Z}{call}\n"
            done = run(script(folder, text), "--quiet")
            check(call, done.returncode == 1 and words in done.stderr, done.stderr)


def accepted():
    """What PyTorch accepts at the edges is accepted: the same shapes, strides and dtypes."""
    r = answer("accepted")
    check("the CPU accepts them", r["accepted"] > 1600 and len(r["refused"]) < 80, r["refused"])
    check("as on the CPU", r["differ"] == [], r["differ"])
    print(f"{r['accepted']} calls")
# ---- values ----------------------------------------------------------------------------


def routed(how):
    """1024 tokens choose 2 of 16 experts: of rank 3 of 8, of 64 columns."""
    def told(*options, args):
        done = run(HERE / "values" / "routed.py", "--routing", how, *options, args=args)
        return {w[0]: [int(n) for n in w[1:]] for w in map(str.split, done.stdout.splitlines())
                if w and w[0] in ("send", "receive", "requested", "picked", "rows", "peak")
                and all(n.isdigit() for n in w[1:])}, done

    balanced = how == "balanced"
    chosen = 1024 * 2
    got, done = told("--world", "8", "--rank", "3", args=("expert_parallel",))
    rows = chosen if balanced else 8 * chosen  # that all ranks send to this one
    check(f"{how}: splits", got["send"] == ([chosen // 8] * 8 if balanced else
                                            [0, 0, 0, chosen, 0, 0, 0, 0]) and
          got["receive"] == [rows // 8] * 8, (got, done.stderr))
    check(f"{how}: sent, received, hidden", got["requested"] ==
          [4 * (chosen * 64 + rows * 64 + rows * 256)], got)
    check(f"{how}: the guess is named", "(--routing)" in done.stdout, done.stdout)
    got, done = told(args=("one_hot",))
    check(f"{how}: what experts pick", got["picked"] == (
        [chosen // 16] * 16 if balanced else [1024, 1024] + [0] * 14), (got, done.stderr))
    if not has_transformers():
        return 0
    got, done = told(args=("mixtral",))
    check(f"{how}: rows of Mixtral's experts", got.get("rows") == (
        [chosen // 8] * 8 if balanced else [1024, 1024]), (got, done.stderr))
    return got["peak"][0]


def values():
    """What is known of values is used, what is not is guessed, and a guess is listed."""
    for name in ["known", "guessed", "nms"] + ["generate"] * has_transformers():
        done = run(HERE / "values" / f"{name}.py")
        check(name, done.returncode == 0 and done.stdout.startswith("fine"),
              done.stdout + done.stderr)
        guesses = re.findall(r"^  .*\.py:\d+  .*guess.*\n", done.stdout, re.M)
        check(f"{name}: guesses are listed", bool(guesses) == (name not in ("known", "nms")),
              done.stdout)
        lines = re.findall(r"^  (\S+\.py:\d+  \S+)", done.stdout.partition("Remarks\n")[2], re.M)
        check(f"{name}: once a line", len(lines) == len(set(lines)), lines)
    half = "import torch\nx = torch.rand(90, device='cuda')\nprint(x[x > 0.5].shape[0], " \
           "(x > 0.5).sum().item(), (x > 0.5).nonzero().shape[0])\n"
    with tempfile.TemporaryDirectory() as folder:
        done = run(script(folder, half), "--mask-fraction", "0.5", "--quiet")
        check("half of it", done.stdout.startswith("45 45 45\n"), done.stdout)
    balanced, worst = routed("balanced"), routed("worst")
    # of 1024 - 256 rows: the input, both projections, activation, product, the output of the
    # expert before and the places of the rows; less the numbers of six experts
    check("Mixtral's peak", worst - balanced == has_transformers() * (
        768 * (4 * (64 + 2 * 256 + 256 + 256 + 64) + 2 * 8) - 6 * 8), (balanced, worst))
    if not has_transformers():
        print("packed and generate are left out: transformers does not import here")
        return
    done = run(HERE / "values" / "packed.py", "--json", gpu=("--gpu", "h100"))
    r = report(done)
    check("no mask of packed sequences", r["peak_requested"] == 5_492_387_624, r["peak_requested"])
    check("and no guess", r["caveats"] == [], r["caveats"])


GPU_TRUTH = HERE.parent / "golden" / "gpu"


def measures():
    """What is to run on a card runs here: its peaks are then predicted to the byte, and its times are of no card."""
    mlp = {"model": "mlp:8,16,4", "batch": 2, "optimizer": "sgd,momentum=0.9"}
    timed = [dict(mlp, batch=b, steps=3, autocast="fp16", **more)
             for b in (1, 2, 4, 8) for more in ({}, {"infer": True})]
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "card.jsonl"
        with open(path, "w", encoding="utf-8") as f:
            for spec in [dict(mlp, loss="mse"), *timed, {"context": "LAZY"}]:
                done = run(GPU_TRUTH / "collect.py", "--quiet", args=("--one", json.dumps(spec), "--traces", folder))
                line = next((x for x in done.stdout.splitlines() if x.startswith("{")), "{}")
                m = json.loads(line)
                check("it ran", m.get("status") == "ok" and m["spec"] == spec, done.stdout + done.stderr)
                check("each step, and their median", len(m.get("ms", ())) == spec.get("steps", 0) and
                      ("steps" not in spec or sorted(m["ms"])[1] == m["ms_median"] > 0), line)
                f.write(line + "\n")
        done = subprocess.run([sys.executable, str(GPU_TRUTH / "compare.py"), "--program", PROGRAM, str(path)],
                              capture_output=True, text=True)
        again = subprocess.run([sys.executable, str(GPU_TRUTH / "replay.py"), "--program", PROGRAM, "--traces", folder, "--runs", str(path)],
                               capture_output=True, text=True)
        check("its requests replay", again.stdout == "1 runs: 1 with the peak of reserved bytes, 1 with all counters\n",
              again.stdout + again.stderr)
        out = os.path.join(folder, "all.jsonl")
        whole = run(GPU_TRUTH / "collect.py", "--quiet", args=("--suite", "context", "--out", out))
        lines = [json.loads(line) for line in pathlib.Path(out).read_text().splitlines()]
        check("a suite, each run a process of its own", [m["status"] for m in lines] == ["ok", "ok"] and
              [m["spec"] for m in lines] == [{"context": "LAZY"}, {"context": "EAGER"}], whole.stdout + whole.stderr)
    check("no error of the peaks", len(re.findall(r"^\w+: 1 runs, .* all within 0\.00 %$", done.stdout, re.M)) == 3,
          done.stdout + done.stderr)
    check("what is outside the allocator, by stage", len(re.findall(r"^\| NVIDIA GeForce RTX 4090, \S+ \| LAZY \| [a-z0-9 ]+ \| "
                                                                    r"\S+ \| \d+\.\d \|$", done.stdout, re.M)) >= 6, done.stdout)
    check("steps next to estimates", len(re.findall(
        r"^\| NVIDIA GeForce RTX 4090, \S+ \| mlp:8,16,4 \| \d \| \S+ \| fp16 \| \d+\.\d\d \| \d\.\d\d \| "
        r"\d\.\d\d-\d\.\d\d \| \S+ % \|$", done.stdout, re.M)) == len(timed), done.stdout)
    knees = re.findall(r"\| fp16 \| 1-8 \| (\d) \| (\d) \|$", done.stdout, re.M)
    check("where throughput stops growing, by the time to start kernels at the largest",
          [ours for _, ours in knees] == ["8", "8"], done.stdout)


CONVOLUTION = """
import torch
net, x = torch.nn.Conv2d(64, 64, 3, padding=1).cuda(), torch.randn(32, 64, 56, 56, device="cuda")
net(x).sum().backward()
"""


def certainties():
    """What cuDNN takes is an estimate, and says so; all else is exact."""
    with tempfile.TemporaryDirectory() as folder:
        path = script(folder, CONVOLUTION)
        groups = [t for line in report(run(path, "--json", gpu=("--gpu", "h100")))["lines"] for t in line["tensors"]]
        shown = run(path, gpu=("--gpu", "h100")).stdout
    check("a workspace is estimated", {(t["category"] == "workspace", t["certainty"]) for t in groups} ==
          {(True, "estimated"), (False, "exact")}, groups)
    check("in text, too", re.findall(r"\| (\w+, \w+) \|", shown) == ["Workspace, estimated"], shown)


def in_backward():
    """An optimizer for each parameter, stepped by hooks: the estimate is what the loop does."""
    for cls, kw, name in (("AdamW", {}, "adamw"), ("AdamW", {"foreach": False}, "adamw,impl=forloop"),
                          ("AdamW", {"fused": True}, "adamw,impl=fused"), ("SGD", {"momentum": 0.9}, "sgd,momentum=0.9"),
                          ("Adafactor", {}, "adafactor"), ("Adagrad", {}, "adagrad")):
        done = report(run(HERE / "in_backward.py", "--json", args=(cls, json.dumps(kw))))
        told = subprocess.run([PROGRAM, "estimate", "mlp:1000,2000,500:relu", "--batch", "4", "--steps", "3", "--gpu", "rtx4090",
                               "--torch", done["torch"], "--optimizer", name + ",in_backward", "--json"], capture_output=True, text=True)
        want = report(told)["memory"]
        for figure in ("peak_requested", "peak_allocated", "peak_reserved"):
            check(f"{name},in_backward: {figure}", done[figure] == want[figure], (done[figure], want[figure]))


SNAPSHOTS = HERE.parent / "golden" / "snapshots"


def snapshots():
    """A snapshot replays with the recorded segments and blocks, whatever the settings."""
    for conf in ("", "expandable_segments:True", "roundup_power2_divisions:4"):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "run.pickle")
            done = run(HERE / "snapshot.py", *["--alloc-conf", conf][:2 * bool(conf)], "--json", args=(path,))
            again = subprocess.run([PROGRAM, "replay", path, "--torch", report(done)["torch"], "--json"],
                                   capture_output=True, text=True)
            recorded = report(again)["recorded"]
            check(f"snapshot {conf}", recorded["agrees"] is True, (recorded["difference"], again.stderr))
            check(f"snapshot {conf}: lines", any("snapshot.py:" in r["where"] for r in recorded["live_at_peak"]), recorded)
            check(f"snapshot {conf}: peak", report(again)["stats"]["allocated_bytes"]["peak"] ==
                  report(done)["peak_allocated"], report(again)["stats"])
    # what was recorded of PyTorch's compiled allocator, on the pretend GPU
    sys.path.insert(0, str(SNAPSHOTS))
    from record import CASES
    for case in ("native", "oom", "oom-expandable", "streams", "streams-expandable", "random", "random-expandable"):
        _, card, conf, _ = CASES[case]
        with tempfile.TemporaryDirectory() as folder:
            done = run(SNAPSHOTS / "record.py", "--alloc-conf", conf, gpu=("--vram", card), args=("run", case, folder))
            told = subprocess.run([sys.executable, str(SNAPSHOTS / "compare.py"), PROGRAM, folder], capture_output=True, text=True)
        check(f"snapshot of {case}", re.fullmatch(rf"{case}-[\d.]+: agrees\n", told.stdout), told.stdout + done.stderr)


if not torch_is_there():
    print("no Python with a CPU build of PyTorch: set PLIMSOLL_TEST_PYTHON")
    sys.exit(77)
for part in sys.argv[2:] or ("shim", "figures", "searches", "examples", "fits", "finders", "tapes", "segments", "trainer", "lines", "modules",
                             "cases", "places", "several", "alone", "machine", "halving", "leaks", "scripts",
                             "clean", "measures", "certainties", "factories", "refused", "accepted", "values", "snapshots", "in_backward", "world", "kinds", "ranks", "streams"):
    globals()[part]()
print(f"{len(problems)} problems")
sys.exit(len(problems) > 0)
