#!/usr/bin/env python3
"""Records what torchvision's models look like when torch.export sees them.

    python3 tests/golden/zoo/record.py

needs torch and torchvision (no GPU, no weights: everything is on the meta
device) and writes, next to itself:

  nodes.txt    every node of every model's export in train mode, as 16 bits of
               a hash a node and 64 of the whole, and the state dict's names
               and shapes, too; small models are written out in full
  layers.txt   leaf module by leaf module: type, output shape, parameters, MACs
  torchvision.txt   parameters and GFLOPS as torchvision publishes them with its
               weights (one multiply-accumulate counted as one)

test_zoo.c writes the same lines from the built-in models and compares.
"""
import datetime
import os

import torch
import torchvision
from torch import nn
from torch.nn import functional as F

HERE = os.path.dirname(os.path.abspath(__file__))
BATCH = 2
IN_FULL = {"alexnet", "resnet18", "mobilenet_v3_small", "lenet5"}

# arguments that say nothing about sizes or memory, or depend on the machine
IGNORED = {"cudnn_enabled", "cudnn_enable", "dtype", "layout", "device", "pin_memory",
           "memory_format", "generator", "names"}


# ---- models that torchvision does not have ------------------------------------


class LeNet5(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 6, 5, padding=2), nn.Tanh(), nn.AvgPool2d(2),
            nn.Conv2d(6, 16, 5), nn.Tanh(), nn.AvgPool2d(2))
        self.classifier = nn.Sequential(
            nn.Linear(400, 120), nn.Tanh(), nn.Linear(120, 84), nn.Tanh(), nn.Linear(84, 10))

    def forward(self, x):
        return self.classifier(torch.flatten(self.features(x), 1))


class DoubleConv(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.double_conv = nn.Sequential(
            nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True),
            nn.Conv2d(o, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True))

    def forward(self, x):
        return self.double_conv(x)


class Down(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.maxpool_conv = nn.Sequential(nn.MaxPool2d(2), DoubleConv(i, o))

    def forward(self, x):
        return self.maxpool_conv(x)


class Up(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.up = nn.ConvTranspose2d(i, i // 2, kernel_size=2, stride=2)
        self.conv = DoubleConv(i, o)

    def forward(self, x1, x2):
        x1 = self.up(x1)
        dy, dx = x2.size()[2] - x1.size()[2], x2.size()[3] - x1.size()[3]
        x1 = F.pad(x1, [dx // 2, dx - dx // 2, dy // 2, dy - dy // 2])
        return self.conv(torch.cat([x2, x1], dim=1))


class OutConv(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.conv = nn.Conv2d(i, o, kernel_size=1)

    def forward(self, x):
        return self.conv(x)


class UNet(nn.Module):
    """The layers of milesial/Pytorch-UNet with bilinear=False."""

    def __init__(self):
        super().__init__()
        self.inc = DoubleConv(3, 64)
        self.down1, self.down2 = Down(64, 128), Down(128, 256)
        self.down3, self.down4 = Down(256, 512), Down(512, 1024)
        self.up1, self.up2 = Up(1024, 512), Up(512, 256)
        self.up3, self.up4 = Up(256, 128), Up(128, 64)
        self.outc = OutConv(64, 2)

    def forward(self, x):
        x1 = self.inc(x)
        x2 = self.down1(x1)
        x3 = self.down2(x2)
        x4 = self.down3(x3)
        x5 = self.down4(x4)
        x = self.up4(self.up3(self.up2(self.up1(x5, x4), x3), x2), x1)
        return self.outc(x)


def mlp(sizes, relu):
    layers = []
    for i, o in zip(sizes, sizes[1:]):
        layers += [nn.Linear(i, o)] + ([nn.ReLU()] if relu else [])
    return nn.Sequential(*(layers[:-1] if relu else layers))


# ---- what is recorded: name, sample shape, constructor --------------------------


def tv(name, **kw):
    return lambda: getattr(torchvision.models, name)(weights=None, **kw)


def image(name, size=224, **kw):
    return (name, (3, size, size), tv(name, **kw))


EFFICIENTNET = [224, 240, 288, 300, 380, 456, 528, 600]
MODELS = (
    [image(n) for n in (
        "alexnet", "vgg11", "vgg11_bn", "vgg13", "vgg13_bn", "vgg16", "vgg16_bn", "vgg19",
        "vgg19_bn", "resnet18", "resnet34", "resnet50", "resnet101", "resnet152",
        "resnext50_32x4d", "resnext101_32x8d", "resnext101_64x4d", "wide_resnet50_2",
        "wide_resnet101_2", "densenet121", "densenet161", "densenet169", "densenet201",
        "squeezenet1_0", "squeezenet1_1", "mobilenet_v2", "mobilenet_v3_small",
        "mobilenet_v3_large", "mnasnet0_5", "mnasnet0_75", "mnasnet1_0", "mnasnet1_3",
        "shufflenet_v2_x0_5", "shufflenet_v2_x1_0", "shufflenet_v2_x1_5", "shufflenet_v2_x2_0",
        "convnext_tiny", "convnext_small", "convnext_base", "convnext_large",
        "vit_b_16", "vit_b_32", "vit_l_16", "swin_t")]
    + [image("googlenet", aux_logits=False, init_weights=False),
       image("inception_v3", 299, init_weights=False)]
    + [image(f"efficientnet_b{i}", s) for i, s in enumerate(EFFICIENTNET)]
    # sizes other than the models' own: windows that need padding, odd maps
    + [image("swin_t", 256), image("swin_t", 250), ("swin_t", (3, 224, 250), tv("swin_t")),
       image("vit_b_16", 384, image_size=384), image("densenet121", 199),
       ("shufflenet_v2_x0_5", (3, 97, 131), tv("shufflenet_v2_x0_5")),
       ("unet", (3, 100, 90), UNet)]
    + [("unet", (3, 512, 512), UNet), ("lenet5", (1, 28, 28), LeNet5),
       ("mlp", (3,), lambda: mlp([3, 300, 300, 400, 300, 100], False)),
       ("mlp:1024,4096,4096,1000:relu", (1024,), lambda: mlp([1024, 4096, 4096, 1000], True))]
)

# ---- an export as lines of text -------------------------------------------------


def fnv1a(text):
    h = 0xCBF29CE484222325
    for b in text.encode():
        h = (h ^ b) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return h


def sizes(shape):
    return "x".join(str(int(d)) for d in shape) or "scalar"


class Lines:
    def __init__(self, model, ep):
        self.sig, self.at, self.lines = ep.graph_signature, {}, []
        for n in ep.graph.nodes:
            if n.op == "placeholder":
                self.at[n] = (self.sig.inputs_to_parameters.get(n.name)
                              or self.sig.inputs_to_buffers.get(n.name) or "x")
            elif n.op == "call_function" and "getitem" in str(n.target):
                self.at[n] = f"{self.at[n.args[0]]}.{n.args[1]}"
            elif n.op == "call_function":
                self.at[n] = f"%{len(self.lines)}"
                self.lines.append(self.line(n))
            elif n.op == "output":
                # in-place changes of buffers come back as outputs too: not the model's
                self.outputs = [self.at[v] for v in n.args[0]
                                if v.name in self.sig.user_outputs]
        self.state = [f"parameter {k} {sizes(v.shape)}" for k, v in model.named_parameters()]
        self.state += [f"buffer {k} {sizes(v.shape)}" for k, v in model.named_buffers()]

    def value(self, v):
        if isinstance(v, torch.fx.Node):
            return self.at[v]
        if isinstance(v, (list, tuple)):
            items = [self.value(x) for x in v]
            same = items and all(x == items[0] for x in items)
            return items[0] if same else ",".join(items)
        if isinstance(v, str):
            return v
        return f"{v:.9g}" if isinstance(v, float) else str(int(v))

    def line(self, n):
        stack = [(p, t.rsplit(".", 1)[1] if isinstance(t, str) else t.__name__)
                 for p, t in n.meta["nn_module_stack"].values()]
        given = dict(zip((a.name for a in n.target._schema.arguments), n.args), **n.kwargs)
        args = []
        for a in n.target._schema.arguments:
            v = given[a.name] if a.name in given else a.default_value
            if a.name not in IGNORED and v is not None and v != []:
                args.append(f"{a.name}={self.value(v)}")
        out = n.meta["val"]
        out = out if isinstance(out, (list, tuple)) else [out]
        return " ".join([str(n.target), stack[-1][0] or "-", "/".join(t for _, t in stack)]
                        + args + ["->"] + [sizes(t.shape) for t in out])


def export(shape, make):
    with torch.device("meta"):
        model = make().train()
        x = torch.empty(BATCH, *shape)
    return model, torch.export.export(model, (x,), strict=False)


def record_nodes(f):
    for name, shape, make in MODELS:
        r = Lines(*export(shape, make))
        whole = "\n".join(r.lines + ["out " + " ".join(r.outputs)] + r.state) + "\n"
        print(f"model {name} {sizes((BATCH,) + shape)} nodes {len(r.lines)} state "
              f"{len(r.state)} hash {fnv1a(whole):016x}", file=f)
        words = [f"{fnv1a(x) & 0xFFFF:04x}" for x in r.lines]
        for i in range(0, len(words), 20):
            print("h " + "".join(words[i:i + 20]), file=f)
        if name in IN_FULL:
            for x in r.lines:
                print("n " + x, file=f)
        print(name, len(r.lines))


# ---- leaf modules -----------------------------------------------------------------


def macs_of(m, out):
    if isinstance(m, nn.Conv2d):
        return out[0].numel() * m.weight[0].numel()
    return m.weight.numel() if isinstance(m, nn.Linear) else 0


def record_layers(f):
    for name in ("alexnet", "vgg16", "resnet50", "mobilenet_v2"):
        with torch.device("meta"):
            model = getattr(torchvision.models, name)(weights=None).train()
            x = torch.empty(BATCH, 3, 224, 224)
        print(f"model {name}", file=f)

        def hook(path):
            def run(m, _, out):
                params = sum(p.numel() for p in m.parameters())
                print(f"{path} {type(m).__name__} {sizes(out.shape[1:])} {params} "
                      f"{macs_of(m, out)}", file=f)
            return run

        for path, m in model.named_modules():
            if not list(m.children()):
                m.register_forward_hook(hook(path))
        model(x)


# ---- published figures ------------------------------------------------------------


def record_published(f):
    seen = set()
    for name, _, _ in MODELS:
        if name in seen or name not in torchvision.models.list_models():
            continue
        seen.add(name)
        w = next(w for w in torchvision.models.get_model_weights(name) if "SWAG" not in w.name)
        print(f"{name} {w.meta['num_params']} {w.meta['_ops']:.3f} {w.transforms().crop_size[0]}",
              file=f)


def main():
    head = (f"# recorded by record.py with torch {torch.__version__}, torchvision "
            f"{torchvision.__version__}, {datetime.date.today()}; train mode, batch {BATCH}")
    for name, record in (("nodes.txt", record_nodes), ("layers.txt", record_layers),
                         ("torchvision.txt", record_published)):
        with open(os.path.join(HERE, name), "w", encoding="ascii") as f:
            print(head, file=f)
            record(f)


if __name__ == "__main__":
    main()
