"""A graph convolution with index_add, on batches of small graphs."""
# peak: 757768
import torch
from torch import nn
from torch.nn import functional as F


class Layer(nn.Module):
    def __init__(self, size, out):
        super().__init__()
        self.linear = nn.Linear(size, out)

    def forward(self, x, source, target):
        degree = torch.bincount(target, minlength=x.size(0)).clamp(min=1).to(x.dtype)
        messages = self.linear(x)[source] / degree[source].sqrt()[:, None]
        return torch.zeros(x.size(0), messages.size(1), device=x.device).index_add(0, target, messages)


first, second, head = Layer(16, 64).cuda(), Layer(64, 64).cuda(), nn.Linear(64, 4).cuda()
optimizer = torch.optim.Adam([p for m in (first, second, head) for p in m.parameters()])
for step in range(3):
    sizes, edges, offset = [10 + (i + step) % 7 for i in range(32)], [], 0
    for n in sizes:  # rings
        edges.append(torch.stack([torch.arange(n), (torch.arange(n) + 1) % n]) + offset)
        offset += n
    source, target = torch.cat(edges, 1).cuda()
    graph = torch.repeat_interleave(torch.arange(32), torch.tensor(sizes)).cuda()
    x, y = torch.randn(offset, 16).cuda(), torch.randint(4, (32,)).cuda()
    x = F.relu(second(F.relu(first(x, source, target)), source, target))
    pooled = torch.zeros(int(graph.max()) + 1, 64, device="cuda").index_add(0, graph, x)
    loss = F.cross_entropy(head(pooled), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"{offset} nodes, loss {loss.item():.3f}")
