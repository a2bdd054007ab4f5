"""transformers' own generate() of the model in a folder: batch, tokens of the prompt, new tokens, cache.

Passes over new tokens are not compiled: a CPU build has no compiler for a card.
"""
import sys

import torch
import transformers

folder, cache = sys.argv[1], sys.argv[5]
batch, prompt, new = map(int, sys.argv[2:5])
config = transformers.AutoConfig.from_pretrained(folder)
model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval().cuda()
model.generation_config.eos_token_id = None  # texts do not end early
model.generation_config.pad_token_id = 0
model.generation_config.bos_token_id = 1
x = torch.zeros(batch, prompt, dtype=torch.int64, device="cuda")
model.generate(input_ids=x, attention_mask=torch.ones_like(x), max_new_tokens=new, do_sample=False,
               cache_implementation=cache, disable_compile=True)
