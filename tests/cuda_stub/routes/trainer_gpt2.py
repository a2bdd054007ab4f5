"""GPT-2 of transformers, from a small config, with the Trainer: bf16, clipped gradients, an
evaluation."""
import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

LENGTH, BATCH, STEPS = 128, 4, 3


class Text(torch.utils.data.Dataset):
    def __len__(self):
        return BATCH * STEPS

    def __getitem__(self, i):
        ids = torch.randint(2000, (LENGTH,))
        return {"input_ids": ids, "labels": ids}


def main():
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=2000, n_embd=256, n_layer=3, n_head=4,
                                       n_positions=LENGTH))
    with tempfile.TemporaryDirectory() as folder:
        Trainer(model=model, train_dataset=Text(), eval_dataset=Text(), args=TrainingArguments(
            output_dir=folder, per_device_train_batch_size=BATCH, max_steps=STEPS, bf16=True,
            per_device_eval_batch_size=BATCH, eval_strategy="steps", eval_steps=2,
            report_to=[], save_strategy="no", logging_steps=1)).train()
    print(torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated(),
          torch.cuda.max_memory_reserved())


if __name__ == "__main__":
    main()
