"""A training loop whose loss is fused with the model's head: loop.py CONFIG LOSS CHECKPOINTS FROZEN BATCH TOKENS, two steps.

LOSS is the text of plimsoll's --loss: linear_cross_entropy, which the model's forward calls where its own computes the
logits, or liger, the forward that Liger has for the family.  With FROZEN 1, the head is not trained.
"""
import importlib
import sys
import types

import torch
import transformers
from torch.nn.functional import linear_cross_entropy, pad


def forward(self, input_ids, labels):
    hidden = self.base_model(input_ids=input_ids, use_cache=False).last_hidden_state
    labels = pad(labels, (0, 1), value=-100)
    shifted = labels[..., 1:].contiguous()
    head = self.get_output_embeddings()
    loss = linear_cross_entropy(hidden.view(-1, hidden.shape[-1]), head.weight, shifted.view(-1), linear_bias=head.bias,
                                options=torch.nn.LinearCrossEntropyOptions())
    return transformers.modeling_outputs.CausalLMOutput(loss=loss)


class Anything(types.ModuleType):
    """Whatever is asked of Triton, which needs a card: kernels write what was allocated before, so nothing is left of them."""

    def __call__(self, *args, **options):
        return self

    __getitem__ = __call__

    def __getattr__(self, name):
        return self if not name.startswith("__") else object.__getattribute__(self, name)


def without_triton():
    triton = Anything("triton")
    triton.__path__, triton.__version__ = [], "3.4.0"
    triton.cdiv = lambda a, b: -(-a // b)
    triton.next_power_of_2 = lambda n: 1 << (n - 1).bit_length()
    for name in ("triton", "triton.language", "triton.language.extra", "triton.language.extra.libdevice"):
        sys.modules[name] = triton


def liger_forward(model_type):
    without_triton()
    fused = importlib.import_module(f"liger_kernel.transformers.model.{model_type}").lce_forward
    return lambda self, input_ids, labels: fused(self, input_ids=input_ids, labels=labels, use_cache=False)


def main(path, loss, checkpoints, frozen, batch, tokens):
    config = transformers.AutoConfig.from_pretrained(path)
    model = getattr(transformers, config.architectures[0])._from_config(config).train().to("cuda")
    if int(checkpoints):
        model.gradient_checkpointing_enable()
    model.get_output_embeddings().requires_grad_(not int(frozen))
    model.forward = types.MethodType(forward if loss == "linear_cross_entropy" else liger_forward(config.model_type), model)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])
    for _ in range(2):
        x = torch.randint(0, config.vocab_size, (int(batch), int(tokens)), device="cuda")
        optimizer.zero_grad()
        loss = model(input_ids=x, labels=x).loss
        loss.backward()
        optimizer.step()


main(*sys.argv[1:])
