"""data_parallel.py -- DataParallel on the cards that there are; figures against arithmetic."""
import torch
from torch import nn

cuda = torch.cuda
CARDS, BATCH = cuda.device_count(), 30


def held(index):
    return cuda.memory_stats(index).get("requested_bytes.all.current", 0)


class Block(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.one, self.two = (nn.Conv2d(n, n, 3, padding=1, bias=False) for _ in range(2))
        self.first, self.second = nn.BatchNorm2d(n), nn.BatchNorm2d(n)

    def forward(self, x):
        return torch.relu(x + self.second(self.two(torch.relu(self.first(self.one(x))))))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.blocks = nn.Conv2d(3, 64, 7, 2, 3), nn.Sequential(Block(64), Block(64))
        self.head = nn.Linear(64, 1000)
        self.seen = {}

    def forward(self, x):
        index = x.device.index
        self.seen[index] = len(x), held(index), {p.device.index for p in self.parameters()}
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


net = Net()
own = sum(p.nbytes for p in net.parameters())
kept = sum(b.nbytes for b in net.buffers())
model = nn.DataParallel(net.cuda())
before = held(0)
assert before == own + kept
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(3):
    x = torch.randn(BATCH, 3, 64, 64, device="cuda")
    y = model(x)
    # the outputs are gathered on the first card, the batch is divided among all of them
    assert y.device.index == 0 and y.shape == (BATCH, 1000)
    assert sorted(net.seen) == list(range(CARDS))
    assert sum(n for n, _, _ in net.seen.values()) == BATCH
    for index, (n, there, devices) in net.seen.items():
        # a replica is the parameters and buffers once more, and its share of the batch
        if index and step == 0:
            assert there == own + kept + n * x[0].nbytes, (there, own, kept)
    y.sum().backward()
    assert all(p.grad.device.index == 0 for p in net.parameters())
    optimizer.step()
    optimizer.zero_grad()

# broadcasts, sums, scatters and gathers by themselves
comm = nn.parallel.comm
cards = list(range(CARDS))
t = torch.ones(8, 3, device="cuda")
assert [c.device.index for c in comm.broadcast(t, cards)] == cards
assert [c.shape for c in comm.scatter(t.cpu(), cards, dim=0)] == [(8 // CARDS, 3)] * CARDS
parts = comm.scatter(t, cards, [5, 3] if CARDS == 2 else [8])
assert comm.gather(parts).device.index == 0 and comm.gather(parts).shape == (8, 3)
assert comm.gather(parts, destination=CARDS - 1).device.index == CARDS - 1
assert comm.gather(parts, out=torch.empty(8, 3)).device.type == "cpu"
assert comm.reduce_add(comm.broadcast(t, cards), 0).device.index == 0
mixed = [torch.zeros(n, dtype=d, device="cuda") for n, d in
         ((4, torch.float), (2, torch.long), (9, torch.float))]
for copies in comm.broadcast_coalesced(mixed, cards, 16):
    assert [(c.shape, c.dtype) for c in copies] == [(c.shape, c.dtype) for c in mixed]
out = [torch.empty(8 // CARDS, 3, device=f"cuda:{i}") for i in cards]
assert comm.scatter(t, out=out)[-1] is out[-1] and comm.broadcast(out[0], out=out)[0] is out[0]
print("fine", own, kept)
