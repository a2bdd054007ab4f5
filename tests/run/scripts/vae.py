"""PyTorch's VAE example."""
# peak: 13693412
import torch
from torch import nn
from torch.nn import functional as F

encode, decode = nn.Linear(784, 400).cuda(), nn.Sequential(
    nn.Linear(20, 400), nn.ReLU(), nn.Linear(400, 784), nn.Sigmoid()).cuda()
mean, spread = nn.Linear(400, 20).cuda(), nn.Linear(400, 20).cuda()
optimizer = torch.optim.Adam([p for m in (encode, decode, mean, spread) for p in m.parameters()])
for epoch in range(2):
    for _ in range(3):
        x = torch.rand(128, 1, 28, 28).cuda().view(-1, 784)
        optimizer.zero_grad()
        h = F.relu(encode(x))
        mu, logvar = mean(h), spread(h)
        z = mu + torch.randn_like(mu) * torch.exp(0.5 * logvar)
        loss = F.binary_cross_entropy(decode(z), x, reduction="sum") - 0.5 * torch.sum(
            1 + logvar - mu.pow(2) - logvar.exp())
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        sample = decode(torch.randn(64, 20).cuda()).cpu()
    print(f"epoch {epoch}: loss {loss.item() / 128:.2f}, {tuple(sample.shape)}")
