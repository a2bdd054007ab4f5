import torch
from torch import nn


def detach(state):
    return tuple(s.detach() for s in state)


class Language(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(1000, 64)
        self.lstm = nn.LSTM(64, 64, num_layers=2, batch_first=True, dropout=0.2)
        self.head = nn.Linear(64, 1000)

    def forward(self, x, state):
        x, state = self.lstm(self.embedding(x), state)
        return self.head(x), state


model = Language().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
state = (torch.zeros(2, 8, 64, device="cuda"), torch.zeros(2, 8, 64, device="cuda"))
for step in range(10):
    x = torch.randint(0, 1000, (8, 16), device="cuda")
    state = detach(state)
    output, state = model(x, state)
    loss = nn.functional.cross_entropy(output.reshape(-1, 1000), x.reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.25)
    optimizer.step()
