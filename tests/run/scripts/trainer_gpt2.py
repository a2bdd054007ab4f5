"""Trainer on a small GPT-2."""
# peak: 23339660
# needs: accelerate transformers
import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_embd=128, n_head=4, vocab_size=2000))
rows = [{"input_ids": torch.arange(64), "labels": torch.arange(64)} for _ in range(16)]
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(folder, per_device_train_batch_size=4, num_train_epochs=1,
                                  report_to=[], save_strategy="no", eval_strategy="epoch",
                                  disable_tqdm=True)
    Trainer(model=model, args=arguments, train_dataset=rows, eval_dataset=rows[:8]).train()
