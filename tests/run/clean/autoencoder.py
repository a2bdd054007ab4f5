"""A variational autoencoder: random tensors in the graph, samples at the end of an epoch."""
import torch
from torch import nn
from torch.nn import functional as F


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(784, 128)
        self.mean, self.log_var = nn.Linear(128, 8), nn.Linear(128, 8)
        self.outer, self.out = nn.Linear(8, 128), nn.Linear(128, 784)

    def decode(self, z):
        return torch.sigmoid(self.out(F.relu(self.outer(z))))

    def forward(self, x):
        h = F.relu(self.inner(x.view(-1, 784)))
        mean, log_var = self.mean(h), self.log_var(h)
        z = mean + torch.randn_like(mean) * torch.exp(0.5 * log_var)
        return self.decode(z), mean, log_var


model = VAE().cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
samples = None
for epoch in range(3):
    total = 0
    for _ in range(4):
        data = torch.rand(32, 1, 28, 28).cuda()
        optimizer.zero_grad()
        again, mean, log_var = model(data)
        loss = F.binary_cross_entropy(again, data.view(-1, 784), reduction="sum") \
            - 0.5 * torch.sum(1 + log_var - mean.pow(2) - log_var.exp())
        loss.backward()
        total += loss.item()
        optimizer.step()
    with torch.no_grad():
        samples = model.decode(torch.randn(64, 8, device="cuda")).cpu()
