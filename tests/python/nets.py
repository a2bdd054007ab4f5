"""nets.py NAME -- trains a net on the GPU for two steps, as most scripts do.  Run it with `plimsoll run`.

Nets that show what an export of a module has to keep: batch norms, dropout, recurrent ops, tied and frozen
parameters, buffers, nested inputs, and checkpoints of every kind.
"""
import sys

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

BATCH, WORDS, WIDTH = 6, 200, 64
LONG = 1024  # so that activations decide the peak


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.norm2 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)), inplace=True)
        return F.relu(self.norm2(self.conv2(y)) + x, inplace=True)


class Pictures(nn.Module):
    """As a ResNet."""

    def __init__(self, frozen=False):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 7, 2, 3), nn.BatchNorm2d(16), nn.ReLU(inplace=True), nn.MaxPool2d(2))
        self.layers = nn.Sequential(Residual(16), Residual(16))
        self.head = nn.Linear(16, 10)
        if frozen:
            for part in (self.stem, self.layers[0]):
                part.requires_grad_(False)

    def forward(self, x):
        x = self.layers(self.stem(x))
        return self.head(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1))


class Text(nn.Module):
    """A language model with tied embeddings, dropout, a mask in a buffer, and a loss of its own."""

    def __init__(self, tied=True):
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.register_buffer("mask", torch.full((32, 32), float("-inf")).triu(1), persistent=False)
        self.blocks = nn.ModuleList(nn.TransformerEncoderLayer(WIDTH, 4, 128, 0.1, batch_first=True) for _ in range(2))
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        if tied:
            self.head.weight = self.embed.weight

    def forward(self, tokens, labels=None):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, self.mask)
        scores = self.head(x)
        if labels is None:
            return scores
        return {"loss": F.cross_entropy(scores.flatten(0, 1), labels.flatten()), "scores": scores}


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.rnn = nn.LSTM(WIDTH, WIDTH, 2, batch_first=True, dropout=0.2)
        self.head = nn.Linear(WIDTH, 10)

    def forward(self, tokens):
        return self.head(self.rnn(self.embed(tokens))[0][:, -1])


class Nested(nn.Module):
    """Takes a tuple and a dict, and asks a value that only a run knows."""

    def __init__(self):
        super().__init__()
        self.left, self.right, self.head = nn.Linear(64, 64), nn.Linear(32, 64), nn.Linear(64, 10)

    def forward(self, pair, more):
        x = self.left(pair[0]) + self.right(pair[1])
        if (more["weights"] >= 0).all():
            x = x * more["weights"][:, None]
        return self.head(torch.tanh(x))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.wide, self.narrow, self.drop = nn.Linear(WIDTH, 256), nn.Linear(256, WIDTH), nn.Dropout(0.1)

    def forward(self, x, unused=None):
        return x + self.drop(self.narrow(F.gelu(self.wide(x))))


class Checkpointed(nn.Module):
    def __init__(self, how):
        super().__init__()
        self.how = how
        self.first = nn.Linear(WIDTH, WIDTH)
        self.layers = nn.Sequential(*(Block() for _ in range(6)))
        self.head = nn.Linear(WIDTH, 10)

    def forward(self, x):
        return self.head(getattr(self, self.how)(self.first(x)))

    def each(self, x):
        unused = x * 2
        for layer in self.layers:
            x = checkpoint(layer, x, unused, use_reentrant=False)
        return x

    def reentrant(self, x):
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=True)
        return x

    def some(self, x):
        for i, layer in enumerate(self.layers):
            x = checkpoint(layer, x, use_reentrant=False) if i in (1, 4) else layer(x)
        return x

    def pairs(self, x):
        def run(i, x):
            return self.layers[i + 1](self.layers[i](x))
        for i in range(0, 6, 2):
            x = checkpoint(run, i, x, use_reentrant=False)
        return x

    def segments(self, x):
        return checkpoint_sequential(self.layers, 3, x, use_reentrant=False)

    def function(self, x):
        x = self.layers(x)
        return checkpoint(lambda y: torch.sigmoid(torch.exp(y) * y), x, use_reentrant=False)


def words(batch):
    return torch.zeros(batch, 32, dtype=torch.long)


def pictures(batch, frozen=False):
    return Pictures(frozen), (torch.zeros(batch, 3, 64, 64),), {}


def text(batch, tied=True, dtype=torch.float32):
    return Text(tied).to(dtype), (words(batch),), {"labels": words(batch)}


def nested(batch):
    pair = torch.zeros(batch, 64), torch.zeros(batch, 32)
    return Nested(), (pair,), {"more": {"weights": torch.ones(batch)}}


def checkpointed(batch, how):
    return Checkpointed(how), (torch.zeros(batch, LONG, WIDTH),), {}


NETS = {  # of a batch size: the module, its inputs, its keyword inputs
    "pictures": pictures,
    "frozen": lambda batch: pictures(batch, frozen=True),
    "text": text,
    "untied": lambda batch: text(batch, tied=False),
    "half": lambda batch: text(batch, dtype=torch.bfloat16),
    "recurrent": lambda batch: (Recurrent(), (words(batch),), {}),
    "nested": nested,
    **{how: lambda batch, how=how: checkpointed(batch, how)
       for how in ("each", "reentrant", "some", "pairs", "segments", "function")},
}


def on_card(values):
    if torch.is_tensor(values):
        return values.cuda()
    if isinstance(values, dict):
        return {k: on_card(v) for k, v in values.items()}
    return type(values)(map(on_card, values)) if isinstance(values, (tuple, list)) else values


def main(name):
    model, args, kwargs = NETS[name](BATCH)
    model.train().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(2):
        x, more, target = on_card(args), on_card(kwargs), torch.zeros(BATCH, dtype=torch.long)
        if "labels" not in kwargs:
            shape = [BATCH, LONG] if isinstance(model, Checkpointed) else [BATCH]
            target = torch.zeros(shape, dtype=torch.long).cuda()
        optimizer.zero_grad()
        out = model(*x, **more)
        loss = out["loss"] if isinstance(out, dict) else F.cross_entropy(out.flatten(0, -2), target.flatten())
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main(*sys.argv[1:])
