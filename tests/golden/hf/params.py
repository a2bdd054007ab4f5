#!/usr/bin/env python3
"""Records every parameter of transformers' models in their default size.

    python3 tests/golden/hf/params.py

needs transformers (models are made on the meta device, nothing is allocated) and writes, next to itself,
full/TYPE.json, the configuration with all its defaults, and params.txt, a line for each: parameters, tensors, and
a hash of "NAME SIZES" of all of them in the order of named_parameters.  test_hf.c makes the same line from the
configuration.
"""
import pathlib

import torch
import transformers

HERE = pathlib.Path(__file__).resolve().parent
CLASSES = {
    "bert": "BertForMaskedLM", "deepseek_v2": "DeepseekV2ForCausalLM", "falcon": "FalconForCausalLM",
    "gemma2": "Gemma2ForCausalLM", "gpt2": "GPT2LMHeadModel", "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM", "mixtral": "MixtralForCausalLM", "opt": "OPTForCausalLM",
    "phi3": "Phi3ForCausalLM", "qwen2": "Qwen2ForCausalLM", "t5": "T5ForConditionalGeneration",
    "vit": "ViTForImageClassification", "whisper": "WhisperForConditionalGeneration",
    "qwen3": "Qwen3ForCausalLM", "gemma": "GemmaForCausalLM", "gemma3_text": "Gemma3ForCausalLM",
    "phi": "PhiForCausalLM", "gpt_neox": "GPTNeoXForCausalLM", "gptj": "GPTJForCausalLM",
    "bloom": "BloomForCausalLM", "qwen2_moe": "Qwen2MoeForCausalLM", "qwen3_moe": "Qwen3MoeForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM", "gpt_oss": "GptOssForCausalLM", "mamba": "MambaForCausalLM",
    "mamba2": "Mamba2ForCausalLM", "roberta": "RobertaForMaskedLM", "distilbert": "DistilBertForMaskedLM",
    "electra": "ElectraForMaskedLM", "bart": "BartForConditionalGeneration", "clip": "CLIPModel",
    "swin": "SwinForImageClassification",
}
VARIANTS = {  # file: (type, settings)
    "deepseek_v2_vocab": ("deepseek_v2", dict(vocab_size=32000)),  # the default up to transformers 5.12
}


def fnv1a(text):
    h = 0xcbf29ce484222325
    for byte in text.encode():
        h = (h ^ byte) * 0x100000001b3 % 2**64
    return h


def main():
    (HERE / "full").mkdir(exist_ok=True)
    lines = [f"# by: tests/golden/hf/params.py, transformers {transformers.__version__}",
             "# file class parameters tensors hash"]
    for file, (kind, settings) in sorted({**{k: (k, {}) for k in CLASSES}, **VARIANTS}.items()):
        name = CLASSES[kind]
        config = transformers.AutoConfig.for_model(kind, **settings)
        config.architectures = [name]
        with torch.device("meta"):
            model = getattr(transformers, name)(config)
        (HERE / "full" / f"{file}.json").write_text(config.to_json_string(use_diff=False))
        tensors = [f"{n} {'x'.join(map(str, p.shape))}\n" for n, p in model.named_parameters()]
        count = sum(p.numel() for p in model.parameters())
        lines.append(f"{file} {name} {count} {len(tensors)} {fnv1a(''.join(tensors)):016x}")
    (HERE / "params.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
