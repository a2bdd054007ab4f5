#!/usr/bin/env python3
"""onnx_models.py -- writes onnx/NAME.{pt2,script.onnx,dynamo.onnx}: five small models,
each by torch.export and by both ONNX exporters, in train mode, without weights.

Made with torch 2.13, onnx 1.23 and onnxscript 0.7 on the CPU.  Files of weights, names
of the machine (stack traces) and everything else that no reader needs are left out.
"""

import os
import sys

import onnx
import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, c_in, c_out, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(c_in, c_out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(c_out)
        self.relu = nn.ReLU()
        self.conv2 = nn.Conv2d(c_out, c_out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(c_out)
        self.down = nn.Sequential(nn.Conv2d(c_in, c_out, 1, stride, bias=False),
                                  nn.BatchNorm2d(c_out))

    def forward(self, x):
        y = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(y)) + self.down(x))


class Cnn(nn.Module):
    """A residual net of four blocks."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 32, 7, 2, 3, bias=False), nn.BatchNorm2d(32),
                                  nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        self.layers = nn.Sequential(Block(32, 32, 1), Block(32, 64, 2), Block(64, 128, 2))
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(128, 100)

    def forward(self, x):
        return self.fc(torch.flatten(self.pool(self.layers(self.stem(x))), 1))


class Attention(nn.Module):
    def __init__(self, width, heads, fused, causal=False):
        super().__init__()
        self.heads, self.fused, self.causal = heads, fused, causal
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)

    def split(self, x):
        return x.view(x.shape[0], x.shape[1], self.heads, -1).transpose(1, 2)

    def forward(self, x, mask=None):
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        else:
            w = q @ k.transpose(-1, -2) * 0.125
            if mask is not None:
                w = w + mask
            y = torch.softmax(w, dim=-1) @ v
        return self.out(y.transpose(1, 2).reshape(x.shape[0], x.shape[1], -1))


class Layer(nn.Module):
    def __init__(self, width, heads, fused, pre, p, causal=False):
        super().__init__()
        self.pre = pre
        self.attention = Attention(width, heads, fused, causal)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.act, self.drop = nn.GELU(), nn.Dropout(p)

    def mlp(self, x):
        return self.drop(self.down(self.act(self.up(x))))

    def forward(self, x, mask=None):
        if self.pre:
            x = x + self.drop(self.attention(self.norm1(x), mask))
            return x + self.mlp(self.norm2(x))
        x = self.norm1(x + self.drop(self.attention(x, mask)))
        return self.norm2(x + self.mlp(x))


class Vit(nn.Module):
    """Patches, a class token, two layers."""

    def __init__(self):
        super().__init__()
        self.patch = nn.Conv2d(3, 192, 8, 8)
        self.token = nn.Parameter(torch.zeros(1, 1, 192))
        self.position = nn.Parameter(torch.zeros(1, 65, 192))
        self.layers = nn.ModuleList(Layer(192, 3, True, True, 0.0) for _ in range(2))
        self.norm = nn.LayerNorm(192)
        self.head = nn.Linear(192, 100)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1) + self.position
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x)[:, 0])


class Bert(nn.Module):
    """Embeddings, a mask, two layers with the norm behind."""

    def __init__(self):
        super().__init__()
        self.word, self.kind = nn.Embedding(2000, 192), nn.Embedding(2, 192)
        self.position = nn.Embedding(128, 192)
        self.norm, self.drop = nn.LayerNorm(192), nn.Dropout(0.1)
        self.layers = nn.ModuleList(Layer(192, 3, False, False, 0.1) for _ in range(2))
        self.pooler, self.head = nn.Linear(192, 192), nn.Linear(192, 2)

    def forward(self, ids, kinds, mask):
        mask = (1.0 - mask[:, None, None, :].to(torch.float32)) * -10000.0
        place = torch.arange(ids.shape[1], device=ids.device)
        x = self.word(ids) + self.kind(kinds) + self.position(place)
        x = self.drop(self.norm(x))
        for layer in self.layers:
            x = layer(x, mask)
        return self.head(torch.tanh(self.pooler(x[:, 0])))


class Gpt2(nn.Module):
    """Embeddings, two layers with a causal mask, the head tied to the words."""

    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(2000, 192), nn.Embedding(128, 192)
        self.drop = nn.Dropout(0.1)
        self.layers = nn.ModuleList(Layer(192, 3, False, True, 0.1) for _ in range(2))
        self.norm = nn.LayerNorm(192)
        self.head = nn.Linear(192, 2000, bias=False)
        self.head.weight = self.wte.weight

    def forward(self, ids):
        n = ids.shape[1]
        place = torch.arange(n, device=ids.device)
        mask = torch.full((n, n), -10000.0, device=ids.device).triu(1)
        x = self.drop(self.wte(ids) + self.wpe(place))
        for layer in self.layers:
            x = layer(x, mask)
        return self.head(self.norm(x))


class Double(nn.Sequential):
    def __init__(self, c_in, c_out):
        super().__init__(nn.Conv2d(c_in, c_out, 3, 1, 1), nn.GroupNorm(8, c_out), nn.SiLU(),
                         nn.Conv2d(c_out, c_out, 3, 1, 1), nn.GroupNorm(8, c_out), nn.SiLU())


class Unet(nn.Module):
    """Down, across and up, with skips."""

    def __init__(self):
        super().__init__()
        self.down = nn.ModuleList([Double(3, 16), Double(16, 32), Double(32, 64)])
        self.pool = nn.MaxPool2d(2)
        self.turn = nn.ModuleList([nn.ConvTranspose2d(64, 32, 2, 2), nn.Upsample(scale_factor=2)])
        self.up = nn.ModuleList([Double(64, 32), Double(48, 16)])
        self.out = nn.Conv2d(16, 4, 1)

    def forward(self, x):
        a = self.down[0](x)
        b = self.down[1](self.pool(a))
        c = self.down[2](self.pool(b))
        y = self.up[0](torch.cat([b, self.turn[0](c)], dim=1))
        return self.out(self.up[1](torch.cat([a, self.turn[1](y)], dim=1)))


ids = lambda: torch.zeros(2, 64, dtype=torch.int64)
MODELS = {
    "cnn": (Cnn, lambda: (torch.zeros(2, 3, 64, 64),), ["x"]),
    "vit": (Vit, lambda: (torch.zeros(2, 3, 64, 64),), ["x"]),
    "bert": (Bert, lambda: (ids(), ids(), ids()), ["ids", "kinds", "mask"]),
    "gpt2": (Gpt2, lambda: (ids(),), ["ids"]),
    "unet": (Unet, lambda: (torch.zeros(2, 3, 64, 64),), ["x"]),
}


def strip(model):
    """Sizes stay, weights and stack traces go."""
    for t in model.graph.initializer:
        n = 1
        for d in t.dims:
            n *= d
        if n > 16 and t.data_type in (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16):
            t.ClearField("raw_data")
            t.ClearField("float_data")
    keep = ("pkg.torch.onnx.name_scopes", "pkg.torch.onnx.class_hierarchy")
    for node in model.graph.node:
        for p in [p for p in node.metadata_props if p.key not in keep]:
            node.metadata_props.remove(p)
        node.ClearField("doc_string")
    for t in list(model.graph.value_info) + list(model.graph.input) + list(model.graph.output):
        t.ClearField("doc_string")
        del t.metadata_props[:]
    for t in model.graph.initializer:
        for p in [p for p in t.metadata_props if not p.key.endswith("InputSpec.kind")]:
            t.metadata_props.remove(p)
    del model.metadata_props[:]
    del model.graph.metadata_props[:]
    return model


def main(out, names):
    os.makedirs(out, exist_ok=True)
    for name, (cls, args, inputs) in MODELS.items():
        if names and name not in names:
            continue
        path = os.path.join(out, name)
        torch.manual_seed(0)
        model, x = cls().train(), args()
        for p in model.parameters():  # equal ones would be merged
            nn.init.normal_(p)
        batch = torch.export.Dim("batch", min=1, max=65536)
        shapes = tuple({0: batch} for _ in x)
        with torch.device("meta"):
            meta, mx = cls().train(), args()
        program = torch.export.export(meta, mx, dynamic_shapes=shapes)
        for m in program.graph_module.modules():
            if isinstance(m, torch.fx.GraphModule):
                for node in m.graph.nodes:
                    node.meta.pop("stack_trace", None)
        torch.export.save(program, path + ".pt2")
        axes = {i: {0: "batch"} for i in inputs}
        torch.onnx.export(model, x, path + ".script.onnx", dynamo=False, opset_version=20,
                          input_names=inputs, output_names=["y"], dynamic_axes=axes,
                          training=torch.onnx.TrainingMode.TRAINING,
                          do_constant_folding=False)
        torch.onnx.export(model, x, path + ".dynamo.onnx", dynamo=True, opset_version=20,
                          input_names=inputs, output_names=["y"], external_data=False,
                          dynamic_shapes=shapes)
        if name == "cnn":  # batch norms as they are: by default they go into convolutions
            torch.onnx.export(model, x, path + ".plain.onnx", dynamo=True, opset_version=20,
                              input_names=inputs, output_names=["y"], external_data=False,
                              dynamic_shapes=shapes, optimize=False)
        for kind in (".script.onnx", ".dynamo.onnx", ".plain.onnx"):
            if not os.path.exists(path + kind):
                continue
            m = strip(onnx.load(path + kind))
            onnx.save(m, path + kind)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "onnx", sys.argv[2:])
