"""The nets whose predicted and dry-run tapes are compared, their input and loss."""
import torch
from torch import nn
from torch.nn import functional as F


class CNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.conv2, self.bn2 = nn.Conv2d(16, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32)
        self.drop, self.fc = nn.Dropout(0.1), nn.Linear(32 * 8 * 8, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 2)
        x = F.max_pool2d(F.relu(self.bn2(self.conv2(x))), 2)
        x = self.drop(x.flatten(1))
        return self.fc(x)


class GPT(nn.Module):
    def __init__(self, width=64, heads=4, vocabulary=500):
        super().__init__()
        self.heads = heads
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(32, width)
        self.ln1, self.ln2, self.ln3 = (nn.LayerNorm(width) for _ in range(3))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids):
        b, t = ids.shape
        x = self.tokens(ids) + self.places(torch.arange(t, device=ids.device))
        q, k, v = (h.view(b, t, self.heads, -1).transpose(1, 2)
                   for h in self.qkv(self.ln1(x)).chunk(3, dim=-1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, -1))
        x = x + self.down(F.gelu(self.up(self.ln2(x))))
        return self.head(self.ln3(x)).flatten(0, 1)


class Factors(nn.Module):
    """Sparse gradients only, of a table looked up once and one twice."""

    def __init__(self):
        super().__init__()
        self.users, self.items = nn.Embedding(1000, 64, sparse=True), nn.Embedding(300, 64, sparse=True)

    def forward(self, ids):
        x = self.users(ids) * self.items(ids)
        x = x * self.items(ids)
        return x.sum(-1)


def mlp():
    return nn.Sequential(
        nn.Linear(3, 300), nn.ReLU(), nn.Linear(300, 300), nn.ReLU(), nn.Linear(300, 400),
        nn.ReLU(), nn.Linear(400, 300), nn.ReLU(), nn.Linear(300, 100))


# name: net, input, target, loss as --loss names it
NETS = {
    "mlp": (mlp, lambda: torch.randn(10, 3), lambda: torch.randn(10, 100), "mse"),
    "cnn": (CNN, lambda: torch.randn(8, 3, 32, 32), lambda: torch.randint(10, (8,)),
            "cross_entropy"),
    "gpt": (GPT, lambda: torch.randint(500, (4, 32)), lambda: torch.randint(500, (128,)),
            "cross_entropy"),
    "factors": (Factors, lambda: torch.randint(300, (64, 5)), lambda: torch.randn(64, 5), "mse"),
}
OPTIMIZERS = {"sgd": lambda p: torch.optim.SGD(p, lr=0.1),
              "adam": lambda p: torch.optim.Adam(p),
              "adagrad": lambda p: torch.optim.Adagrad(p),
              "sparse_adam": lambda p: torch.optim.SparseAdam(p)}
