"""A small GPT-2 under transformers' Trainer, with the callback."""
import json
import sys
import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from plimsoll.callbacks import TrainerMemory


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, i):
        return {"input_ids": torch.arange(64), "labels": torch.arange(64)}


lines = []
callback = TrainerMemory(lines.append)
config = GPT2Config(n_layer=2, n_embd=128, n_head=4, vocab_size=1000, n_positions=128, bos_token_id=0, eos_token_id=0)
with tempfile.TemporaryDirectory() as folder:
    args = TrainingArguments(folder, per_device_train_batch_size=16, max_steps=3, report_to=[], save_strategy="no",
                             logging_strategy="no", disable_tqdm=True)
    Trainer(GPT2LMHeadModel(config), args, train_dataset=Data(), callbacks=[callback]).train()
monitor = callback.monitor
print(json.dumps({"lines": lines, "why": monitor.why, "measured": monitor.measured,
                  "predicted": monitor.prediction and monitor.prediction.to_dict()["memory"]}), file=sys.stderr)
