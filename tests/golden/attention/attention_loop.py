"""What people run: attention_loop.py CONFIG KIND BATCH TOKENS HOW, with flash_attention_2, by the package in stub.

KIND is train, checkpoints: two steps of AdamW; infer: two forward passes.  HOW: equal, autocast, packed, padded.
"""
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "stub"))

import torch  # noqa: E402
import transformers  # noqa: E402


def build(path):
    config = transformers.AutoConfig.from_pretrained(path)
    dtype = getattr(torch, json.loads((pathlib.Path(path) / "config.json").read_text())["dtype"])
    model = getattr(transformers, config.architectures[0])._from_config(config, dtype=dtype, attn_implementation="flash_attention_2")
    for parameter in model.parameters():  # as loading does with those that a class makes in fp32
        parameter.data = parameter.data.to(dtype)
    return config, model.to("cuda")


def uneven(how, batch, tokens):
    """Two sequences in a row; or tokens of which one is padding."""
    if how == "packed":
        return {"position_ids": (torch.arange(tokens, device="cuda") % (tokens // 2)).repeat(batch, 1)}
    if how == "padded":
        mask = torch.ones(batch, tokens, dtype=torch.int64, device="cuda")
        mask[0, 0] = 0
        return {"attention_mask": mask}
    return {}


def main(path, kind, batch, tokens, how):
    config, model = build(path)
    batch, tokens, infer = int(batch), int(tokens), kind == "infer"
    model.train(not infer)
    if kind == "checkpoints":
        model.gradient_checkpointing_enable({"use_reentrant": False})
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        ids = torch.randint(8, config.vocab_size, (batch, tokens), device="cuda")
        given = uneven(how, batch, tokens)
        labels = ids.clone() if config.is_encoder_decoder else ids
        with torch.set_grad_enabled(not infer), torch.autocast("cuda", torch.bfloat16, enabled=how == "autocast"):
            out = model(input_ids=ids, **given) if infer else model(input_ids=ids, labels=labels, **given).loss
        if not infer:
            out.backward()
            optimizer.step()
            optimizer.zero_grad()


if __name__ == "__main__":
    main(*sys.argv[1:])
