#!/usr/bin/env python3
"""words.py TARGET -- a fuzzer's dictionary: the words that the reader of a target knows, from its own source.

Strings of C that are names rather than sentences, and the columns of .def files. Nothing is printed for a target whose
input has no words.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
READERS = {  # target: patterns below src
    "drm": "live/drm.c live/procfs.c", "gguf": "import/weights/gguf*.c import/weights/ggml_types.def",
    "hf": "import/hf/*.c import/hf/*.def", "index": "import/weights/shards.c", "log": "trace/log.*",
    "megatron": "import/megatron/mg_*.c import/megatron/*.def", "onnx": "import/onnx/*.c import/onnx/*.def", "oom": "oom/*.c",
    "peft": "transform/adapter_config.c transform/adapters.def", "pickle": "base/pickle.c import/weights/torchfile_names.c",
    "pt2": "import/pt2/*.c", "safetensors": "import/weights/safetensors.c", "serve": "import/weights/gguf*.c",
    "settings": "settings/*.def", "snapshot": "trace/snapshot.c", "tape": "core/tape.c", "torch": "import/weights/torchfile*.c",
    "trace": "trace/kineto.c",
}
STRING = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
NAME = re.compile(r"[A-Za-z_<.-][\w.:/<>-]{1,39}")
ROW = re.compile(r"^\w+\((\w+)", re.M)  # its first column
COMMENT = re.compile(r"^\s*#[^\n]*|/\*.*?\*/", re.M | re.S)


def words(target):
    found = set()
    for pattern in READERS.get(target, "").split():
        files = sorted((ROOT / "src").glob(pattern))
        if not files:
            sys.exit(f"words.py: {target}: there is no src/{pattern}")
        for path in files:
            text = COMMENT.sub("", path.read_text(encoding="utf-8"))
            names = STRING.findall(text) + (ROW.findall(text) if path.suffix == ".def" else [])
            found |= {x for x in names if NAME.fullmatch(x)}
    return sorted(found)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    print("".join(f'"{word}"\n' for word in words(sys.argv[1])), end="")
