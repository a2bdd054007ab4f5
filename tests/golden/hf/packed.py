#!/usr/bin/env python3
"""Records what weights become that quantization_config packs.

    python3 tests/golden/hf/packed.py

needs transformers, accelerate and bitsandbytes (no GPU: bitsandbytes packs on the CPU, modules of fp8 are made
on the meta device) and writes packed.txt next to itself: for each case a line "CASE CONFIG", then one for
each tensor of its state dict, "NAME DTYPE SIZES".  Made with transformers 5.23.0, bitsandbytes 0.50.2, torch 2.13.0.
test_hf_quant.c makes the same lists from the configurations.
"""
import json
import pathlib
import tempfile

import torch
import transformers
from transformers.integrations.finegrained_fp8 import replace_with_fp8_linear
from transformers.utils.quantization_config import FineGrainedFP8Config

HERE = pathlib.Path(__file__).resolve().parent
# what bitsandbytes keeps besides the tensors that lie on the card: text, a version
NOT_LOADED = (".quant_state.bitsandbytes__nf4", ".quant_state.bitsandbytes__fp4", ".weight_format")

LLAMA = {"model_type": "llama", "hidden_size": 192, "intermediate_size": 344, "num_attention_heads": 4, "num_key_value_heads": 2,
         "num_hidden_layers": 1, "vocab_size": 100, "max_position_embeddings": 128, "attention_bias": True,
         "dtype": "bfloat16", "architectures": ["LlamaForCausalLM"]}
DEEPSEEK = {"model_type": "deepseek_v3", "hidden_size": 160, "intermediate_size": 320, "moe_intermediate_size": 48,
            "num_attention_heads": 2, "num_key_value_heads": 2, "num_hidden_layers": 2, "vocab_size": 100, "n_routed_experts": 4,
            "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1, "first_k_dense_replace": 1, "q_lora_rank": 64,
            "kv_lora_rank": 32, "qk_rope_head_dim": 16, "qk_nope_head_dim": 32, "v_head_dim": 32,
            "max_position_embeddings": 128, "dtype": "bfloat16", "architectures": ["DeepseekV3ForCausalLM"]}
BNB = {"quant_method": "bitsandbytes"}
CASES = {
    "nf4": (LLAMA, {**BNB, "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}),
    "fp4_twice": (LLAMA, {**BNB, "load_in_4bit": True, "bnb_4bit_use_double_quant": True}),
    "nf4_in_bf16": (LLAMA, {**BNB, "load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_quant_storage": "bfloat16",
                            "llm_int8_skip_modules": ["lm_head", "k_proj", "model.layers.0.mlp"]}),
    "int8": (LLAMA, {**BNB, "load_in_8bit": True}),
    "fp8": (LLAMA, {"quant_method": "fp8", "weight_block_size": [128, 128]}),
    "fp8_whole": (LLAMA, {"quant_method": "fp8", "weight_block_size": None}),
    "fp8_experts": (DEEPSEEK, {"quant_method": "fp8", "weight_block_size": [128, 128], "modules_to_not_convert": ["lm_head"]}),
}


def made(config, packing):
    """The model with its weights packed, on the CPU or the meta device."""
    parsed = transformers.AutoConfig.for_model(**config)
    if packing["quant_method"] == "bitsandbytes":
        with tempfile.TemporaryDirectory() as folder:
            transformers.AutoModelForCausalLM.from_config(parsed, dtype=torch.bfloat16).save_pretrained(folder)
            return transformers.AutoModelForCausalLM.from_pretrained(
                folder, dtype=torch.bfloat16, device_map="cpu",
                quantization_config=transformers.BitsAndBytesConfig(**packing))
    torch.set_default_dtype(torch.bfloat16)  # as from_pretrained has it while modules are made
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(parsed, dtype=torch.bfloat16)
        given = {k: v for k, v in packing.items() if k != "quant_method"}
        return replace_with_fp8_linear(model, modules_to_not_convert=given.pop("modules_to_not_convert", ["lm_head"]),
                                       quantization_config=FineGrainedFP8Config(**given), pre_quantized=True)


def main():
    with open(HERE / "packed.txt", "w", encoding="utf-8") as out:
        for name, (config, packing) in CASES.items():
            print(f"{name} {json.dumps({**config, 'quantization_config': packing})}", file=out)
            model = made(config, packing)
            wide = tuple(model._keep_in_fp32_modules_strict or ("(none)",))  # from_pretrained leaves these alone
            for key, t in sorted(model.state_dict().items()):
                dtype = torch.float32 if key.endswith(wide) else t.dtype
                if not key.endswith(NOT_LOADED):
                    print(key, str(dtype).removeprefix("torch."), "x".join(map(str, t.shape)) or "scalar", file=out)


if __name__ == "__main__":
    main()
