"""A training loop as its users write it: audio_loop.py CONFIG fp32|bf16|autocast ATTENTION CHECKPOINTS BATCH SAMPLES LETTERS, two steps of
AdamW."""
import sys

import torch
import transformers


def main(path, setting, attention, checkpoints, batch, samples, letters):
    config = transformers.AutoConfig.from_pretrained(path)
    dtype = torch.bfloat16 if setting == "bf16" else torch.float32
    model = getattr(transformers, config.architectures[0])._from_config(config, attn_implementation=attention)
    model = model.to("cuda", dtype).train()
    if int(checkpoints):
        model.gradient_checkpointing_enable()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        given = {"input_values": torch.randn(int(batch), int(samples), dtype=dtype).to("cuda"),
                 "labels": torch.randint(1, config.vocab_size, (int(batch), int(letters))).to("cuda")}
        with torch.autocast("cuda", torch.bfloat16, enabled=setting == "autocast"):
            loss = model(**given).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main(*sys.argv[1:])
