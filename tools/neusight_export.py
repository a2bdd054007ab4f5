#!/usr/bin/env python3
"""neusight_export.py -- exports the transformers that NeuSight measured, for tools/speed.py neusight.

    neusight_export.py steptime_neusight_models.csv FOLDER

Needs PyTorch and transformers 4.38.1, the release that NeuSight's setup.py asks for. The table has the columns model,
mode (inf or train), seq, batch. Each job is built on the meta device from its sizes as neusight/Tracing/trace.py of
sitar-lab/NeuSight@6945927 builds it, with eager attention, and exported to FOLDER/MODEL-MODE-SEQ-BATCH.pt2 unless
that exists. Models without sizes here are left out: the experts of the Switch Transformers read values, which
torch.export cannot trace.
"""

import argparse
import csv
import os
import pathlib
import tempfile

import torch
import transformers
from differential.differential import without_weights

VERSION = "4.38.1"


def gpt2(width, heads, layers, length):
    return transformers.GPT2Config(n_embd=width, n_head=heads, n_layer=layers, n_positions=length, vocab_size=50257)


def opt(width, heads, layers, inner):
    return transformers.OPTConfig(hidden_size=width, num_attention_heads=heads, num_hidden_layers=layers, ffn_dim=inner,
                                  word_embed_proj_dim=width, vocab_size=50272)


def bert(width, heads, layers, inner):
    return transformers.BertConfig(hidden_size=width, num_attention_heads=heads, num_hidden_layers=layers,
                                   intermediate_size=inner)


CONFIGS = {  # gpt3_xl is wider than the published one, as their file has it
    "bert_large": lambda: bert(1024, 16, 24, 4096),
    "gpt2_large": lambda: gpt2(1280, 20, 36, 1024),
    "gpt3_xl": lambda: gpt2(3072, 24, 24, 2048),
    "gpt3_27": lambda: gpt2(2560, 32, 32, 2048),
    "opt_13": lambda: opt(2048, 32, 24, 8192),
}


class Logits(torch.nn.Module):
    """Alone, of all outputs, they go into the loss."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids):
        out = self.model(ids)
        return out["prediction_logits"] if "prediction_logits" in out else out["logits"]


def make(name, mode):
    classes = {"inf": transformers.AutoModelForSequenceClassification, "train": transformers.AutoModelForPreTraining}
    of = classes[mode] if name.startswith("bert") else transformers.AutoModelForCausalLM
    with torch.device("meta"):
        model = Logits(of.from_config(CONFIGS[name](), attn_implementation="eager")).train(mode == "train")
    for part in model.modules():
        if hasattr(part, "layerdrop"):  # OPT draws a number to drop each layer, with a probability of 0
            part.training = False
    return model


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("table")
    parser.add_argument("folder", type=pathlib.Path)
    options = parser.parse_args()
    if transformers.__version__ != VERSION:
        parser.error(f"transformers is {transformers.__version__}; the jobs ran with {VERSION}")
    options.folder.mkdir(parents=True, exist_ok=True)
    with open(options.table, newline="", encoding="utf-8") as f:
        jobs = sorted({(row["model"], row["mode"], int(row["seq"]), int(row["batch"])) for row in csv.DictReader(f)})
    for name, mode, seq, batch in jobs:
        target = options.folder / f"{name}-{mode}-{seq}-{batch}.pt2"
        if name not in CONFIGS:
            print(f"{target.stem}: no sizes")
        elif not target.exists():
            ids = torch.ones(batch, seq, dtype=torch.long, device="meta")
            graph = torch.export.export(make(name, mode), (ids,), strict=False)
            with tempfile.TemporaryDirectory() as folder:
                whole = os.path.join(folder, "model.pt2")
                torch.export.save(graph, whole)
                without_weights(whole, target)
            print(target.stem, flush=True)


main()
