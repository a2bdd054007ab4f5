"""The model of examples/bert_trainer.py, called with labels as the Trainer calls it, exported to a file."""
import sys

import torch
from transformers import BertConfig, BertForSequenceClassification

BATCH, LENGTH = 16, 128


class Labelled(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask, labels):
        out = self.model(input_ids=input_ids, attention_mask=attention_mask, labels=labels)
        return out.loss, out.logits


with torch.device("meta"):
    model = Labelled(BertForSequenceClassification(BertConfig())).train()
    sentences = torch.ones(BATCH, LENGTH, dtype=torch.long)
    inputs = (sentences, sentences, torch.zeros(BATCH, dtype=torch.long))
torch.export.save(torch.export.export(model, inputs, strict=False), sys.argv[1])
