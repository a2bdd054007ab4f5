"""A training loop as users of peft and transformers write it, two steps of 4 x TOKENS:

    loop.py CONFIG lora|peft|freeze TEXT CHECKPOINTS TOKENS     TEXT as that option of plimsoll has it
    loop.py CONFIG optimizer muon_adamw CHECKPOINTS TOKENS   of the whole model
    loop.py CONFIG quant TEXT CHECKPOINTS TOKENS           adapters of rank 16 on a model that is quantized so
    loop.py CONFIG infer|token TEXT 0 TOKENS               two passes of a model that is quantized so, of a batch or of one token
"""
import re
import sys

import peft
import torch
import transformers
from peft import get_peft_model, prepare_model_for_kbit_training

PEFT = {  # by method: peft's class, and its names of items that differ
    "lora": ("LoraConfig", {"alpha": "lora_alpha", "dropout": "lora_dropout", "rslora": "use_rslora", "dora": "use_dora"}),
    "ia3": ("IA3Config", {"feedforward": "feedforward_modules"}),
    "loha": ("LoHaConfig", {}),
    "lokr": ("LoKrConfig", {}),
    "vera": ("VeraConfig", {"dropout": "vera_dropout"}),
    "miss": ("MissConfig", {"dropout": "miss_dropout", "init": "init_weights"}),
    "hira": ("HiraConfig", {"dropout": "hira_dropout"}),
    "road": ("RoadConfig", {}),
    "prompt_tuning": ("PromptTuningConfig", {"tokens": "num_virtual_tokens"}),
    "p_tuning": ("PromptEncoderConfig", {"tokens": "num_virtual_tokens", "hidden": "encoder_hidden_size"}),
}
LISTS = ("target_modules", "feedforward_modules", "modules_to_save")


def peft_config(text):
    """Of a text of --peft: "loha,r=8,targets=q_proj+v_proj"."""
    method, *items = text.split(",")
    name, keys = PEFT[method]
    keys = {"targets": "target_modules", "save": "modules_to_save", **keys}
    options = {} if "target_modules" in getattr(peft, name).__dataclass_fields__ else {"task_type": "CAUSAL_LM", "num_virtual_tokens": 20}
    for item in items:
        key, _, value = item.partition("=")
        key = keys.get(key, key)
        if key in LISTS and value != "all-linear":
            value = value.split("+")
        elif re.fullmatch(r"-?\d+", value):
            value = int(value)
        elif re.fullmatch(r"[\d.]+", value):
            value = float(value)
        options[key] = True if value == "" else value
    return getattr(peft, name)(**options)


def is_like(name, pattern):
    """'*' is anything but a dot, '**' anything; a module stands for all below it."""
    parts = re.split(r"(\*\*|\*)", pattern)
    like = "".join({"**": ".*", "*": r"[^.]*"}.get(part, re.escape(part)) for part in parts)
    return re.fullmatch(rf"{like}(\..*)?", name)


def freeze(model, text):
    for item in text.split(","):
        for name, parameter in model.named_parameters():
            if is_like(name, item.lstrip("!")):
                parameter.requires_grad_(item.startswith("!"))


def quantized(model, text):
    import bnb  # needs bitsandbytes, which the other options do without
    return bnb.quantized(model, text)


def both_optimizers(model):
    """Muon for the matrices of layers, AdamW for the rest, as PyTorch's documentation of Muon has it."""
    ends = {id(m.weight) for m in model.modules() if isinstance(m, torch.nn.Embedding)} | {id(model.get_output_embeddings().weight)}
    matrices = [p for p in model.parameters() if p.ndim == 2 and id(p) not in ends]
    inside = set(map(id, matrices))
    return [torch.optim.Muon(matrices), torch.optim.AdamW([p for p in model.parameters() if id(p) not in inside])]


def infer(model, size):
    with torch.no_grad():
        for _ in range(2):
            x = torch.randint(0, 100, size, device="cuda")
            output = model(input_ids=x, use_cache=False)  # noqa: F841  it lives on


def main(path, option, text, checkpoints, tokens):
    config = transformers.AutoConfig.from_pretrained(path)
    model = getattr(transformers, config.architectures[0])._from_config(config)
    model = model.to("cuda") if option in ("lora", "peft", "freeze", "optimizer") else quantized(model, text)
    if option in ("infer", "token"):
        return infer(model.eval(), (4, int(tokens)) if option == "infer" else (1, 1))
    model.train()
    if option == "quant" and "prepare" in text.split(","):
        model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
    if int(checkpoints):
        model.gradient_checkpointing_enable()
    if option == "freeze":
        freeze(model, text)
    elif option != "optimizer":
        model = get_peft_model(model, peft_config({"peft": text, "lora": f"lora,{text}", "quant": "lora,r=16"}[option]))
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizers = both_optimizers(model) if option == "optimizer" else [torch.optim.AdamW(trained)]
    for _ in range(2):
        x = torch.randint(0, config.vocab_size, (4, int(tokens)), device="cuda")
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss = model(input_ids=x, labels=x).loss
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()


if __name__ == "__main__":
    main(*sys.argv[1:])
