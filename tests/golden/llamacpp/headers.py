"""Headers of GGUF files with every key that llama.cpp reads of some architecture, or leaves out: what it keeps of a request follows
from those that it reads of this one.

A header is made again from the name of its architecture and a number.
"""
import pathlib
import random
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "data"))
from gguf_models import LIST, packed_text, packed_value  # noqa: E402

U32, REAL, BOOL, U64 = 4, 6, 7, 10
FORMS = {U32: "I", REAL: "f", BOOL: "?", U64: "Q"}
WINDOWS_OR_NONE = "gemma3 afmoe mellum olmo2 laguna plamo3 smallthinker llama4 lfm2 llama phi3".split()  # where 0 is no window
FLAGS = {"attention.sliding_window_pattern", "attention.recurrent_layers", "attention.indexer.types"}
LISTS = {"ple.layer_multipliers": U64, "ple.head_offsets": U64, "ple.head_vocab_sizes": U64, "swiglu_clamp_exp": REAL,
         "swiglu_clamp_shexp": REAL}

# Read by some architectures, of no effect on what is kept, and required.
OTHERS = {
    "vocab_size": 512, "expert_count": 8, "expert_used_count": 2, "expert_feed_forward_length": 64, "expert_shared_count": 1,
    "expert_weights_scale": 1.0, "expert_weights_norm": True, "expert_shared_feed_forward_length": 64, "expert_group_count": 2,
    "expert_group_used_count": 1, "expert_group_scale": 1.0, "expert_latent_length": 16, "experts_per_group": 2, "moe_latent_size": 16,
    "moe_every_n_layers": 1, "interleave_moe_layer_step": 1, "attention.layer_norm_epsilon": 1e-5,
    "attention.layer_norm_rms_epsilon": 1e-5, "attention.group_norm_epsilon": 1e-5, "attention.group_norm_groups": 1,
    "logit_scale": 1.0, "residual_scale": 1.0, "embedding_scale": 1.0, "attention.scale": 1.0, "attention.max_alibi_bias": 0.0,
    "attention.clamp_kqv": 1.0, "use_parallel_residual": True, "rope.dimension_sections": [4, 4, 4, 0], "rope.freq_base_swa": 1e4,
    "embedding_length_per_layer_input": 8, "n_deepstack_layers": 0, "target_layers": [0, 1, 2], "time_mix_extra_dim": 32,
    "time_decay_extra_dim": 32, "attention.decay_lora_rank": 8, "attention.iclr_lora_rank": 8,
    "attention.value_residual_mix_lora_rank": 8, "attention.gate_lora_rank": 8, "attention.relative_buckets_count": 32,
    "attention.indexer.block_size": 4, "attention.indexer.local_blocks": 1, "attention.compress_rope_freq_base": 1e4,
    "attention.output_group_count": 2, "attention.output_lora_rank": 8, "hyper_connection.sinkhorn_iterations": 2,
    "hyper_connection.epsilon": 1e-6, "hyper_connection.magnitude": 2.0, "hyper_connection.low_rank": 4, "hash_layer_count": 0,
    "adapters.count": 1, "adapters.lora_rank": 4, "adapters.token_ids_activate": [1], "adapters.token_ids_substitute": [2],
    "posnet.embedding_length": 8, "posnet.block_count": 1, "convnext.embedding_length": 8, "convnext.block_count": 1,
    "kda.gate_lower_bound": -5.0, "activation.situ_beta": 1.0, "activation.situ_linear_beta": 1.0, "attn_res.block_size": 2,
}

# Each is there as often as its number says; those that only some architectures require are there almost always.
SOMETIMES = {
    "attention.key_length": (.75, (32, 48, 64, 96)), "attention.value_length": (.75, (32, 48, 64, 40)),
    "attention.key_length_swa": (.5, (16, 24, 80)), "attention.value_length_swa": (.5, (16, 24, 56)),
    "attention.key_length_mla_swa": (.95, (40, 44)), "attention.value_length_mla_swa": (.95, (28, 36)),
    "attention.kv_lora_rank_swa": (.95, (20, 30)), "attention.kv_lora_rank": (.95, (32, 40)), "attention.q_lora_rank": (.95, (64,)),
    "full_attention_interval": (.6, (1, 2, 3, 4)), "attention.shared_kv_layers": (.6, (0, 1, 2)),
    "leading_dense_block_count": (.95, (0, 1, 2)), "ssm.conv_kernel": (.97, (4, 3, 2)), "ssm.inner_size": (.97, (64, 96, 192)),
    "ssm.state_size": (.97, (16, 32)), "ssm.time_step_rank": (.97, (4, 8)), "ssm.group_count": (.97, (1, 2, 4)),
    "kda.head_dim": (.97, (16, 32)), "wkv.head_size": (.97, (16, 32)), "token_shift_count": (.5, (1, 2)),
    "shortconv.l_cache": (.97, (3, 4)), "attention.indexer.head_count": (.95, (2, 4)), "attention.indexer.key_length": (.95, (24, 32, 128)),
    "attention.indexer.top_k": (.95, (4, 0, 8)), "attention.indexer.kpool": (1, (4,)), "hyper_connection.count": (1, (4,)),
    "num_loops": (1, (1, 2, 3)), "ple.ngram_size": (1, (2,)), "ple.heads_per_ngram": (1, (2,)), "ple.conv_kernel": (1, (3,)),
    "ple.eos_token_id": (1, (1,)), "ple.layer_multipliers": (1, ([1, 2],)), "ple.head_offsets": (1, ([0, 10],)),
    "ple.head_vocab_sizes": (1, ([10, 10],)),
}


def layers_of(arch, r):
    layers = r.choice([4, 6, 7, 8, 9, 12])
    if arch in ("deepseek2", "glm-dsa") and r.random() < .3:
        return 27
    if arch == "exaone4" and r.random() < .6:
        return 64
    return r.choice([30, 35, 24]) if arch == "gemma3n" else layers


def heads_of(layers, r):
    keys = {"attention.head_count": r.choice([4, 8]) if r.random() < .8 else [r.choice([4, 8]) for _ in range(layers)],
            "feed_forward_length": 96 if r.random() < .6 else [r.choice([0, 96]) for _ in range(layers)]}
    if r.random() < .95:
        keys["attention.head_count_kv"] = r.choice([1, 2, 4]) if r.random() < .45 else [r.choice([0, 0, 1, 2, 4]) for _ in range(layers)]
    return keys


def patterns_of(arch, layers, trunk, r):
    keys = {}
    flags = [r.randrange(2) for _ in range(layers)]
    if r.random() < .6:
        keys["attention.sliding_window_pattern"] = flags if r.random() < .7 else r.choice([1, 2, 3, 4, 6])
    if r.random() < .85:
        keys["attention.sliding_window"] = r.choice([0, 100, 300, 600] if arch in WINDOWS_OR_NONE else [100, 300, 600])
    if r.random() < .3:
        keys["attention.recurrent_layers"] = [r.randrange(2) for _ in range(layers)]
    if r.random() < .6:  # layers with a window have no index
        types = [1] + [r.randrange(2) for _ in range(trunk - 1)]
        keys["attention.indexer.types"] = [t and not (arch == "dots3note" and flags[i]) for i, t in enumerate(types)]
    if r.random() < .95:
        keys["attention.compress_ratios"] = [r.choice([0, 4, 128]) for _ in range(layers)]
    if r.random() < .85:
        keys.update({"attention.key_length_mla": r.choice([48, 56]), "attention.value_length_mla": 32})
    if r.random() < .4:
        keys["ple.layers"] = [0]
    return keys


def keys_of(arch, number):
    """Keys of the architecture, without its name, and their values."""
    r = random.Random(f"{arch}-{number}")
    layers, further, hidden = layers_of(arch, r), r.choice([0, 0, 0, 1, 2]), 8 * r.choice([16, 24, 32])
    keys = {**OTHERS, "block_count": layers, "context_length": r.choice([4096, 2097152]), "embedding_length": hidden,
            "features_length": hidden, "target_hidden_size": hidden, "expert_gating_func": 4 if arch == "deepseek4" else 2,
            "decoder_block_count": r.choice([layers, 3]), "swiglu_clamp_exp": [1.0] * layers, "swiglu_clamp_shexp": [1.0] * layers,
            "hrm.layers_per_stack": 1, "hrm.h_cycles": 1, "hrm.l_cycles": max(1, layers - further - 1)}
    if further:
        keys["nextn_predict_layers"] = further
    keys.update(heads_of(layers, r))
    keys.update(patterns_of(arch, layers, layers - further, r))
    keys.update({key: r.choice(values) for key, (often, values) in SOMETIMES.items() if r.random() < often})
    return keys


def packed_list(kind, values):
    return struct.pack("<IIQ", LIST, kind, len(values)) + struct.pack(f"<{len(values)}{FORMS[kind]}", *values)


def packed(key, value):
    if not isinstance(value, list):
        return packed_value(value)
    return packed_list(BOOL if key in FLAGS else LISTS.get(key, U32), value)


def write(path, arch, number):
    """With an embedding, and a matrix in each layer; llama.cpp is not asked for its tensors."""
    keys = keys_of(arch, number)
    own = {"general.architecture": packed_value(arch), "tokenizer.ggml.model": packed_value("none")}
    own.update({f"{arch}.{key}": packed(key, value) for key, value in keys.items()})
    own.update({f"xielu.{key}": packed_list(REAL, [1.0] * keys["block_count"]) for key in ("alpha_n", "alpha_p", "beta", "eps")})
    hidden = keys["embedding_length"]
    tensors = [("token_embd.weight", 32), *((f"blk.{i}.ffn_up.weight", 96) for i in range(keys["block_count"]))]
    at, heads = 0, b""
    for name, rows in tensors:
        heads += packed_text(name) + struct.pack("<IQQIQ", 2, hidden, rows, 0, at)
        at += 4 * hidden * rows
    data = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(own))
    data += b"".join(packed_text(key) + value for key, value in own.items()) + heads
    data += b"\0" * (-len(data) % 32)
    with open(path, "wb") as f:
        f.write(data)
        f.truncate(len(data) + at)
