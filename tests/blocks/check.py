#!/usr/bin/env python3
"""check.py PROGRAM [--table] -- compares what a transformer block saves for backward with a formula.

The formulas, in bytes per token, were fitted to measurements of transformers' modules. The simulated figure is the
growth of allocated bytes from the start of the second block to the start of the third. A row is a configuration, or
(eager attention) an export of tests/golden/differential. --table prints the table of docs/blocks.md.

    e bytes of an element     H hidden size     nh, nkv heads of queries, of keys and values     hd size of a head
    rq, rkv, nope, rope, v: the ranks and the parts of heads of latent attention
    Q = nh hd   K = nkv hd    I intermediate size    S sequence length    T = B S tokens    W elements of a block's matrices

Since these were measured, transformers 5 computes T5's softmax in bf16 (5 nh S, not 7), and with padding each layer
saves its additive mask (2 S). On a Hopper card DeepSeek's attention runs in cuDNN, whose result is copied once more.
In addition a block holds fp32 constants of its norms, weights cast by autocast, and the state of the random number
generator: 16 bytes on the card, 24 where the flash kernel applies dropout, none where the memory-efficient kernel does,
because it is then in the CPU's memory.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

PROGRAM = os.path.abspath(sys.argv[1])
EXPORTS = pathlib.Path(__file__).resolve().parent  # by record.py, in bf16
B, S = 2, 128  # of the exports, too

LLAMA = dict(hidden_size=256, num_attention_heads=8, num_key_value_heads=4, head_dim=32, intermediate_size=640,
             vocab_size=1000, max_position_embeddings=2048)
WIDE = dict(LLAMA, num_key_value_heads=8)
GPT2 = dict(n_embd=256, n_head=8, n_inner=640, vocab_size=1000, n_positions=1024)
BERT = dict(hidden_size=256, num_attention_heads=8, intermediate_size=640, vocab_size=1000)
VIT = dict(hidden_size=256, num_attention_heads=8, intermediate_size=640, image_size=224, patch_size=16)
EXPORT = dict(hidden_size=256, num_attention_heads=8, num_key_value_heads=4, intermediate_size=512)  # of models.py

MLA = dict(LLAMA, num_key_value_heads=8, q_lora_rank=64, kv_lora_rank=32, qk_nope_head_dim=32, qk_rope_head_dim=16,
           v_head_dim=32, first_k_dense_replace=4, n_routed_experts=4, num_experts_per_tok=2, n_group=1, topk_group=1)

BF16, FP32, AMP = ["--dtype", "bf16"], [], ["--autocast", "bf16"]
MATRICES = "2 H Q + 2 H K + 3 H I"
LLAMA_BF16 = "16 H + 4 Q + 4 K + 8 I + 4 nh + 8"
GPT2_TOKEN = "e 8 H + e 5 I + 2 H + 4 nh + 16"
BERT_TOKEN = "e 8 H + e 2 I + 2 H + 4 nh + 16"

# what, model_type or export, configuration, options, bytes a token, bytes a block
ROWS = [
    ("Llama, bf16", "llama", LLAMA, BF16, LLAMA_BF16, "16"),
    ("Mistral, bf16", "mistral", dict(LLAMA, sliding_window=None), BF16, LLAMA_BF16, "16"),
    ("Qwen2, bf16", "qwen2", LLAMA, BF16, LLAMA_BF16, "16"),
    ("Llama with padding, bf16", "llama_padded.pt2", EXPORT, [], "16 H + 8 Q + 8 I + 4 nh + 8 + 2 S", "16"),
    ("Llama, eager attention, bf16", "llama_eager.pt2", EXPORT, [], "16 H + 8 Q + 8 I + 8 + 6 nh S", "0"),
    ("Llama, fp32, nkv = nh", "llama", WIDE, FP32, "24 H + 8 Q + 8 K + 16 I + 4 nh + 8", "16"),
    ("Llama, fp32 under bf16 autocast", "llama", LLAMA, AMP, "26 H + 4 Q + 4 K + 8 I + 4 nh + 8",
     "2 W + 16"),
    ("Qwen3, bf16", "qwen3", LLAMA, BF16, LLAMA_BF16 + " + 6 Q + 6 K + 4 nh + 4 nkv", "16"),
    ("Gemma 3, bf16", "gemma3_text", LLAMA, BF16,
     "36 H + 4 Q + 4 K + 8 I + 4 nh + 16 + 8 Q + 8 K + 4 nh + 4 nkv", "16 H + 8 hd + 16"),
    ("GPT-2, fp32", "gpt2", GPT2, FP32, GPT2_TOKEN, "0"),
    ("GPT-2, bf16", "gpt2", GPT2, BF16, GPT2_TOKEN, "24"),
    ("GPT-2 with the fused gelu, bf16", "gpt2", dict(GPT2, activation_function="gelu"), BF16, BERT_TOKEN, "24"),
    ("GPT-2, eager attention, bf16", "gpt2_eager.pt2", dict(EXPORT, intermediate_size=1024), [],
     "e 8 H + e 5 I + 2 H + 16 + 2 e nh S + nh S", "0"),
    ("BERT, fp32", "bert", BERT, FP32, BERT_TOKEN, "0"),
    ("BERT, bf16", "bert", BERT, BF16, BERT_TOKEN, "24"),
    ("BERT, eager attention, bf16", "bert_eager.pt2", EXPORT, [],
     "e 8 H + e 2 I + 2 H + 16 + 2 e nh S + nh S", "0"),
    ("ViT, bf16", "vit", VIT, BF16, "e 8 H + e 2 I + 4 nh + 16", "16"),
    ("T5 encoder, eager attention, bf16", "t5_eager.pt2", EXPORT, [],
     "20 H + 8 + 8 Q + 2 H + 5 I + 5 nh S", "0"),
    ("T5 v1.1 encoder, eager attention, bf16", "t5_gated.pt2", EXPORT, [],
     "20 H + 8 + 8 Q + 2 H + e 6 I + e I + I + 5 nh S", "0"),
    ("DeepSeek-V3, a dense block, bf16 (A100)", "deepseek_v3", MLA, [*BF16, "--gpu", "a100-80g"],
     "16 H + 8 I + 4 + 8 rq + 8 rkv + 12 + 4 nh nope + 4 nh rope + 2 nh nope + 4 nh v + 4 nh", "16"),
]


def suffix(what):
    return ".pt2" if what.endswith(".pt2") else ".json"


def sizes(what, config, options):
    """The letters of the formulas."""
    H = config.get("hidden_size") or config["n_embd"]
    nh = config.get("num_attention_heads") or config["n_head"]
    nkv, I = config.get("num_key_value_heads", nh), config.get("intermediate_size") or config["n_inner"]
    hd = config.get("head_dim", H // nh)
    seq = (config["image_size"] // config["patch_size"]) ** 2 + 1 if "image_size" in config else S
    e = 2 if "--dtype" in options or what.endswith(".pt2") else 4
    s = dict(H=H, nh=nh, nkv=nkv, hd=hd, Q=nh * hd, K=nkv * hd, I=I, e=e, S=seq, T=B * seq)
    s["W"] = value(MATRICES, s)
    for letter, key in (("rq", "q_lora_rank"), ("rkv", "kv_lora_rank"), ("nope", "qk_nope_head_dim"),
                        ("rope", "qk_rope_head_dim"), ("v", "v_head_dim")):
        s[letter] = config.get(key)
    return s


def value(formula, letters):
    """'16 H + e 5 I': sums of products."""
    total = 0
    for term in formula.split(" + "):
        product = 1
        for factor in term.split():
            product *= int(factor) if factor.isdigit() else letters[factor]
        total += product
    return total


def block_of(path):
    """1 of "model.layers.1.mlp": the first number in a path."""
    return next((int(part) for part in path.split(".") if part.isdigit()), None)


def kept(folder, what, config, options):
    """The bytes that are allocated between the first kernel of block 1 and that of block 2."""
    path, size = str(EXPORTS / what), []
    if suffix(what) == ".json":
        size = ["--batch", str(B)] + ([] if "image_size" in config else ["--seq", str(S)])
        path = os.path.join(folder, "config.json")
        with open(path, "w", encoding="utf-8") as f:
            json.dump({**config, "model_type": what, "n_layer" if "n_embd" in config else "num_hidden_layers": 4}, f)
    tape = subprocess.run([PROGRAM, "tape", path, *size, "--gpu", "h100", "--cache", "off", *options, "--workspace", "off", "--steps", "1"],
                          capture_output=True, text=True, check=True).stdout
    live, total, begins = {}, 0, {}
    for line in tape.splitlines():
        word = line.split()
        if word[0] == "@":
            if word[2] == "forward" and len(word) > 3:
                begins.setdefault(block_of(word[3]), total)
        elif word[0] == "+":
            live[word[1]] = int(word[2])
            total += live[word[1]]
        elif word[0] == "-":
            total -= live.pop(word[1])
    return begins[2] - begins[1]


wrong, table = 0, "--table" in sys.argv
if table:
    print("| block | bytes per token | plus, per block |\n| --- | --- | --- |")
with tempfile.TemporaryDirectory() as folder:
    for name, what, config, options, token, block in ROWS:
        letters = sizes(what, config, options)
        want = value(token, letters) * letters["T"] + value(block, letters)
        got = kept(folder, what, config, options)
        wrong += got != want
        more = "" if got == want else f": {(got - want) / letters['T']:+} a token"
        print(f"| {name} | {token} | {block} |" if table else
              f"{'WRONG' if more else 'ok   '} {name}: {got} bytes, {want} by '{token}'{more}")
if not table:
    print(f"{len(ROWS)} blocks, {wrong} wrong")
sys.exit(wrong > 0)
