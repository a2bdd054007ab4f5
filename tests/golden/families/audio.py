#!/usr/bin/env python3
"""Compares `plimsoll estimate` of models of sound with training steps of the same classes (audio_loop.py), to the byte.

    tests/golden/runs.py says how to call it.

A row of audio.txt is a model, fp32, bf16 or autocast, attention, checkpoints as 0 or 1, batch, samples, letters of the labels, and the
peak of requested bytes. Every layer runs (layerdrop is 0); SpecAugment draws how much it masks, and no peak depends on it.
"""
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent

sys.path.insert(0, str(HERE.parent))
import runs  # noqa: E402  what such scripts have in common

SMALL = {"hidden_size": 256, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 1024, "layerdrop": 0.0}
LARGE = {**SMALL, "conv_bias": True, "feat_extract_norm": "layer", "do_stable_layer_norm": True, "feat_proj_dropout": 0.1}
MODELS = {  # type, class, keys
    "wav2vec2": ("wav2vec2", "Wav2Vec2ForCTC", {**SMALL, "feat_proj_dropout": 0.1}),
    "wav2vec2-large": ("wav2vec2", "Wav2Vec2ForCTC", {**LARGE, "ctc_loss_reduction": "mean", "ctc_zero_infinity": True}),
    "wav2vec2-mms": ("wav2vec2", "Wav2Vec2ForCTC", {**LARGE, "adapter_attn_dim": 16, "mask_feature_prob": 0.1, "vocab_size": 154}),
}
SETTINGS = [("fp32", "sdpa", 0), ("bf16", "sdpa", 0), ("autocast", "sdpa", 0), ("fp32", "sdpa", 1), ("bf16", "sdpa", 1), ("bf16", "eager", 0)]
WORDS = {"fp32": ["--dtype", "fp32"], "bf16": ["--dtype", "bf16"], "autocast": ["--dtype", "fp32", "--autocast", "bf16"]}
SIZES = (4, 48000, 40)


def cases():
    return [(name, *setting, *SIZES) for name in MODELS for setting in SETTINGS]


def predicted(program, folder, name, dtype, attention, checkpoints, batch, samples, letters):
    return runs.estimate(program, folder / name, "--batch", batch, "--audio", samples, "--seq", letters, *WORDS[dtype], "--attention",
                         attention, "--optimizer", "adamw", "--checkpoint", "blocks" if checkpoints else "none")


def measured(program, folder, name, *rest):
    return runs.run(program, HERE / "audio_loop.py", folder / name, *rest)


if __name__ == "__main__":
    sys.exit(runs.Runs(HERE / "audio.txt", MODELS, cases(), predicted, measured,
                       "model, precision, attention, checkpoints, batch, samples, letters, peak of requested bytes").main(__doc__))
