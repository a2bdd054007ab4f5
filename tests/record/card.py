#!/usr/bin/env python3
"""`plimsoll record` and `plimsoll top` on a real card of NVIDIA's, compared with what the driver itself says.

    card.py PLIMSOLL

Skipped (77) without a card. With nvcc, a program whose CUDA runtime is linked statically is recorded; with a CUDA build of
PyTorch (PLIMSOLL_TEST_CUDA_PYTHON, else this Python's), training, and what signals and a kill of `plimsoll record` leave.
"""
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

MIB = 1 << 20
STATIC = """
#include <cstdio>
#include <cuda_runtime.h>
int main(void)
{
    const size_t sizes[] = {1, 4096, 1 << 20, (2 << 20) + 1, 5 << 20, 32 << 20, 100 << 20, 1 << 30};
    void *at[8];
    size_t held = 0, available, total;
    for (int i = 0; i < 8; i++) {
        if (cudaMalloc(&at[i], sizes[i]))
            return 1;
        held += sizes[i];
    }
    cudaFree(at[6]);
    cudaMemGetInfo(&available, &total);
    printf("figures %zu %zu %zu\\n", held - sizes[6], held, total - available);
    return 0;
}
"""
TRAIN = """
import sys, time, torch
net = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 1024)).cuda()
opt = torch.optim.AdamW(net.parameters())
for step in range(3):
    opt.zero_grad()
    net(torch.randn(64, 1024, device="cuda")).square().mean().backward()
    opt.step()
torch.cuda.synchronize()
free, total = torch.cuda.mem_get_info()
print("figures", torch.cuda.memory_reserved(), torch.cuda.max_memory_reserved(), total - free, flush=True)
if len(sys.argv) > 1:
    time.sleep(float(sys.argv[1]))
"""
bad = 0


def expect(what, good, seen=""):
    global bad
    bad += not good
    print(("ok   " if good else "FAIL ") + what + (f": {seen}" if seen != "" else ""), flush=True)


def figures(text):
    found = re.search(r"^figures (\d+) (\d+) (\d+)$", text, re.M)
    return tuple(map(int, found.groups())) if found else None


def record(plimsoll, folder, command, conf=""):
    """The report of a command and what it said of itself."""
    file = os.path.join(folder, "card.plrec")
    ran = subprocess.run([plimsoll, "record", "-o", file, "--", *command], capture_output=True, text=True, timeout=120,
                         env=dict(os.environ, PYTORCH_CUDA_ALLOC_CONF=conf))
    report = subprocess.run([plimsoll, "replay", "--json", file], capture_output=True, text=True).stdout
    return ran.returncode, figures(ran.stdout), json.loads(report or "{}")


def check_recording(what, code, said, report):
    expect(f"{what}: it ran", code == 0 and said, code)
    if code or not said:
        return
    device = report["devices"][0]
    at_end, peak, used = said
    expect(f"{what}: held at the end and at the peak", (device["at_end"], device["peak"]) == (at_end, peak),
           (device["at_end"], device["peak"], said))
    parts = [p for p in report["parts"] if p["on_device"]]
    expect(f"{what}: by one library or program", [p["at_end"] for p in parts] == [at_end], [(p["library"], p["at_end"]) for p in parts])
    expect(f"{what}: the driver's figure is the sum of the parts",
           device["context"] + device["at_end"] + device["rest"] == device["used"] and abs(device["used"] - used) <= 64 * MIB,
           (device["context"], device["at_end"], device["rest"], device["used"], used))


def check_static(plimsoll, folder):
    nvcc = shutil.which("nvcc")
    if not nvcc:
        print("left out: a static CUDA runtime, there is no nvcc")
        return
    source, program = os.path.join(folder, "static.cu"), os.path.join(folder, "static")
    pathlib.Path(source).write_text(STATIC, encoding="utf-8")
    subprocess.run([nvcc, "-cudart", "static", "-o", program, source], check=True)
    check_recording("static CUDA runtime", *record(plimsoll, folder, [program]))


def torch_held(report):
    """PyTorch's own: cuBLAS allocates outside it."""
    return sum(p["at_end"] for p in report["parts"] if p["library"] == "libc10_cuda.so")


def check_torch(plimsoll, folder, python, script):
    for name, conf in (("native", ""), ("expandable", "expandable_segments:True")):
        code, said, report = record(plimsoll, folder, [python, script], conf)
        expect(f"torch, {name}: it ran", code == 0 and said, code)
        if said:
            expect(f"torch, {name}: what libc10_cuda holds is reserved", torch_held(report) == said[0], (torch_held(report), said[0]))


def wait_for_figures(process):
    for line in process.stdout:
        if figures(line):
            return True
    return False


def children(pid):
    with contextlib.suppress(OSError):
        return [int(x) for x in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def lives(pid):
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def ends(pids, seconds):
    until = time.time() + seconds
    while time.time() < until and any(map(lives, pids)):
        time.sleep(0.1)
    return not any(map(lives, pids))


def check_signals(plimsoll, python, script):
    """What becomes of the command, and of its memory on the card."""
    for name in ("SIGTERM", "SIGHUP", "SIGQUIT", "SIGKILL"):
        number = getattr(signal, name)
        process = subprocess.Popen([plimsoll, "record", "--", python, script, "60"], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, start_new_session=True)
        wait_for_figures(process)
        below = children(process.pid)
        process.send_signal(number)
        errors = process.communicate(timeout=60)[1]
        killed = number == signal.SIGKILL
        expect(f"record, {name}: its exit status", process.returncode == (-number if killed else 128 + number), process.returncode)
        expect(f"record, {name}: the command has ended", below and ends(below, 10), below)
        if not killed:
            expect(f"record, {name}: the report is printed", "libc10_cuda.so" in errors, errors if "libc10_cuda.so" not in errors else "")


def ask_driver():
    """Bytes by process, and of the whole card, as nvidia-smi has them."""
    def ask(what):
        shown = subprocess.run(["nvidia-smi", what, "--format=csv,noheader,nounits"], capture_output=True, text=True)
        return [[x.strip() for x in line.split(",")] for line in shown.stdout.splitlines()]
    return {int(p): int(m) * MIB for p, m in ask("--query-compute-apps=pid,used_memory") if m.isdigit()}, \
        [int(x) * MIB for x in ask("--query-gpu=memory.total,memory.used")[0]]


def check_top(plimsoll, folder, python, script):
    process = subprocess.Popen([python, script, "60"], stdout=subprocess.PIPE, text=True)
    wait_for_figures(process)
    shown = json.loads(subprocess.run([plimsoll, "top", "--once", "--json"], capture_output=True, text=True).stdout)
    metrics = os.path.join(folder, "gpu.prom")
    ran = subprocess.run([plimsoll, "top", "--once", "--prometheus", metrics], capture_output=True, text=True)
    mine, (total, used) = ask_driver()
    process.kill()
    process.wait()
    device = shown["devices"][0]
    print(f"     {device['name']}, driver {shown['nvidia_driver']}: {device['memory']}")
    expect("top: memory of the card", abs(device["memory"]["used"] - used) < 2 * MIB or
           abs(device["memory"]["used"] - device["memory"]["reserved"] - used) < 2 * MIB, (device["memory"]["used"], used))
    expect("top: all of it", abs(device["memory"]["total"] - total) < 2 * MIB, (device["memory"]["total"], total))
    if mine:  # a container may hide them
        expect("top: memory of the process", [abs(p["memory"] - mine.get(p["pid"], 0)) < MIB for p in device["processes"]
                                              if p["pid"] == process.pid] == [True], (device["processes"], mine))
    expect("top --prometheus", ran.returncode == 0 and "plimsoll_" in pathlib.Path(metrics).read_text(encoding="utf-8"), ran.stderr)
    expect("top --prometheus leaves one file", sorted(x for x in os.listdir(folder) if x.startswith("gpu.prom")) == ["gpu.prom"])


def main(plimsoll):
    if not os.path.exists("/dev/nvidia0"):
        print("skipped: there is no card of NVIDIA's")
        return 77
    plimsoll = os.path.abspath(plimsoll)
    python = os.environ.get("PLIMSOLL_TEST_CUDA_PYTHON") or sys.executable
    with tempfile.TemporaryDirectory() as folder:
        check_static(plimsoll, folder)
        has = subprocess.run([python, "-c", "import torch; assert torch.cuda.is_available()"], capture_output=True)
        if has.returncode:
            print("left out: PyTorch, there is no CUDA build")
            return bool(bad)
        script = os.path.join(folder, "train.py")
        pathlib.Path(script).write_text(TRAIN, encoding="utf-8")
        check_torch(plimsoll, folder, python, script)
        check_signals(plimsoll, python, script)
        check_top(plimsoll, folder, python, script)
    print(f"{bad} failed")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
