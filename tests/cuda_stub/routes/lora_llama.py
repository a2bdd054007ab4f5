"""LoRA of peft on a Llama in bf16; with the argument "checkpoint", with activations computed
again in the backward pass."""
import sys

import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

VOCABULARY, LENGTH, BATCH, STEPS = 2000, 256, 2, 3


def main():
    torch.manual_seed(0)
    config = LlamaConfig(vocab_size=VOCABULARY, hidden_size=256, intermediate_size=688,
                         num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
                         max_position_embeddings=LENGTH)
    model = LlamaForCausalLM(config).to(torch.bfloat16).to("cuda")
    if "checkpoint" in sys.argv:
        model.gradient_checkpointing_enable({"use_reentrant": False})
        model.enable_input_require_grads()
    model = get_peft_model(model, LoraConfig(r=8, lora_alpha=16, lora_dropout=0.05,
                                             target_modules=["q_proj", "v_proj"]))
    model.train()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)
    for step in range(STEPS):
        ids = torch.randint(VOCABULARY, (BATCH, LENGTH)).to("cuda")
        # No mask of ones: stub libraries do not know that it is one, and attention keeps it.
        model(input_ids=ids, labels=ids, use_cache=False).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print("step", step, torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated(),
              torch.cuda.max_memory_reserved())


if __name__ == "__main__":
    main()
