"""A training loop as users of timm and torchvision write it: networks_loop.py LIBRARY:NAME fp32|autocast CHECKPOINTS BATCH, two steps of AdamW."""
import sys
import types

import torch

sys.modules.setdefault("torchvision._meta_registrations", types.ModuleType("none"))  # its C++ ops are built for another PyTorch


def make(name):
    library, _, name = name.partition(":")
    if library == "timm":
        import timm
        model = timm.create_model(name)
        return model, model.default_cfg["input_size"]
    from torchvision.models import get_model, get_model_weights
    return get_model(name, weights=None), (3, *get_model_weights(name).DEFAULT.transforms().crop_size * 2)


def main(name, dtype, checkpoints, batch):
    model, size = make(name)
    model = model.to("cuda").train()
    if int(checkpoints):
        model.set_grad_checkpointing()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        x = torch.randn(int(batch), *size, device="cuda")
        y = torch.randint(1000, (int(batch),), device="cuda")
        with torch.autocast("cuda", torch.bfloat16, enabled=dtype == "autocast"):
            out = model(x)
            loss = torch.nn.functional.cross_entropy(out, y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main(*sys.argv[1:])
