"""Values that follow from uploads, fills and indices are as on the CPU, and cost no memory."""
import torch
import torch.nn.functional as F


def both(f):
    """f on the card answers as f on the CPU."""
    card, cpu = f("cuda"), f("cpu")
    assert card.shape == cpu.shape and card.dtype == cpu.dtype, (card.shape, cpu.shape)
    assert card.tolist() == cpu.tolist(), (card, cpu)


def places(d):
    return torch.tensor([[0, 0, 1, 1], [0, 1, 2, 2]], device=d)


def written(d):
    x = torch.zeros(3, 4, dtype=torch.long, device=d)
    x[:, 1] = 5
    x[0] += 1
    x.view(-1)[2:5].mul_(3)
    x[x == 5] = 7
    x[1, 2:] = torch.tensor([8, 9])
    return x.scatter_(1, torch.arange(3, device=d)[:, None], 4)


def copied(d):
    a = torch.tensor([1.5, 2.5]).to(d, torch.bfloat16)
    b, c = a.clone(), a.float()
    a.add_(1)
    return torch.stack([a.float(), b.float(), c])


def counted(d):
    x = torch.zeros(1, device=d)
    for _ in range(300):
        x += 1
    return x


def lists(d):
    steps = [torch.zeros((), device=d) for _ in range(3)]
    torch._foreach_add_(steps, 2)
    return torch.stack(steps)


def lengths(d):
    return torch.tensor([3, 1, 2], device=d)


for f in (
    written, copied, counted, lists,
    lambda d: torch.arange(2, 11, 3, device=d),
    lambda d: F.one_hot(places(d)),
    lambda d: torch.bincount(places(d).flatten()),
    lambda d: places(d).nonzero(),
    lambda d: places(d).masked_select(places(d) > 0),
    lambda d: places(d)[places(d) != 1],
    lambda d: torch.unique(places(d)),
    lambda d: torch.unique_consecutive(places(d), return_counts=True)[1],
    lambda d: places(d).sort(1, descending=True)[0],
    lambda d: lengths(d).argsort(),
    lambda d: lengths(d).topk(2)[0],
    lambda d: torch.repeat_interleave(torch.arange(3, device=d), lengths(d)),
    lambda d: torch.arange(4, device=d)[None] < lengths(d)[:, None],
    lambda d: torch.where(places(d) > 0, places(d), -1).cumsum(1),
    lambda d: places(d).masked_fill(places(d) == 1, 6).max(1)[0],
    lambda d: torch.cat([places(d), written(d)]),
    lambda d: torch.searchsorted(torch.arange(5, device=d), lengths(d)),
    lambda d: torch.zeros(5, device=d).scatter_add(0, lengths(d), torch.ones(3, device=d)),
    lambda d: torch.ones(3000, 700, dtype=torch.long).to(d).all(),  # uniform ones of any size
    lambda d: (torch.zeros(3000, 700, device=d) + 1 == 1).any(),
):
    both(f)

# the tape is the op's own: 4 results of 4 bytes, and nothing for what was read
torch.cuda.reset_peak_memory_stats()
x = torch.ones(2, device="cuda")
before = torch.cuda.memory_stats()["allocation.all.allocated"]
y = ((x + 1) * 3).sum() / 4
assert torch.cuda.memory_stats()["allocation.all.allocated"] - before == 4
assert y.item() == 3 and torch.cuda.memory_stats()["allocation.all.allocated"] - before == 4

# PyG: a node for each index, a graph for each batch number
edges = torch.tensor([[0, 1, 5, 3], [1, 2, 2, 9]], device="cuda")
nodes = int(edges.max()) + 1
out = torch.zeros(nodes, 8, device="cuda").index_add_(0, edges[1], torch.randn(4, 8, device="cuda"))
assert out.shape == (10, 8)
batch = torch.tensor([0, 0, 1, 2, 2], device="cuda")
pooled = torch.zeros(int(batch.max()) + 1, 4, device="cuda")
pooled.scatter_add_(0, batch[:, None].expand(-1, 4), torch.randn(5, 4, device="cuda"))
assert pooled.shape == (3, 4)

# an expert for each token, as all_to_all splits them
splits = torch.bincount(torch.tensor([0, 2, 2, 1], device="cuda"), minlength=4).tolist()
assert [len(part) for part in torch.randn(4, 2, device="cuda").split(splits)] == [1, 1, 2, 0]
print("fine")
