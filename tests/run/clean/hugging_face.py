"""The Trainer of transformers on a small GPT-2."""
# needs: accelerate transformers
import os
import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

os.environ["HF_HUB_OFFLINE"] = "1"
model = GPT2LMHeadModel(GPT2Config(vocab_size=128, n_positions=32, n_embd=32, n_layer=2, n_head=2))
data = [{"input_ids": ids, "labels": ids} for ids in torch.randint(128, (40, 16))]
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(folder, per_device_train_batch_size=4, max_steps=10, report_to=[],
                                  logging_steps=2, save_strategy="no", disable_tqdm=True,
                                  gradient_accumulation_steps=1, dataloader_pin_memory=False)
    Trainer(model=model, args=arguments, train_dataset=data).train()
