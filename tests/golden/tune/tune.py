#!/usr/bin/env python3
"""Compares `plimsoll estimate` with `--lora`, `--freeze`, `--optimizer` and `--quant` with runs of peft's, transformers' and bitsandbytes' own code
(loop.py), to the byte.

    tests/golden/runs.py says how to call it.

A row of runs.txt is a model of tests/golden/idiom/idiom.py or of OWN, "lora", "peft", "freeze", "optimizer" or "quant", the text of that option, checkpoints as 0 or
1, and the peak of requested bytes.  Batch 4 x 256, or of OWN 4 x 1024, two steps, bf16, AdamW unless the option says otherwise.  With "quant", adapters of rank 16 are trained;
"infer" and "token" are passes without gradients, of that batch and of a single token.
"""
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent

sys.path[:0] = [str(HERE.parent), str(HERE.parent / "idiom")]
import idiom  # noqa: E402  the models
import runs  # noqa: E402  what such scripts have in common

OWN = {  # one of the size that is fine-tuned on a card of 16 GiB: TinyLlama 1.1B
    "tinyllama": ("llama", "LlamaForCausalLM", {
        "vocab_size": 32000, "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 22,
        "num_attention_heads": 32, "num_key_value_heads": 4, "max_position_embeddings": 2048, "tie_word_embeddings": False}),
}

LORA = {  # by model: texts of --lora; each with and without checkpoints
    "llama": ["r=16", "r=8,save=embed_tokens+lm_head", "r=16,dora", "r=8,targets=all-linear,dropout=0.1,dora", "r=8,targets=all-linear,dropout=0.1", "r=8,alpha=32,targets=q_proj+self_attn.v_proj+down_proj,rslora"],
    "mistral": ["r=16"],
    "qwen2": ["r=16,dropout=0.05", "r=16,targets=q_proj+k_proj,dora", "r=8,save=lm_head", "r=8,bias=all", "r=8,bias=lora_only"],
    "gemma2": ["r=8"],
    "qwen3": ["r=64,targets=all-linear"],
    "gpt_neox": ["r=8"],
    "opt": ["r=8", "r=8,dora", "r=8,bias=all"],
    "phi": ["r=4"],
    "gpt2": ["r=16", "r=8,bias=lora_only", "r=8,targets=c_attn+c_proj,dropout=0.1", "r=8,dora", "r=8,dora,dropout=0.1"],
    "falcon": ["r=8"],
    "tinyllama": ["r=16,targets=q_proj+v_proj"],
}


PEFT = {  # texts of --peft
    "llama": ["ia3", "ia3,targets=q_proj+down_proj,feedforward=q_proj", "loha", "loha,r=16,targets=all-linear", "lokr", "lokr,r=4,decompose_both,decompose_factor=8", "vera", "vera,r=16,targets=all-linear,dropout=0.1", "miss", "miss,r=24,targets=q_proj+down_proj", "miss,init=mini,mini_r=8", "miss,r=32,init=bat", "hira", "hira,targets=all-linear,dropout=0.1", "road", "road,variant=road_2", "road,variant=road_4,targets=all-linear,group_size=16", "prompt_tuning", "prompt_tuning,tokens=200", "p_tuning", "p_tuning,tokens=100,hidden=2048"],
    "qwen2": ["ia3", "loha,r=4", "lokr,r=16", "vera", "miss", "miss,r=32,init=bat", "hira,r=8", "road", "prompt_tuning,tokens=8"],
    "gpt2": ["ia3", "vera,r=8", "hira", "prompt_tuning,tokens=100", "p_tuning,tokens=30"],
    "gemma2": ["prompt_tuning,tokens=50"],
    "opt": ["ia3", "loha,save=lm_head", "lokr", "miss,bias=all", "road"],
    "falcon": ["ia3", "loha"],
    "phi": ["vera", "ia3"],
}


FREEZE = {  # texts of --freeze
    "llama": ["model.embed_tokens", "model.embed_tokens,model.layers.0", "**,!lm_head", "**.mlp", "**norm.weight"],
    "gpt2": ["transformer.wte,transformer.h.0", "**,!transformer.h.1.mlp.*", "**.bias"],
    "qwen2": ["**,!**.bias"],
    "gemma2": ["model.layers.*.self_attn"],
    "opt": ["**,!model.decoder.final_layer_norm"],
    "mixtral": ["**.gate"],
}


OPTIMIZER = {name: ["muon_adamw"] for name in ("llama", "gpt2", "qwen2", "opt", "mixtral", "tinyllama")}  # texts of --optimizer


QUANT = {  # texts of --quant
    "llama": ["nf4", "nf4,double", "fp4", "nf4,compute=fp32", "nf4,compute=fp16", "nf4,prepare", "nf4,double,prepare", "int8", "int8,prepare"],
    "mistral": ["nf4", "nf4,double", "int8"],
    "qwen2": ["nf4", "nf4,double", "nf4,compute=fp32", "nf4,double,prepare", "int8"],
    "gpt2": ["nf4", "nf4,double", "fp4", "nf4,double,prepare", "int8", "int8,prepare"],
    "tinyllama": ["nf4,double"],
}
INFER = {name: ["nf4", "nf4,double", "int8"] for name in ("llama", "mistral", "qwen2", "gpt2")}


# Without checkpoints only: of a checkpointed block in which nothing is trained, PyTorch's frame and the inputs of the block
# are in a reference cycle, and live until Python collects its garbage.
PLAIN = {("llama", "model.embed_tokens,model.layers.0"), ("llama", "**,!lm_head"), ("gpt2", "transformer.wte,transformer.h.0"),
         ("gpt2", "**,!transformer.h.1.mlp.*"), ("opt", "**,!model.decoder.final_layer_norm")}


PASSES = ("infer", "token")


def cases():
    options = (("lora", LORA), ("peft", PEFT), ("freeze", FREEZE), ("optimizer", OPTIMIZER), ("quant", QUANT), ("infer", INFER), ("token", INFER))
    return [(name, option, text, checkpoint) for option, models in options for name, texts in models.items() for text in texts
            for checkpoint in ((0,) if (name, text) in PLAIN or option in PASSES else (0, 1))]


def tokens(name):
    return 1024 if name in OWN else 256


def setting(option, text):
    if option in PASSES:
        return ["--infer", "--cache", "off", "--quant", text]
    if option == "optimizer":
        return ["--optimizer", text]
    return ["--optimizer", "adamw", f"--{option}", text] + (["--lora", "r=16"] if option == "quant" else [])


def size(name, option):
    return ["--batch", "1", "--seq", "1"] if option == "token" else ["--batch", "4", "--seq", str(tokens(name))]


def predicted(program, folder, name, option, text, checkpoint):
    return runs.estimate(program, folder / name, *size(name, option), *setting(option, text),
                         *(() if option in PASSES else ("--checkpoint", "blocks" if checkpoint else "none")))


def measured(program, folder, name, option, text, checkpoint):
    return runs.run(program, HERE / "loop.py", folder / name, option, text, checkpoint, tokens(name))


if __name__ == "__main__":
    sys.exit(runs.Runs(HERE / "runs.txt", {**idiom.MODELS, **OWN}, cases(), predicted, measured,
                       "model, option, its text, checkpoints, peak of requested bytes",
                       packages=("peft", "bitsandbytes")).main(__doc__))
