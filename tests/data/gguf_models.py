#!/usr/bin/env python3
"""GGUF files of architectures whose graph plimsoll does not build: a header, and a hole in the place of weights.

    gguf_models.py FOLDER [SCALE]     writes NAME.gguf of each; SCALE 1 (the default) has kilobytes

Tensors and metadata are those that llama.cpp's src/models/NAME.cpp asks for (load_arch_hparams, load_arch_tensors), so
that it loads them (tests/golden/llamacpp).  The files of tests/fuzz/corpus that are named like these are of SCALE 1.
"""
import pathlib
import struct
import sys

F32, F16 = 0, 1
U32, REAL, BOOL, TEXT, LIST = 4, 6, 7, 8, 9
BYTES = {F32: 4, F16: 2}


class Sizes:
    def __init__(self, scale):
        self.hidden, self.heads, self.kv, self.ffn, self.vocab = 16 * scale, 4, 2, 24 * scale, 40 * scale
        self.head = self.hidden // self.heads
        self.inner, self.state, self.groups, self.conv, self.rank = 2 * self.hidden, 4 * scale, 1, 4, 4
        self.experts, self.context = 4, max(512, 64 * scale)


def weights(**shapes):
    return [(f"{name}.weight", shape) for name, shape in shapes.items()]


def biases(**shapes):
    return [(f"{name}.bias", shape) for name, shape in shapes.items()]


def attention(s, q=1):
    kv = s.kv * s.head
    return weights(attn_q=(s.hidden, q * s.hidden), attn_k=(s.hidden, kv), attn_v=(s.hidden, kv), attn_output=(s.hidden, s.hidden))


def mlp(s):
    return weights(ffn_gate=(s.hidden, s.ffn), ffn_up=(s.hidden, s.ffn), ffn_down=(s.ffn, s.hidden))


def experts(s):
    return weights(ffn_gate_inp=(s.hidden, s.experts), ffn_gate_exps=(s.hidden, s.ffn, s.experts),
                   ffn_up_exps=(s.hidden, s.ffn, s.experts), ffn_down_exps=(s.ffn, s.hidden, s.experts))


def norms(s, *names):
    return weights(**{name: (s.hidden,) for name in names})


def mamba(s, normed):
    """Mamba 1."""
    out = weights(ssm_in=(s.hidden, 2 * s.inner), ssm_conv1d=(s.conv, s.inner), ssm_x=(s.inner, s.rank + 2 * s.state),
                  ssm_dt=(s.rank, s.inner), ssm_out=(s.inner, s.hidden)) + biases(ssm_conv1d=(s.inner,), ssm_dt=(s.inner,))
    out += [("ssm_a", (s.state, s.inner)), ("ssm_d", (s.inner,))]
    return out + (weights(ssm_dt_norm=(s.rank,), ssm_b_norm=(s.state,), ssm_c_norm=(s.state,)) if normed else [])


def mamba2(s):
    both = s.inner + 2 * s.groups * s.state
    out = weights(ssm_in=(s.hidden, s.inner + both + s.rank), ssm_conv1d=(s.conv, both), ssm_norm=(s.inner // s.groups, s.groups),
                  ssm_out=(s.inner, s.hidden)) + biases(ssm_conv1d=(both,), ssm_dt=(s.rank,))
    return out + [("ssm_a", (1, s.rank)), ("ssm_d", (1, s.rank))]


def delta_net(s):
    values, keys = s.rank * s.state, s.groups * s.state
    return weights(attn_qkv=(s.hidden, 2 * keys + values), attn_gate=(s.hidden, values), ssm_conv1d=(s.conv, 2 * keys + values),
                   ssm_ba=(s.hidden, 2 * s.rank), ssm_norm=(s.state,), ssm_out=(values, s.hidden)) + biases(
                       ssm_dt=(s.rank,)) + [("ssm_a", (s.rank,))]


def shortconv(s):
    return weights(**{"shortconv.conv": (3, s.hidden), "shortconv.in_proj": (s.hidden, 3 * s.hidden),
                      "shortconv.out_proj": (s.hidden, s.hidden)})


def encoder(s, gated, fused=False):
    wide = s.hidden + 2 * s.kv * s.head
    out = weights(attn_qkv=(s.hidden, wide), attn_output=(s.hidden, s.hidden)) if fused else attention(s)
    out += norms(s, "attn_output_norm", "layer_output_norm") + biases(attn_output_norm=(s.hidden,), layer_output_norm=(s.hidden,))
    return out + (mlp(s) if gated else mlp(s)[1:])


SSM = ["ssm.conv_kernel", "ssm.inner_size", "ssm.state_size", "ssm.time_step_rank", "ssm.group_count"]


def ssm(s):
    return dict(zip(SSM, (s.conv, s.inner, s.state, s.rank, s.groups)))


def delta(s):
    return {**ssm(s), "ssm.inner_size": s.rank * s.state}


def mixed(s, layers, attends):
    return {"attention.head_count_kv": [s.kv if i in attends else 0 for i in range(layers)]}


def by_layer(layers, attends, one, other):
    return [one if i in attends else other for i in range(layers)]


def decoder_ends(s):
    return weights(token_embd=(s.hidden, s.vocab), output_norm=(s.hidden,))


def encoder_ends(s, positions):
    out = weights(token_embd=(s.hidden, s.vocab), token_types=(s.hidden, 2), token_embd_norm=(s.hidden,))
    out += biases(token_embd_norm=(s.hidden,))
    return out + (weights(position_embd=(s.hidden, s.context)) if positions else [])


ENCODER = {"attention.causal": False, "pooling_type": 1, "tokenizer.ggml.token_type_count": 2}


def models(s):
    """Name: architecture, metadata, tensors of no layer, tensors of each layer."""
    qk = weights(attn_q_norm=(s.head,), attn_k_norm=(s.head,))
    return {
        "bert": ("bert", ENCODER, encoder_ends(s, True), [encoder(s, False)] * 3),
        "nomic-bert": ("nomic-bert", ENCODER, encoder_ends(s, False), [encoder(s, True, True)] * 3),
        "jina-bert-v2": ("jina-bert-v2", ENCODER, encoder_ends(s, False),
                         [encoder(s, True) + biases(attn_output=(s.hidden,), ffn_down=(s.hidden,))] * 3),
        "mamba": ("mamba", {**ssm(s), "attention.head_count": 0, "feed_forward_length": 0}, decoder_ends(s),
                  [norms(s, "attn_norm") + mamba(s, False)] * 3),
        "jamba": ("jamba", {**ssm(s), **mixed(s, 4, (2,))}, decoder_ends(s), [
            norms(s, "attn_norm", "ffn_norm") + part + (experts(s) if i % 2 else mlp(s))
            for i, part in enumerate(by_layer(4, (2,), attention(s), mamba(s, True)))]),
        "granitehybrid": ("granitehybrid", {**ssm(s), **mixed(s, 4, (1, 3))}, decoder_ends(s), [
            norms(s, "attn_norm", "ffn_norm") + part + mlp(s) for part in by_layer(4, (1, 3), attention(s), mamba2(s))]),
        "falcon-h1": ("falcon-h1", ssm(s), decoder_ends(s),
                      [norms(s, "attn_norm") + attention(s) + mamba2(s) + [("ffn_norm", (s.hidden,))] + mlp(s)] * 3),
        "qwen3next": ("qwen3next", {**delta(s), "full_attention_interval": 4}, decoder_ends(s), [
            norms(s, "attn_norm", "post_attention_norm") + part + experts(s) + weights(
                ffn_gate_inp_shexp=(s.hidden,), ffn_gate_shexp=(s.hidden, s.ffn), ffn_up_shexp=(s.hidden, s.ffn),
                ffn_down_shexp=(s.ffn, s.hidden)) for part in by_layer(4, (3,), attention(s, 2) + qk, delta_net(s))]),
        "lfm2": ("lfm2", {"shortconv.l_cache": 3, **mixed(s, 4, (2,))},
                 weights(token_embd=(s.hidden, s.vocab), token_embd_norm=(s.hidden,)), [
                     norms(s, "attn_norm", "ffn_norm") + part + mlp(s)
                     for part in by_layer(4, (2,), attention(s) + qk, shortconv(s))]),
        "starcoder2": ("starcoder2", {}, decoder_ends(s) + biases(output_norm=(s.hidden,)), [
            norms(s, "attn_norm", "ffn_norm") + attention(s) + mlp(s)[1:] + biases(
                attn_norm=(s.hidden,), ffn_norm=(s.hidden,), attn_output=(s.hidden,), ffn_up=(s.ffn,), ffn_down=(s.hidden,))] * 3),
        "command-r": ("command-r", {}, decoder_ends(s), [norms(s, "attn_norm") + attention(s) + mlp(s)] * 3),
        "unknown": ("newcomer", {}, decoder_ends(s), [norms(s, "attn_norm", "ffn_norm") + attention(s) + mlp(s)] * 3),
    }


def packed_text(text):
    return struct.pack("<Q", len(text)) + text.encode()


def packed_value(value):
    if isinstance(value, bool):
        return struct.pack("<IB", BOOL, value)
    if isinstance(value, float):
        return struct.pack("<If", REAL, value)
    if isinstance(value, int):
        return struct.pack("<II", U32, value)
    if isinstance(value, list):
        return struct.pack("<IIQ", LIST, U32, len(value)) + struct.pack(f"<{len(value)}I", *value)
    return struct.pack("<I", TEXT) + packed_text(value)


def metadata(s, arch, more, tensors, layers):
    keys = {"block_count": layers, "context_length": s.context, "embedding_length": s.hidden, "feed_forward_length": s.ffn,
            "attention.head_count": s.heads, "attention.head_count_kv": s.kv, "vocab_size": s.vocab,
            "attention.layer_norm_epsilon": 1e-5, "attention.layer_norm_rms_epsilon": 1e-5}
    if any("exps" in name for name, _ in tensors):
        keys.update({"expert_count": s.experts, "expert_used_count": 2, "expert_feed_forward_length": s.ffn,
                     "expert_shared_feed_forward_length": s.ffn})
    keys.update(more)
    own = {k if k.startswith("tokenizer.") else f"{arch}.{k}": v for k, v in keys.items()}
    return {"general.architecture": arch, "tokenizer.ggml.model": "none", **own}


def small(name, shape):
    """What is in fp32."""
    return len(shape) == 1 or "norm" in name or "ssm_" in name and "weight" not in name or any(
        part in name for part in ("conv", "position", "types", "gate_inp"))


def file_of(name, scale=1, more=None):
    """The bytes of a file, without the weights, and how many those are."""
    s = Sizes(scale)
    arch, own, ends, layers = models(s)[name]
    tensors = ends + [(f"blk.{i}.{tensor}", shape) for i, layer in enumerate(layers) for tensor, shape in layer]
    values = metadata(s, arch, {**own, **(more or {})}, tensors, len(layers))
    head, at = b"", 0
    for tensor, shape in tensors:
        kind, elements = F32 if small(tensor, shape) else F16, 1
        for n in shape:
            elements *= n
        head += packed_text(tensor) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape)
        head += struct.pack("<IQ", kind, at)
        at += -(-elements * BYTES[kind] // 32) * 32
    data = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(values))
    data += b"".join(packed_text(k) + packed_value(v) for k, v in values.items()) + head
    return data + b"\0" * (-len(data) % 32), at


def write(path, name, scale=1, more=None):
    data, weight_bytes = file_of(name, scale, more)
    with open(path, "wb") as f:
        f.write(data)
        f.truncate(len(data) + weight_bytes)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    for model in models(Sizes(1)):
        write(pathlib.Path(sys.argv[1]) / f"{model}.gguf", model, int(sys.argv[2]) if len(sys.argv) > 2 else 1)
