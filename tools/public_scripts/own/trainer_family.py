"""trainer_family.py llama|bert|t5 -- the Trainer of transformers on a small model of that family, from a config."""
import sys
import tempfile

import torch
import transformers as hf

LENGTH, BATCH, VOCABULARY = 128, 4, 2000
SIZES = {"vocab_size": VOCABULARY, "hidden_size": 256, "num_hidden_layers": 3, "num_attention_heads": 4}
MODELS = {
    "llama": lambda: hf.LlamaForCausalLM(hf.LlamaConfig(intermediate_size=688, **SIZES)),
    "bert": lambda: hf.BertForMaskedLM(hf.BertConfig(intermediate_size=1024, **SIZES)),
    "t5": lambda: hf.T5ForConditionalGeneration(hf.T5Config(
        vocab_size=VOCABULARY, d_model=256, d_ff=1024, num_layers=3, num_heads=4, decoder_start_token_id=0)),
}


class Text(torch.utils.data.Dataset):
    def __len__(self):
        return BATCH * 4

    def __getitem__(self, i):
        ids = torch.randint(2, VOCABULARY, (LENGTH,))
        return {"input_ids": ids, "labels": ids, "attention_mask": torch.ones_like(ids)}


with tempfile.TemporaryDirectory() as folder:
    hf.Trainer(model=MODELS[sys.argv[1]](), train_dataset=Text(), eval_dataset=Text(), args=hf.TrainingArguments(
        output_dir=folder, per_device_train_batch_size=BATCH, per_device_eval_batch_size=BATCH, max_steps=3, fp16=True,
        eval_strategy="steps", eval_steps=2, report_to=[], save_strategy="no", logging_steps=1)).train()
