#!/usr/bin/env python3
"""Records what save_pretrained of transformers calls the weights of those models of record.py that have other
names in the file than in the class.

    python3 tests/golden/hf/stored.py > tests/golden/hf/stored.txt

needs transformers: "= NAME" as in NAME.json, then a tensor a line with its sizes.
"""
import pathlib
import sys
import tempfile

import transformers
from safetensors import safe_open

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent.parent / "tools" / "differential"))
import models  # noqa: E402

print(f"# tests/golden/hf/stored.py, transformers {transformers.__version__}")
for name, (model, config, settings) in models.HF.items():
    if name.endswith(models.EAGER):
        continue  # the same weights
    module = getattr(transformers, model)(getattr(transformers, config)(**settings))
    with tempfile.TemporaryDirectory() as folder:
        module.save_pretrained(folder)
        with safe_open(f"{folder}/model.safetensors", "pt") as file:
            stored = {key: file.get_slice(key).get_shape() for key in file.keys()}
    if stored.keys() <= module.state_dict().keys():
        continue
    print("=", name)
    for key, shape in stored.items():
        print(key, ",".join(map(str, shape)))
