#!/usr/bin/env python3
"""batch_series.py -- steps that others measured at many batches, for tools/speed.py fit and batches.

    batch_series.py DEEP_LEARNING_EXAMPLES TRANSFORMERS_BENCHMARKS FOLDER > batch_series.csv

Needs clones of two public repositories, git, PyTorch and transformers 4.38.1.

NVIDIA/DeepLearningExamples has tables of inference in eager PyTorch 1.9 at batch 1 to 256, of images that are on the
card, in PyTorch/Classification/ConvNets/*/README.md: fp32 (with TF32 on the A100) in NCHW, and AMP with channels_last.
The models whose squeeze-and-excitation layers are wider than those of the paper are left out: no graph of them is at
hand. mli/transformers-benchmarks has single layers of transformers in fp16, with attention written out, forward alone
and with the backward pass, in the outputs of micro_bench.ipynb at two commits: a V100 and an RTX 3090 Ti, PyTorch 1.13.
They are written to FOLDER; speed.py needs resnext101_32x4d and seresnext101_32x4d there too, by timm_export.py.

Prints a row for each batch: model, its graph (a file of FOLDER, or a built-in model), host (the machine), card, mode
(infer, or train: forward and backward), precision, size (of a sample), batch, ms.
"""

import argparse
import csv
import json
import pathlib
import re
import subprocess
import sys

import torch
import transformers

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))
from plimsoll._export import export_module  # noqa: E402

NVIDIA = "729963dd47e7c8bd462ad10bfac7a7b0b604e6dd"
CONVNETS = {"resnet50v1.5": ("resnet50", "resnet50"), "resnext101-32x4d": ("resnext101-32x4d", "resnext101_32x4d.pt2"),
            "se-resnext101-32x4d": ("se-resnext101-32x4d", "seresnext101_32x4d.pt2"),
            "efficientnet": ("", "")}  # its tables have a column for the model
EFFICIENTNETS = {"efficientnet-b0": ("efficientnet_b0", "3x224x224"), "efficientnet-b4": ("efficientnet_b4", "3x380x380")}
MLI = {"3370b2b3a0ad915b827dd962ff68b2333f4da6a6": ("PC", "rtx3090ti"),
       "53a232bbeb9adffda94a7718485d1f61f4f91410": ("cloud", "v100")}
WIDTH = 1024


def shown(repository, commit, path):
    return subprocess.run(["git", "-C", repository, "show", f"{commit}:{path}"], capture_output=True, text=True,
                          check=True).stdout


def convnets(repository):
    for folder, (model, graph) in CONVNETS.items():
        page = shown(repository, NVIDIA, f"PyTorch/Classification/ConvNets/{folder}/README.md")
        card = precision = size = ""
        for line in page[page.rindex("#### Inference performance results"):].splitlines():
            if line.startswith("##"):
                card = next((c for c in ("A100", "V100", "T4") if c in line), card)
                precision = next((p for p in ("TF32", "FP32", "Mixed") if p in line), precision)
            cells = [c.strip() for c in line.split("|")[1:-1]]
            if folder == "efficientnet":
                model = cells.pop(0) if cells else ""
                graph, size = EFFICIENTNETS.get(model, ("", ""))
            if graph and len(cells) == 5 and cells[0].isdigit():
                yield (model, graph, f"NVIDIA {card}", card.lower(), "infer", "amp" if precision == "Mixed" else "fp32",
                       size or "3x224x224", cells[0], cells[2].split()[0])


def layer_of(cell):
    """The layer that a cell of the notebook measures."""
    for mark, name in (("decoder = T5", "t5_decoder"), ("encoder = T5", "t5_encoder"), ("GPT2", "gpt2_block")):
        if mark in cell:
            return name
    return "bert_layer"


def layers(repository):
    for commit, (host, card) in MLI.items():
        for cell in json.loads(shown(repository, commit, "micro_bench.ipynb"))["cells"]:
            name, batches = layer_of("".join(cell["source"])), []
            for out in cell.get("outputs", []):
                for line in "".join(out.get("data", {}).get("text/plain", [])).splitlines():
                    batches = [int(b) for b in re.findall(r"batch=(\d+)", line)] or batches
                    row = re.match(r"fwd(\+bwd)? seq_len=(\d+) +([\d. ]+)", line)
                    for batch, rate in zip(batches, row[3].split() if row else ()):
                        length = int(row[2])
                        attention = 4 * batch * WIDTH * length**2 + 8 * batch * length * WIDTH**2
                        flops = 16 * batch * length * WIDTH**2 + attention * (2 if name == "t5_decoder" else 1)
                        ms = (3 if row[1] else 1) * flops / float(rate) / 1e9  # as the notebook counts them
                        yield (name, f"{name}_{length}.pt2", host, card, "train" if row[1] else "infer", "fp16",
                               f"{length}x{WIDTH}", batch, f"{ms:.4f}")


class Layer(torch.nn.Module):
    """The first of a layer's results; a decoder attends to its input, as in the notebook."""

    def __init__(self, layer, cross=False):
        super().__init__()
        self.layer, self.cross = layer, cross

    def forward(self, x):
        return self.layer(x, encoder_hidden_states=x)[0] if self.cross else self.layer(x)[0]


def make(name):
    of = transformers.models
    if name == "bert_layer":
        config = transformers.BertConfig(hidden_size=WIDTH, num_attention_heads=16, intermediate_size=4 * WIDTH)
        return Layer(of.bert.modeling_bert.BertLayer(config))
    if name == "gpt2_block":
        config = transformers.GPT2Config(n_embd=WIDTH, n_head=16)
        return Layer(of.gpt2.modeling_gpt2.GPT2Block(config, layer_idx=0))
    config = transformers.T5Config(d_model=WIDTH, d_ff=4 * WIDTH, num_heads=16, use_cache=False,
                                   is_encoder_decoder=False, is_decoder=name == "t5_decoder")
    return Layer(of.t5.modeling_t5.T5Block(config), cross=name == "t5_decoder")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("nvidia")
    parser.add_argument("mli")
    parser.add_argument("folder", type=pathlib.Path)
    options = parser.parse_args()
    rows = [*convnets(options.nvidia), *layers(options.mli)]
    options.folder.mkdir(parents=True, exist_ok=True)
    for name, graph, size in sorted({(r[0], r[1], r[6]) for r in rows if r[5] == "fp16"}):
        with torch.device("meta"):
            layer = make(name).half().train()
        x = torch.empty(8, *(int(n) for n in size.split("x")), device="meta", dtype=torch.float16)
        (options.folder / graph).write_bytes(export_module(layer, (x,)).data)
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow("model graph host card mode precision size batch ms".split())
    out.writerows(rows)


main()
