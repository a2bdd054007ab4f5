"""Fine-tuning a BERT of transformers, from its config, with the Trainer."""
import argparse
import tempfile

import torch
from transformers import (BertConfig, BertForSequenceClassification, Trainer, TrainingArguments)

args = argparse.ArgumentParser()
args.add_argument("--batch", type=int, default=16)
args.add_argument("--length", type=int, default=128)
args.add_argument("--steps", type=int, default=2)
args = args.parse_args()


class Sentences(torch.utils.data.Dataset):
    def __len__(self):
        return args.batch * args.steps

    def __getitem__(self, i):
        return {"input_ids": torch.randint(30522, (args.length,)),
                "attention_mask": torch.ones(args.length, dtype=torch.long), "labels": i % 2}


model = BertForSequenceClassification(BertConfig())
with tempfile.TemporaryDirectory() as folder:
    Trainer(model=model, train_dataset=Sentences(), args=TrainingArguments(
        output_dir=folder, per_device_train_batch_size=args.batch, max_steps=args.steps,
        report_to=[], save_strategy="no", logging_steps=1)).train()
print(f"{torch.cuda.max_memory_allocated() >> 20} MiB")
