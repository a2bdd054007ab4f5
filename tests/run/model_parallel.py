"""model_parallel.py -- layers on two cards, by hand; figures against arithmetic."""
import torch
from torch import nn

cuda = torch.cuda
N, BATCH, LAYERS = 512, 64, 4


def held(index):
    return cuda.memory_stats(index)["requested_bytes.all.current"]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lower = nn.Sequential(*(nn.Linear(N, N, bias=False) for _ in range(LAYERS))).to("cuda:0")
        self.upper = nn.Sequential(*(nn.Linear(N, N, bias=False) for _ in range(3 * LAYERS))).to("cuda:1")

    def forward(self, x):
        return self.upper(self.lower(x).to("cuda:1"))


net = Net()
layer, activation = 4 * N * N, 4 * BATCH * N
assert (held(0), held(1)) == (LAYERS * layer, 3 * LAYERS * layer)
optimizer = torch.optim.Adam(net.parameters(), foreach=False)
for step in range(2):
    before = held(0), held(1)
    y = net(torch.randn(BATCH, N, device="cuda:0"))
    if step:  # the workspaces of cuBLAS are there
        # each Linear keeps its input; the copy is the input of the first on the second card
        assert held(0) - before[0] == LAYERS * activation, held(0) - before[0]
        assert held(1) - before[1] == (3 * LAYERS + 1) * activation
    y.sum().backward()
    optimizer.step()
    del y
    optimizer.zero_grad()
workspaces = [held(i) - 3 * n * layer for i, n in ((0, LAYERS), (1, 3 * LAYERS))]
assert workspaces[0] == workspaces[1], workspaces
print("fine")
