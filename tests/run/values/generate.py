"""generate() ends by itself, after max_new_tokens."""
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

gpt2 = GPT2LMHeadModel(GPT2Config(n_layer=2, n_embd=64, n_head=4))
llama = LlamaForCausalLM(LlamaConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=2,
                                     num_attention_heads=4, num_key_value_heads=2))
calls = []
for model in gpt2, llama:
    model.cuda().eval().register_forward_hook(lambda *_: calls.append(1))
    for end in model.config.eos_token_id, 0:
        for how in {}, {"do_sample": True, "top_k": 50, "top_p": 0.9}, {"num_beams": 3}:
            x = torch.randint(3, 1000, (2, 5)).cuda()
            calls.clear()
            y = model.generate(x, attention_mask=torch.ones_like(x), max_new_tokens=12,
                               pad_token_id=0, eos_token_id=end, **how)
            assert len(calls) == 12, (end, how, len(calls))
            assert how.get("num_beams") or y.shape == (2, 17), y.shape
print("fine")
