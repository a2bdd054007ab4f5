"""A step of peft's method comparison, for `plimsoll run`: peft's own code on Llama-3.2-3B in bf16.

    plimsoll run --gpu l40s -- python tools/peft_run.py EXPERIMENT TOKENS

EXPERIMENT is a folder of method_comparison/MetaMathQA/experiments of peft with an adapter_config.json, and a
training_params.json where it differs from the default one.  The loop is that of run.py there, on batches of 4 x TOKENS.
"""
import contextlib
import json
import pathlib
import sys

import peft
import torch
import transformers
from peft.optimizers import create_lorafa_optimizer

MODEL = {"vocab_size": 128256, "hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 28, "num_attention_heads": 24,
         "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 131072, "tie_word_embeddings": True, "rms_norm_eps": 1e-5,
         "rope_parameters": {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 32.0, "high_freq_factor": 4.0,
                             "low_freq_factor": 1.0, "original_max_position_embeddings": 8192}}


def main(folder, tokens):
    folder, config = pathlib.Path(folder), transformers.LlamaConfig(**MODEL, dtype="bfloat16")
    training = folder / "training_params.json"
    params = json.loads(training.read_text()) if training.exists() else {}
    model = transformers.LlamaForCausalLM._from_config(config).to("cuda")
    settings = peft.PeftConfig.from_pretrained(str(folder))
    if settings.task_type is None and settings.is_prompt_learning:
        settings.task_type = "CAUSAL_LM"
    model = peft.get_peft_model(model, settings, autocast_adapter_dtype=params.get("autocast_adapter_dtype", True))
    kind, options = params.get("optimizer_type", "AdamW"), {"lr": 1e-4, **params.get("optimizer_kwargs", {})}
    if kind == "lora-fa":
        optimizer = create_lorafa_optimizer(model=model, **options)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=options["lr"])
    with getattr(model, "disable_adapter", contextlib.nullcontext)():  # run.py evaluates the base model: then all of the adapter is trainable
        pass
    model.train()
    for step in range(1, 3):
        x = torch.randint(0, config.vocab_size, (4, int(tokens)), device="cuda")
        optimizer.zero_grad()
        loss = model(input_ids=x, attention_mask=torch.ones_like(x), labels=x.clone()).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if hasattr(model.base_model, "update_and_allocate"):
            model.base_model.update_and_allocate(step)
    print("max_reserved", torch.cuda.max_memory_reserved(), file=sys.stderr)


if __name__ == "__main__":
    main(*sys.argv[1:])
