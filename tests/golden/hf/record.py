#!/usr/bin/env python3
"""Records the configurations of the models of transformers that tools/differential exports.

    python3 tests/golden/hf/record.py

needs transformers and writes NAME.json next to itself for each of them: the config.json that save_pretrained
writes next to the weights of that model.  test_hf.c builds the model from it and compares, event by event, with
tests/golden/differential/NAME.pt2, which was exported from the same configuration.
"""
import pathlib
import sys

import transformers

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent.parent / "tools" / "differential"))
import models  # noqa: E402

for name, (model, config, settings) in models.HF.items():
    if name.endswith(models.EAGER):
        continue  # from the same configuration
    kept = {} if name in ("clip", *models.PICTURES) else {"use_cache": False}
    config = getattr(transformers, config)(**{**kept, **settings})
    config.architectures = [model]
    (HERE / f"{name}.json").write_text(config.to_json_string())
