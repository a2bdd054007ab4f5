#!/usr/bin/env python3
"""check_ops.py -- checks that a recording of real PyTorch covers every row of ops.def.

An op counts as covered if a network of tests/golden/torch, whose steps are compared event by event, calls it (in place or not), or
an export in tests/data or tests/golden/zoo/nodes.txt does, whose shapes are compared, or one of tests/golden/differential, whose
peaks are. Prints the rows that nothing calls.
"""
import pathlib
import re
import sys
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
TARGET = re.compile(rb"(?:aten|transformers)\.([A-Za-z0-9_]+)\.([A-Za-z0-9_]+)")


# Stand for kernels, or for Python, that are no op of PyTorch.
OURS = {"packed_linear": "tests/unit/test_hf_quant.c", "linear4bit": "tests/golden/tune/tune.py",
        "linear8bit": "tests/golden/tune/tune.py", "hada_weight": "tests/golden/tune/tune.py", "cache_update": "tests/golden/idiom/idiom.py", "rotary_angles": "tests/golden/gpu/compare.py", "static_cache_update": "tests/golden/serve/serve.py",
        **{name: "tests/golden/attention/attention.py" for name in ("flash_attention", "put_rows", "true_places")},
        **{f"tp_{name}": "tests/golden/share/part.py"
           for name in ("enter", "reduce", "gather", "unite", "scatter", "embedding")},
        **{name: "tests/golden/share/experts.py" for name in ("held", "ep_exchange", "repeat_interleave.self_Tensor")},
        **{f"cp_{name}": "tests/golden/share/context.py" for name in ("part", "attention")},
        "zero3_linear": "tests/golden/share/share.py",
        "linear_cross_entropy": "tests/golden/loss/loss.py", "liger_cross_entropy": "tests/golden/loss/loss.py",
        "requires_grad": "tests/golden/tune/tune.py",
        "ctc_loss": "tests/golden/families/audio.py",  # PyTorch cannot export it: a size depends on lengths
        **{f"megatron_{name}": "tests/golden/megatron/gpt.py"
           for name in ("linear", "scatter", "split", "softmax", "activation", "dropout_add", "rope", "attention", "loss", "router",
                                                                         "attach", "gather", "indices", "select", "unpermute", "attribute")},
        # Transformer Engine's, which has no CPU build: compared with what cards recorded
        **{f"megatron_{name}": "tools/megatron_table.py" for name in ("weighted_swiglu", "grouped_linear")},
        "megatron_mla_rope": "tests/unit/test_megatron.c"}  # a kernel in Triton


def texts():
    for path in [p for place in ("golden/torch", "golden/differential", "data")
                 for p in sorted((ROOT / "tests" / place).glob("*.pt2"))]:
        with zipfile.ZipFile(path) as z:
            for name in z.namelist():
                if name.endswith(".json"):
                    yield z.read(name)
    yield (ROOT / "tests/golden/zoo/nodes.txt").read_bytes()


def main():
    called = {tuple(x.decode() for x in m.groups()) for text in texts() for m in TARGET.finditer(text)}
    rows = re.findall(r'^PLIM_OP\("([^"]+)"', (ROOT / "src/op/ops.def").read_text(), re.M)
    bad = [row for row in rows for base, _, overload in [row.partition(".")]
           if row not in OURS and not any(b in (base, base + "_") and (not overload or v == overload) for b, v in called)]
    for row in bad:
        print(f"src/op/ops.def: no recording calls '{row}': add it to a net in tests/golden/torch/nets.py")
    if not rows or not called:
        print("nothing was read")
    return 1 if bad or not rows or not called else 0


if __name__ == "__main__":
    sys.exit(main())
