"""A training loop with peft, as its users write it: loop.py CONFIG LORA CHECKPOINTS TOKENS, two steps of 4 x TOKENS.

LORA is the text of plimsoll's --lora.
"""
import sys

import torch
import transformers
from peft import LoraConfig, get_peft_model

KEYS = {"r": "r", "alpha": "lora_alpha", "dropout": "lora_dropout", "rslora": "use_rslora", "dora": "use_dora",
        "bias": "bias"}


def lora_config(text):
    given = dict(item.split("=") if "=" in item else (item, True) for item in text.split(","))
    targets, saved = given.pop("targets", None), given.pop("save", None)
    options = {KEYS[k]: v if k == "bias" or v is True else float(v) if k == "dropout" else int(v) for k, v in given.items()}
    if targets:
        options["target_modules"] = targets if targets == "all-linear" else targets.split("+")
    if saved:
        options["modules_to_save"] = saved.split("+")
    return LoraConfig(**{"lora_alpha": options.get("r", 8), **options})


def main(path, lora, checkpoints, tokens):
    config = transformers.AutoConfig.from_pretrained(path)
    model = getattr(transformers, config.architectures[0])._from_config(config).to("cuda").train()
    if int(checkpoints):
        model.gradient_checkpointing_enable()
    model = get_peft_model(model, lora_config(lora))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])
    for _ in range(2):
        x = torch.randint(0, config.vocab_size, (4, int(tokens)), device="cuda")
        optimizer.zero_grad()
        loss = model(input_ids=x, labels=x).loss
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main(*sys.argv[1:])
