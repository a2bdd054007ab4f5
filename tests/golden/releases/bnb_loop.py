"""Adapters of rank 16 on a model whose layers bitsandbytes packs, of any release since 0.41: bnb_loop.py CONFIG CHECKPOINTS BATCH TOKENS [double].

A CPU build has no library of CUDA kernels; those that only write to tensors that Python made do nothing here.
"""
import sys
import types


class NoKernels:
    def __getattr__(self, name):
        return lambda *args, **kwargs: 0


def without_kernels():
    extension = types.ModuleType("bitsandbytes.cextension")
    extension.lib, extension.COMPILED_WITH_CUDA = NoKernels(), True
    sys.modules["bitsandbytes.cextension"] = extension


without_kernels()

import bitsandbytes  # noqa: E402
import peft  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402

from releases_loop import build  # noqa: E402


def pack(model, twice):
    """What from_pretrained makes of the model."""
    for name, module in list(model.named_modules()):
        if type(module) is not torch.nn.Linear or name.endswith("lm_head"):
            continue
        parent = model.get_submodule(name.rpartition(".")[0])
        packed = bitsandbytes.nn.Linear4bit(module.in_features, module.out_features, module.bias is not None, torch.bfloat16,
                                            compress_statistics=twice, quant_type="nf4")
        packed.weight = bitsandbytes.nn.Params4bit(module.weight.data, requires_grad=False, compress_statistics=twice, quant_type="nf4")
        packed.bias = module.bias
        setattr(parent, name.rpartition(".")[2], packed)
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    model.is_loaded_in_4bit = True
    return model.to("cuda")


def main(path, checkpoints, batch, tokens, twice=""):
    to = torch.nn.Module.to
    torch.nn.Module.to = lambda self, *args, **kwargs: self  # it is packed before it is moved
    config, model = build(path, "default")
    torch.nn.Module.to = to
    model = pack(model, bool(twice)).train()
    if int(checkpoints):
        model.gradient_checkpointing_enable({"use_reentrant": False})
        model.enable_input_require_grads()
    model = peft.get_peft_model(model, peft.LoraConfig(r=16, target_modules=["q_proj", "v_proj"]))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])
    for _ in range(2):
        ids = torch.randint(8, config.vocab_size, (int(batch), int(tokens)), device="cuda")
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main(*sys.argv[1:])
