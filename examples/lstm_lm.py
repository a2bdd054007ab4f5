"""A language model of two LSTM layers, with dropout and clipped gradients."""
import argparse

import torch
from torch import nn

args = argparse.ArgumentParser()
args.add_argument("--batch", type=int, default=64)
args.add_argument("--length", type=int, default=128)
args.add_argument("--steps", type=int, default=2)
args = args.parse_args()

VOCABULARY, WIDTH = 33278, 650


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.rnn = nn.LSTM(WIDTH, WIDTH, num_layers=2, dropout=0.5, batch_first=True)
        self.dropout = nn.Dropout(0.5)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, ids, state=None):
        x, state = self.rnn(self.dropout(self.embedding(ids)), state)
        return self.head(self.dropout(x)), state


model = Model().to("cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=20)
criterion = nn.CrossEntropyLoss()
state = None
for step in range(args.steps):
    data = torch.randint(VOCABULARY, (args.batch, args.length + 1), device="cuda")
    optimizer.zero_grad()
    logits, state = model(data[:, :-1], state)
    state = tuple(s.detach() for s in state)
    loss = criterion(logits.reshape(-1, VOCABULARY), data[:, 1:].reshape(-1))
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.25)
    optimizer.step()
    print(f"step {step}: {torch.cuda.max_memory_allocated() >> 20} MiB")
