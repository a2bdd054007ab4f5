#!/usr/bin/env python3
"""Makes the folders of Hugging Face beside this file: a config.json and weights, all zeros.

    llama-tiny     the weights are those of the model
    llama-other    one is missing, one too many, one has another shape, one another type
    unknown-tiny   a model_type that nobody knows
"""
import json
import pathlib
import struct

HERE = pathlib.Path(__file__).resolve().parent
CONFIG = dict(model_type="llama", vocab_size=32, hidden_size=8, intermediate_size=16, num_hidden_layers=1,
              num_attention_heads=2, dtype="bfloat16")
LAYER = {"self_attn.q_proj": (8, 8), "self_attn.k_proj": (8, 8), "self_attn.v_proj": (8, 8), "self_attn.o_proj": (8, 8),
         "mlp.gate_proj": (16, 8), "mlp.up_proj": (16, 8), "mlp.down_proj": (8, 16), "input_layernorm": (8,),
         "post_attention_layernorm": (8,)}
WEIGHTS = {"model.embed_tokens.weight": (32, 8), **{f"model.layers.0.{k}.weight": v for k, v in LAYER.items()},
           "model.norm.weight": (8,), "lm_head.weight": (32, 8)}


def write(name, config, weights, types=()):
    folder, header, at = HERE / name, {}, 0
    for key, shape in weights.items():
        kind, size = ("F32", 4) if key in types else ("BF16", 2)
        for n in shape:
            size *= n
        header[key] = {"dtype": kind, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config) + "\n")
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + bytes(at))


other = {k: v for k, v in WEIGHTS.items() if k != "model.norm.weight"}
other.update({"model.embed_tokens.weight": (33, 8), "model.extra": (2,)})
write("llama-tiny", CONFIG, WEIGHTS)
write("llama-other", CONFIG, other, ["model.layers.0.self_attn.q_proj.weight"])
write("unknown-tiny", {**CONFIG, "model_type": "vision3"}, WEIGHTS)
