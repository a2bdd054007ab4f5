#!/usr/bin/env python3
"""weights.py -- small files of weights, and what their own libraries read in them.

    pip install safetensors==0.8.0 gguf==0.19.0 && python3 tests/data/weights.py

Writes tests/data/*.safetensors, *.gguf, sharded/, lora/ with the Python packages
safetensors and gguf (llama.cpp's), and for each a list of its tensors as those packages
read them back into tests/golden/weights: name, type, shape as PyTorch has it, bytes.
The fuzz corpora get the small ones of them.
"""

import json
import pathlib
import shutil
import struct

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Q
from safetensors import deserialize, safe_open
from safetensors.numpy import save_file

DATA = pathlib.Path(__file__).resolve().parent
GOLDEN = DATA.parent / "golden" / "weights"
NAMES = {"F32": "fp32", "F16": "fp16", "BF16": "bf16", "F64": "fp64", "I64": "int64",
         "I32": "int32", "I16": "int16", "I8": "int8", "U64": "uint64", "U32": "uint32",
         "U16": "uint16", "U8": "uint8", "BOOL": "bool", "C64": "complex64",
         "F8_E4M3": "fp8_e4m3fn", "F8_E5M2": "fp8_e5m2", "F8_E8M0": "fp8_e8m0fnu",
         "F8_E4M3FNUZ": "fp8_e4m3fnuz", "F8_E5M2FNUZ": "fp8_e5m2fnuz",
         "F6_E2M3": "fp6_e2m3", "F6_E3M2": "fp6_e3m2", "F4": "fp4_e2m1"}
BITS = {"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "BOOL": 8, "C64": 64}


def golden(name, rows):
    """rows: (tensor, type, shape, bytes), in any order."""
    lines = ["%s\t%s\t%s\t%d" % (n, t, "x".join(map(str, s)) or "scalar", b)
             for n, t, s, b in sorted(rows, key=lambda r: r[0].encode())]
    (GOLDEN / (name + ".txt")).write_text("\n".join(lines) + "\n", encoding="utf-8")


# ---- safetensors ------------------------------------------------------------------------

def read_safetensors(*paths):
    rows = []
    for path in paths:
        with safe_open(path, "np") as f:
            for k in f.keys():
                part = f.get_slice(k)
                rows.append([k, NAMES[part.get_dtype()], part.get_shape()])
        try:
            size = {k: len(v["data"]) for k, v in deserialize(path.read_bytes())}
        except Exception:  # of some types the package reads the header alone
            n, = struct.unpack("<Q", path.read_bytes()[:8])
            header = json.loads(path.read_bytes()[8:8 + n])
            size = {k: v["data_offsets"][1] - v["data_offsets"][0]
                    for k, v in header.items() if k != "__metadata__"}
        rows = [r if len(r) == 4 else r + [size[r[0]]] for r in rows]
    return rows


def every_type():
    """Header and zeros by hand: the package writes not all types that it reads."""
    header, at = {"__metadata__": {"format": "pt", "made by": "weights.py"}}, 0
    tensors = [(t.lower(), t, [2, 4, 3]) for t in NAMES]
    tensors += [("scalar", "F32", []), ("empty", "F16", [3, 0, 5]), ("größe", "I8", [7])]
    for name, dtype, shape in tensors:
        bits = BITS.get(dtype) or int("".join(c for c in dtype.split("_")[0] if c.isdigit()))
        n = int(np.prod(shape, dtype=np.int64)) * bits // 8
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + n]}
        at += n
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path = DATA / "every_type.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(at))
    golden("every_type.safetensors", read_safetensors(path))


def zeros(**shapes):
    return {k.replace("__", "."): np.zeros(s, d) for k, (s, d) in shapes.items()}


def sharded():
    folder = DATA / "sharded"
    folder.mkdir(exist_ok=True)
    parts = [zeros(embed__weight=((6, 4), np.float32), up__weight=((8, 4), np.float32)),
             zeros(down__weight=((4, 8), np.float32), norm__weight=((4,), np.float16))]
    where, paths = {}, []
    for i, part in enumerate(parts):
        paths.append(folder / ("model-%05d-of-%05d.safetensors" % (i + 1, len(parts))))
        save_file(part, paths[-1], metadata={"format": "pt"})
        where.update({k: paths[-1].name for k in part})
    total = sum(x.nbytes for p in parts for x in p.values())
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(where.items()))}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")
    golden("sharded", read_safetensors(*paths))


def lora():
    folder = DATA / "lora"
    folder.mkdir(exist_ok=True)
    path = folder / "adapter_model.safetensors"
    at = "base_model.model.model.layers.0.self_attn.%s_proj.lora_%s.weight"
    save_file({at % (p, ab): np.zeros((2, 8) if ab == "A" else (8, 2), np.float32)
               for p in "qv" for ab in "AB"}, path, metadata={"format": "pt"})
    (folder / "adapter_config.json").write_text(json.dumps({
        "base_model_name_or_path": "meta-llama/Llama-3.2-1B", "lora_alpha": 16,
        "lora_dropout": 0.05, "peft_type": "LORA", "r": 2, "target_modules": ["q_proj", "v_proj"],
    }, indent=2) + "\n")
    golden("lora", read_safetensors(path))


def packed():
    """A linear layer of 64 to 32 as GPTQ stores it: 4 bits, groups of 32."""
    path = DATA / "gptq.safetensors"
    save_file(zeros(proj__qweight=((8, 32), np.int32), proj__scales=((2, 32), np.float16),
                    proj__qzeros=((2, 4), np.int32), proj__g_idx=((64,), np.int32)), path)
    golden("gptq.safetensors", read_safetensors(path))


# ---- GGUF ---------------------------------------------------------------------------------

def read_gguf(*paths):
    return [(t.name, NAMES.get(t.tensor_type.name, t.tensor_type.name),
             [int(x) for x in reversed(t.shape)], t.n_bytes)
            for path in paths for t in gguf.GGUFReader(path).tensors]


def add(w, name, shape, kind=Q.F32):
    """shape as PyTorch has it."""
    block, size = gguf.GGML_QUANT_SIZES[kind]
    raw = list(shape[:-1]) + [shape[-1] // block * size]
    w.add_tensor(name, np.zeros(raw, np.uint8), raw_dtype=kind)


def close(w):
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def every_ggml_type():
    path = DATA / "every_type.gguf"
    w = gguf.GGUFWriter(path, "none")
    w.add_custom_alignment(64)
    for kind in Q:
        if kind == Q.Q8_1:  # 40 bytes a block in the package, 36 in ggml-common.h
            continue
        add(w, kind.name.lower(), [3, max(32, gguf.GGML_QUANT_SIZES[kind][0])], kind)
    add(w, "rank4", [2, 3, 4, 5])
    close(w)
    golden("every_type.gguf", read_gguf(path))


def llama(w, layers=2):
    """Sizes that make a short file; 4 heads of 8, 2 of them for keys and values."""
    w.add_name("tiny")
    w.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    w.add_context_length(128)
    w.add_embedding_length(32)
    w.add_block_count(layers)
    w.add_feed_forward_length(64)
    w.add_head_count(4)
    w.add_head_count_kv(2)
    w.add_rope_freq_base(10000.0)
    w.add_tokenizer_model("llama")
    w.add_token_list(["<s>", "</s>", "a", "größe", ""])
    w.add_token_scores([0.0, 0.0, 1.5, 2.5, 3.5])
    add(w, "token_embd.weight", [5, 32], Q.Q8_0)
    for i in range(layers):
        add(w, "blk.%d.attn_q.weight" % i, [32, 32], Q.Q8_0)
        add(w, "blk.%d.attn_k.weight" % i, [16, 32], Q.Q8_0)
        add(w, "blk.%d.attn_v.weight" % i, [16, 32], Q.Q8_0)
        add(w, "blk.%d.attn_norm.weight" % i, [32])


def llama_files():
    path = DATA / "tiny.gguf"
    w = gguf.GGUFWriter(path, "llama")
    llama(w)
    close(w)
    golden("tiny.gguf", read_gguf(path))
    path = DATA / "big_endian.gguf"
    w = gguf.GGUFWriter(path, "llama", endianess=gguf.GGUFEndian.BIG)
    llama(w)
    add(w, "output.weight", [5, 32], Q.Q8_0)
    close(w)
    golden("big_endian.gguf", read_gguf(path))
    folder = DATA / "split"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    w = gguf.GGUFWriter(folder / "tiny.gguf", "llama", split_max_tensors=4)
    llama(w)
    close(w)
    golden("split", read_gguf(*sorted(folder.glob("*.gguf"))))


def corpora():
    for corpus, files in {
            "safetensors": ["every_type.safetensors", "gptq.safetensors",
                            "lora/adapter_model.safetensors"],
            "gguf": ["tiny.gguf", "big_endian.gguf", "split/tiny-00002-of-00003.gguf"],
            "index": ["sharded/model.safetensors.index.json"]}.items():
        folder = DATA.parent / "fuzz" / "corpus" / corpus
        folder.mkdir(parents=True, exist_ok=True)
        for f in files:
            shutil.copy(DATA / f, folder / pathlib.Path(f).name)


def main():
    GOLDEN.mkdir(parents=True, exist_ok=True)
    every_type()
    sharded()
    lora()
    packed()
    every_ggml_type()
    llama_files()
    corpora()


if __name__ == "__main__":
    main()
