#!/usr/bin/env python3
"""Measures what PyTorch really allocates on a CUDA card, for tests/golden/gpu/compare.py. One JSON line a run.

    python3 tests/golden/gpu/collect.py [--out FILE] [--suite mlp,cnn,...] [--minutes 10] [--traces FOLDER]

Needs a GPU and torch; runs of torchvision, transformers and peft are left out where those are missing. Each run is a process of its own, so its
allocator is clean: a fork of this one, which has imported PyTorch but has no context yet, and takes a second. Runs that FILE has are
left out, so the script can be stopped and started again. Default FILE: tests/golden/gpu/CARD-torchVERSION.jsonl.

A line has the settings in plimsoll's words, versions (of CUDA, cuDNN, the driver), card, the counters requested, allocated, reserved
after each phase and their peaks within it; cudaMemGetInfo before and after; and, where NVML says so, what this process held before and
after, from which what is outside the allocator follows. By suite, it has

    workspace   what cuDNN takes in the three passes of each of 200 convolutions, for one kind of numbers, layout and setting of benchmark
    time        the milliseconds of 20 steps, each between two CUDA events, after 5 that are not counted; the inputs are on the card, and
                nothing waits between steps
    largest     the largest batch that runs three steps within a fraction of the card, each try a process of its own
    context     what the process holds outside the allocator, stage by stage

--traces writes, for each run of training or inference, what it asked of the allocator: FOLDER/ID.json.gz, a list in order. A number is an
allocation of so many bytes (the n-th is number n), -n its release; "sBYTES@ADDRESS" is a segment from the driver, "uBYTES@ADDRESS" one
given back, "oBYTES" a request that failed. `replay.py --traces FOLDER --runs FILE` compares them with the simulated allocator.
"""
import argparse
import contextlib
import ctypes
import datetime
import functools
import gzip
import importlib
import importlib.util
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent

MLPS = ["mlp:3,300,300,400,300,100", "mlp:1024,4096,4096,1000:relu"]
CNNS = """alexnet vgg16 vgg16_bn resnet18 resnet50 wide_resnet50_2 resnext50_32x4d densenet121 squeezenet1_1 mobilenet_v2
mobilenet_v3_large googlenet inception_v3 mnasnet1_0 shufflenet_v2_x1_0 efficientnet_b0 convnext_tiny vit_b_16 swin_t""".split()


PRECISIONS = ("fp32", "tf32", "bf16")


def convolutions():
    """200 shapes: (batch, channels in, channels out, side, kernel, stride, groups)."""
    out = []
    for batch in (8, 64):
        for side, channels in ((112, 32), (56, 64), (28, 128), (14, 256), (7, 512)):
            for kernel, stride in ((1, 1), (1, 2), (3, 1), (3, 2), (5, 1), (7, 2)):
                for wider in (1, 2, 4):
                    out.append((batch, channels, channels * wider, side, kernel, stride, 1))
            out.append((batch, channels, channels, side, 3, 1, channels // 16))
            out.append((batch, channels, channels, side, 3, 1, channels))
    return out


def suites():
    def run(model, batch, optimizer="sgd", **more):
        return dict(model=model, batch=batch, optimizer=optimizer, **more)

    def of_config(config, optimizer="adamw", **more):
        return dict(config=config, optimizer=optimizer, made="card", **more)

    gpt2 = dict(batch=8, seq=1024, dtype="bf16")
    return {
        "mlp": [run(MLPS[0], 10, loss="mse")] + [run(MLPS[1], 256, o) for o in (
            "sgd", "sgd,momentum=0.9", "adam", "adamw,impl=fused", "adam,impl=forloop", "rmsprop", "adagrad", "adafactor")],
        "cnn": [run(m, b, o) for m in CNNS for b, o in ((32, "sgd,momentum=0.9"), (64, "adamw"))],
        "bf16": [run(m, 64, "adamw", dtype="bf16") for m in ("resnet50", "convnext_tiny", "vit_b_16", "swin_t")],
        "autocast": [run(m, 64, "adamw", autocast="bf16") for m in CNNS],
        "sweep": [run("resnet50", b, "sgd,momentum=0.9") for b in (1, 2, 4, 8, 16, 48, 96, 128, 192)],
        "infer": [run(m, 32, infer=True) for m in CNNS],
        "config": [of_config("gpt2", batch=4, seq=1024), of_config("gpt2", **gpt2), of_config("gpt2", checkpoint="blocks", **gpt2),
                   of_config("gpt2", attention="eager", **gpt2), of_config("gpt2", infer=True, **gpt2),
                   of_config("gpt2", "adamw,impl=fused", batch=8, seq=1024, autocast="bf16"),
                   of_config("gpt2-medium", batch=4, seq=1024, autocast="fp16"), of_config("distilbert", batch=32, seq=256),
                   of_config("bert-large", batch=32, seq=256, autocast="bf16"), of_config("vit-base", batch=64, autocast="bf16"),
                   of_config("clip-base", batch=64, autocast="bf16"), of_config("whisper-small", batch=8, autocast="fp16", input="labels=8,128"),
                   of_config("qwen3-0.6b", batch=4, seq=1024, dtype="bf16"),
                   of_config("qwen2.5-1.5b", batch=4, seq=2048, dtype="bf16", checkpoint="blocks"),
                   of_config("gemma2-2b", batch=2, seq=2048, dtype="bf16", checkpoint="blocks", attention="sdpa"),
                   of_config("qwen3moe-small", batch=4, seq=512, dtype="bf16"), of_config("gptoss-small", batch=4, seq=512, dtype="bf16"),
                   of_config("mistral-7b", batch=4, seq=2048, dtype="bf16", checkpoint="blocks", lora="r=16")],
        "time": [run(m, b, o, steps=20, **more)
                 for m, b in ((MLPS[1], 256), ("resnet50", 64), ("mobilenet_v2", 64), ("vit_b_16", 64))
                 for more in ({}, {"autocast": "fp16"}, {"autocast": "bf16"})
                 for o, more in (("sgd,momentum=0.9", more), ("adamw", more), ("sgd", dict(more, infer=True)))]
        + [run(m, b, o, steps=20, autocast="fp16", **more)  # with those of 64: where throughput stops growing
           for m in ("resnet50", "vit_b_16") for o, more in (("sgd,momentum=0.9", {}), ("sgd", {"infer": True}))
           for b in (1, 2, 4, 8, 16, 32, 128, 256)],
        "workspace": [run("convolutions", 0, workspace=p, channels_last=last, benchmark=search)
                      for p in PRECISIONS for last in (False, True) for search in (False, True)],
        "largest": [dict(model="densenet121", optimizer="adamw", fraction=0.1),
                    of_config("gpt2", seq=1024, dtype="bf16", fraction=0.2)],
        "context": [dict(context=loading) for loading in ("LAZY", "EAGER")],
    }


# ---- the model of a run, and what a step of it is given ----------------------------------------------------------------


DTYPES = {"bf16": "bfloat16", "fp16": "float16"}


def dtype_of(name):
    import torch

    return getattr(torch, DTYPES.get(name, "float32"))


def optimizer(spec, params):
    import torch

    name, *options = spec["optimizer"].split(",")
    options = dict(o.split("=") for o in options)
    impl = {"foreach": {"foreach": True}, "forloop": {"foreach": False}, "fused": {"fused": True}}.get(options.pop("impl", ""), {})
    cls = {"sgd": "SGD", "adam": "Adam", "adamw": "AdamW", "rmsprop": "RMSprop", "adagrad": "Adagrad", "adafactor": "Adafactor"}[name]
    return getattr(torch.optim, cls)(params, lr=1e-3, **{k: float(v) for k, v in options.items()}, **impl)


def within(spec):
    """What a forward pass runs within."""
    import torch

    cast = torch.autocast("cuda", dtype=dtype_of(spec["autocast"])) if "autocast" in spec else contextlib.nullcontext()
    stack = contextlib.ExitStack()
    stack.enter_context(torch.no_grad() if spec.get("infer") else contextlib.nullcontext())
    stack.enter_context(cast)
    return stack


class Network:
    """An MLP or a network of torchvision: made on the CPU, moved, and given images of noise."""

    def __init__(self, spec):
        from torch import nn

        self.spec, name, self.side = spec, spec["model"], 224
        if name.startswith("mlp:"):
            sizes, _, act = name[4:].partition(":")
            dims = [int(x) for x in sizes.split(",")]
            layers = []
            for i, (a, b) in enumerate(zip(dims, dims[1:])):
                layers += [nn.Linear(a, b)] + ([nn.ReLU()] if act == "relu" and i < len(dims) - 2 else [])
            self.model, self.sample, self.classes = nn.Sequential(*layers), (dims[0],), dims[-1]
        else:
            self.model, side = self.of_torchvision(name)
            self.sample, self.classes = (3, side, side), 1000
        self.dtype = dtype_of(spec.get("dtype"))
        self.model = self.model.to(self.dtype).cuda()
        self.criterion = nn.MSELoss() if spec.get("loss") == "mse" else nn.CrossEntropyLoss()

    @staticmethod
    def of_torchvision(name):
        import torchvision

        more = {"googlenet": {"aux_logits": False, "init_weights": False}, "inception_v3": {"init_weights": False}}.get(name, {})
        return getattr(torchvision.models, name)(weights=None, **more), 299 if name == "inception_v3" else 224

    def inputs(self):
        import torch

        batch = self.spec["batch"]
        x = torch.randn(batch, *self.sample).to(self.dtype).cuda()
        if self.spec.get("infer"):
            return x, None
        if self.spec.get("loss") == "mse":
            return x, torch.randn(batch, self.classes).to(self.dtype).cuda()
        return x, torch.randint(self.classes, (batch,)).cuda()

    def run(self, x, y):
        """What the model returns, and then the loss."""
        with within(self.spec):
            out = self.model(x)
        yield "forward", out
        if y is not None:
            with within(self.spec):
                loss = self.criterion(out[0], y) + 0.4 * self.criterion(out[1], y) if isinstance(out, tuple) else self.criterion(out, y)
            yield "loss", loss


class Transformer:
    """A model of transformers with random weights, made on the card, which computes its loss itself."""

    def __init__(self, spec):
        import torch
        import transformers

        self.spec = spec
        config = transformers.AutoConfig.from_pretrained(HERE / "configs" / f"{spec['config']}.json")
        cls = getattr(transformers, config.architectures[0])
        how = {"attn_implementation": spec["attention"]} if "attention" in spec else {}
        with torch.device("cuda"):
            self.model = cls._from_config(config, dtype=dtype_of(spec.get("dtype")), **how)
        if "lora" in spec:
            import peft

            rank = int(spec["lora"].removeprefix("r="))
            self.model = peft.get_peft_model(self.model, peft.LoraConfig(r=rank, target_modules=["q_proj", "v_proj"]))
        if spec.get("checkpoint") == "blocks":
            self.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
            self.model.enable_input_require_grads() if "lora" in spec else None
        self.config = config

    def inputs(self):
        """By the name of the model's main input."""
        import torch

        batch, config, train = self.spec["batch"], self.config, not self.spec.get("infer")
        text, vision = (getattr(config, part, config) for part in ("text_config", "vision_config"))
        x = {}
        if "input" not in self.spec and hasattr(text, "vocab_size"):
            x["input_ids"] = torch.randint(text.vocab_size, (batch, self.spec.get("seq", text.max_position_embeddings))).cuda()
        if hasattr(vision, "image_size"):
            x["pixel_values"] = torch.randn(batch, 3, vision.image_size, vision.image_size).to(self.model.dtype).cuda()
        if hasattr(config, "num_mel_bins"):
            x["input_features"] = torch.randn(batch, config.num_mel_bins, 2 * config.max_source_positions).to(self.model.dtype).cuda()
        if "input" in self.spec:
            name, _, shape = self.spec["input"].partition("=")
            x[name] = torch.randint(text.vocab_size, [int(n) for n in shape.split(",")]).cuda()
        if train and hasattr(config, "text_config"):
            x["return_loss"] = True
        elif train and "labels" not in x:
            x["labels"] = x["input_ids"] if "input_ids" in x else torch.randint(config.num_labels, (batch,)).cuda()
        return (x,)

    def run(self, x):
        infer = self.spec.get("infer")
        with within(self.spec):
            out = self.model(**x) if infer else self.model(**x).loss
        yield "forward" if infer else "forward+loss", out


def make(spec):
    job = (Transformer if "config" in spec else Network)(spec)
    job.model.train(not spec.get("infer"))
    return job


# ---- what a card says ---------------------------------------------------------------------------------------------------


class Process(ctypes.Structure):
    """nvmlProcessInfo_t. src: NVML's header of CUDA 13.0, nvml.h"""
    _fields_ = [("pid", ctypes.c_uint), ("bytes", ctypes.c_ulonglong), ("gpu_instance", ctypes.c_uint), ("compute_instance", ctypes.c_uint)]


class Nvml:
    """NVIDIA's management library, as nvidia-smi uses it; where there is none, what it says is None."""

    def __init__(self):
        try:
            self.library = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError:
            self.library = None
            return
        self.library.nvmlInit_v2()

    def driver(self):
        name = ctypes.create_string_buffer(96)
        if not self.library or self.library.nvmlSystemGetDriverVersion(name, len(name)):
            return None
        return name.value.decode()

    def process_bytes(self):
        """Of this process on the first card that PyTorch sees."""
        import torch

        if not self.library:
            return None
        card, count, rows = ctypes.c_void_p(), ctypes.c_uint(1024), (Process * 1024)()
        uuid = f"GPU-{torch.cuda.get_device_properties(0).uuid}".encode()
        if self.library.nvmlDeviceGetHandleByUUID(uuid, ctypes.byref(card)):
            return None
        if self.library.nvmlDeviceGetComputeRunningProcesses_v3(card, ctypes.byref(count), rows):
            return None
        return next((row.bytes for row in rows[:count.value] if row.pid == os.getpid()), None)


def begin(spec):
    """Makes the context, and the allocator's first segment; what the line of a run begins with."""
    import torch

    torch.zeros(1, device="cuda")
    nvml = Nvml()
    free, total = torch.cuda.mem_get_info()
    line = dict(spec=spec, date=str(datetime.date.today()), torch=torch.__version__, cuda=torch.version.cuda,
                cudnn=torch.backends.cudnn.version(), driver=nvml.driver(), card=torch.cuda.get_device_name(0),
                capability=list(torch.cuda.get_device_capability(0)), total=total, free_before=free)
    held = nvml.process_bytes()
    return line if held is None else dict(line, process_start=held)


def end(line):
    """What is left at the end; what is neither left nor reserved is outside the allocator."""
    import torch

    line["free_after"] = torch.cuda.mem_get_info()[0]
    line["reserved_after"] = torch.cuda.memory_reserved()
    held = Nvml().process_bytes()
    if held is not None:
        line["process_end"], line["reserved_end"] = held, line["reserved_after"]
    print(json.dumps(line))


# ---- one run -----------------------------------------------------------------------------------------------------------


KINDS = ("requested", "allocated", "reserved")


def set_up(spec):
    import torch

    torch.backends.cudnn.allow_tf32 = spec.get("cudnn-tf32") != "off"
    torch.backends.cudnn.benchmark = spec.get("benchmark", False)
    if "fraction" in spec:
        torch.cuda.set_per_process_memory_fraction(spec["fraction"])


def memory(spec, traces=None):
    """Three steps, or three passes of inference."""
    import torch

    line = dict(begin(spec), phases=[])
    history, step = History() if traces else None, 0

    def phase(name):
        torch.cuda.synchronize()
        s = torch.cuda.memory_stats()
        row = dict(step=step, phase=name)
        for k in KINDS:
            row[k], row["peak_" + k] = s[f"{k}_bytes.all.current"], s[f"{k}_bytes.all.peak"]
        line["phases"].append(row)
        torch.cuda.reset_peak_memory_stats()

    torch.cuda.reset_peak_memory_stats()
    try:
        set_up(spec)
        job, kept = make(spec), {}
        opt = None if spec.get("infer") else optimizer(spec, job.model.parameters())
        phase("load")
        for step in range(3):
            x = job.inputs()
            phase("inputs")
            if opt:
                opt.zero_grad()
            for name, kept[name] in job.run(*x):
                phase(name)
            if opt:
                kept[name].backward()
                phase("backward")
                opt.step()
                phase("optimizer")
        line["status"] = "ok"
    except torch.cuda.OutOfMemoryError as e:
        line["status"], line["error"] = "oom", str(e)
    s = torch.cuda.memory_stats()
    for k in KINDS:
        line["peak_" + k] = max([s[f"{k}_bytes.all.peak"]] + [row["peak_" + k] for row in line["phases"]])
    line.update(segments=s["segment.all.current"], retries=s["num_alloc_retries"])
    if history:
        line["id"] = id_of(spec)
        history.write(pathlib.Path(traces) / f"{line['id']}.json.gz")
    end(line)


class History:
    """What the allocator was asked for since."""

    def __init__(self):
        import torch

        self.events = lambda: torch.cuda.memory._snapshot()["device_traces"][0]
        torch.cuda.memory._record_memory_history(context=None, max_entries=sys.maxsize)
        self.before = len(self.events())

    def write(self, path):
        numbers, count, out = {}, 0, []
        for event in self.events()[self.before:]:
            what, size, address = event["action"], event["size"], event.get("addr", 0)
            if what == "alloc":
                count += 1
                numbers[address] = count
                out.append(size)
            elif what == "free_completed" and address in numbers:
                out.append(-numbers.pop(address))
            elif what in ("segment_alloc", "segment_map", "segment_free", "segment_unmap"):
                out.append(f"{'s' if what in ('segment_alloc', 'segment_map') else 'u'}{size}@{address:x}")
            elif what == "oom":
                out.append(f"o{size}")
        path.write_bytes(gzip.compress(json.dumps(out).encode(), mtime=0))


def id_of(spec):
    """For a name of a file: the settings in their order."""
    words = (value if isinstance(value, str) else f"{key}-{value}" for key, value in spec.items())
    return re.sub(r"[^a-z0-9.]+", "-", "-".join(words).lower())


def took(run):
    """What run() has at its peak besides what it returns."""
    import torch

    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    kept = run()
    torch.cuda.synchronize()
    made = torch.cuda.memory_allocated() - before
    del kept
    return torch.cuda.max_memory_allocated() - before - made


def workspaces(spec):
    """Each convolution twice: what the second takes is what was chosen, what the first takes is the search."""
    import torch

    line = begin(spec)
    half = spec["workspace"] == "bf16"
    torch.backends.cudnn.allow_tf32 = spec["workspace"] == "tf32"
    torch.backends.cudnn.benchmark = spec["benchmark"]
    layout = torch.channels_last if spec["channels_last"] else torch.contiguous_format
    line["rows"] = []
    for shape in convolutions():
        batch, cin, cout, side, kernel, stride, groups = shape

        def tensor(*sizes):
            t = torch.zeros(*sizes, dtype=torch.bfloat16 if half else torch.float32, device="cuda")
            return t.contiguous(memory_format=layout)

        pad = [kernel // 2] * 2
        common = [[stride] * 2, pad, [1, 1], False, [0, 0], groups]
        x, w = tensor(batch, cin, side, side), tensor(cout, cin // groups, kernel, kernel)
        out = (side + 2 * pad[0] - kernel) // stride + 1
        dy = tensor(batch, cout, out, out)
        passes = {
            "forward": lambda: torch.ops.aten.convolution(x, w, None, *common),
            "grad_input": lambda: torch.ops.aten.convolution_backward(dy, x, w, None, *common, [True, False, False]),
            "grad_weight": lambda: torch.ops.aten.convolution_backward(dy, x, w, None, *common, [False, True, False]),
        }
        try:
            line["rows"].append(dict(shape=shape, **{name: [took(run), took(run)] for name, run in passes.items()}))
        except torch.cuda.OutOfMemoryError as e:
            line["rows"].append(dict(shape=shape, error=str(e)))
        del x, w, dy, passes
    line["status"] = "ok"
    end(line)


def times(spec):
    """The milliseconds of spec["steps"] steps. What is timed is between two events, and the program never waits."""
    import torch

    line = begin(spec)
    try:
        job = make(spec)
        opt, x = optimizer(spec, job.model.parameters()), job.inputs()

        def step():
            opt.zero_grad()
            *_, (_, last) = job.run(*x)
            if not spec.get("infer"):
                last.backward()
                opt.step()

        for _ in range(5):
            step()
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(spec["steps"] + 1)]
        marks[0].record()
        for mark in marks[1:]:
            step()
            mark.record()
        torch.cuda.synchronize()
        line["ms"] = [a.elapsed_time(b) for a, b in zip(marks, marks[1:])]
        line["ms_median"] = statistics.median(line["ms"])
        line["status"] = "ok"
    except torch.cuda.OutOfMemoryError as e:
        line["status"], line["error"] = "oom", str(e)
    end(line)


def context(spec):
    """What the process holds besides what is reserved, after each of several first uses."""
    import torch

    os.environ["CUDA_MODULE_LOADING"] = spec["context"]  # the driver reads it when it makes the context
    line = dict(begin(spec), rows=[])
    nvml, tensor = Nvml(), functools.partial(torch.randn, device="cuda", requires_grad=True)
    half, image = tensor(4, 8, 64, 64, dtype=torch.bfloat16), tensor(8, 16, 32, 32)
    stages = {
        "tensors": lambda: None,
        "products": lambda: tensor(512, 512) @ tensor(512, 512),
        "products in bf16": lambda: half @ half,
        "products backward": lambda: (tensor(512, 512) @ tensor(512, 512)).sum().backward(),
        "convolution": lambda: torch.nn.functional.conv2d(image, tensor(16, 16, 3, 3)).sum().backward(),
        "attention": lambda: torch.nn.functional.scaled_dot_product_attention(half, half, half),
        "linear algebra": lambda: torch.linalg.svd(tensor(64, 64)),
        "sort": lambda: torch.sort(torch.randn(100000, device="cuda")),
    }
    for name, run in stages.items():
        try:
            run()
        except RuntimeError as e:  # a library that is not there
            line.setdefault("errors", {})[name] = str(e)
            continue
        torch.cuda.synchronize()
        reserved = torch.cuda.memory_reserved()
        held, used = nvml.process_bytes(), line["total"] - torch.cuda.mem_get_info()[0]
        line["rows"].append([name, None if held is None else held - reserved, used - reserved])
    line["status"] = "ok"
    end(line)


def one(spec, traces=None):
    if "workspace" in spec:
        return workspaces(spec)
    if "steps" in spec:
        return times(spec)
    if "context" in spec:
        return context(spec)
    return memory(spec, traces)


# ---- all runs --------------------------------------------------------------------------------------------------------------


def in_fork(run, *args):
    """What run() prints, in a process that begins as this one is; and how the process ended."""
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        os.dup2(write, 1)
        status = 1
        try:
            run(*args)
            sys.stdout.flush()
            status = 0
        finally:
            os._exit(status)
    os.close(write)
    with os.fdopen(read) as f:
        text = f.read()
    return text, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def in_process(spec, traces):
    """The same in a process from the beginning, which is for a parent that has a context already: the pretend GPU's."""
    command = [sys.executable, __file__, "--one", json.dumps(spec)] + (["--traces", str(traces)] if traces else [])
    run = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    return run.stdout.decode(), run.returncode


def line_of(start, spec, traces=None):
    """The line of one run, which has a status however the run ended."""
    text, code = start(spec, traces)
    lines = [x for x in text.splitlines() if x.startswith("{")]
    return json.loads(lines[-1]) if lines else dict(spec=spec, status="error", error=f"exit {code}")


def largest(start, spec):
    """Doubles the batch until it does not fit, and halves what is between."""
    line, fits, fails = {}, 0, None
    while fails is None or fails - fits > 1:
        batch = max(2 * fits, 8) if fails is None else (fits + fails) // 2
        line = line_of(start, dict(spec, batch=batch))
        if line["status"] not in ("ok", "oom"):
            return line
        fits, fails = (batch, fails) if line["status"] == "ok" else (fits, batch)
    facts = {key: line[key] for key in ("date", "torch", "cuda", "cudnn", "driver", "card", "total")}
    return dict(facts, spec=spec, status="ok", fraction=spec["fraction"], largest=fits)


def default_out():
    import torch

    name, _ = in_fork(lambda: print(torch.cuda.get_device_name(0)))  # which makes a context
    card = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    return HERE / f"{card}-torch{torch.__version__.split('+')[0]}.jsonl"


def needs(spec):
    """The packages without which a run is left out."""
    if "config" in spec:
        return {"transformers", "peft"} if "lora" in spec else {"transformers"}
    return set() if spec.get("model", "mlp:").startswith(("mlp:", "convolutions")) else {"torchvision"}


def import_once(specs):
    """Here, not in each fork."""
    for package in sorted(set().union(*map(needs, specs))):
        importlib.import_module(package)
    for spec in specs:
        if "config" in spec:
            import transformers

            config = transformers.AutoConfig.from_pretrained(HERE / "configs" / f"{spec['config']}.json")
            getattr(transformers, config.architectures[0])


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("--out", type=pathlib.Path)
    ap.add_argument("--suite", default=",".join(suites()))
    ap.add_argument("--minutes", type=float, default=10)
    ap.add_argument("--traces", type=pathlib.Path)
    ap.add_argument("--one", help=argparse.SUPPRESS)
    args = ap.parse_args()
    if args.one:
        return one(json.loads(args.one), args.traces)
    import torch

    start = in_process if torch.cuda.is_initialized() else functools.partial(in_fork, one)
    out = args.out or default_out()
    done = [json.loads(line)["spec"] for line in out.read_text().splitlines()] if out.exists() else []
    end = time.time() + 60 * args.minutes
    if args.traces:
        args.traces.mkdir(parents=True, exist_ok=True)
    specs = [s for name in args.suite.split(",") for s in suites()[name]
             if s not in done and all(map(importlib.util.find_spec, needs(s)))]
    import_once(specs)
    for spec in specs:
        if time.time() > end:
            print("out of time: run it again for the rest")
            return 1
        r = largest(start, spec) if "fraction" in spec else line_of(start, spec, args.traces)
        with open(out, "a") as f:
            f.write(json.dumps(r) + "\n")
        print(id_of(spec), r["status"], r.get("peak_allocated"), r.get("peak_reserved"), r.get("ms_median") or r.get("largest"), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
