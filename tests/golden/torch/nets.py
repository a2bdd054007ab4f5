"""The nets of the differential check: small, one family of ops each.

A net is written as its author would write it, with one habit: a name is bound again (x = op(x)) rather than a new one
invented, so that what Python holds is what the data flow says. What PyTorch does when locals linger until a function
returns is seen in the whole models at the end.

NETS: name -> (make(), inputs, loss) or (..., optimizer). Inputs are tensors; the loss is one of LOSSES, the optimizer
one that train() of ../cuda/record.py knows (tests/golden/optim has the others).
"""
import functools

import torch
import torch.nn.functional as F
from torch import nn

B = 4


def f(*size):
    return torch.rand(*size) + 0.5


def ids(high, *size):
    return torch.randint(high, size)


class Fn(nn.Module):
    """A net that is one function over parameters a, b, c ... of given sizes."""

    def __init__(self, fn, *sizes):
        super().__init__()
        self.fn = fn
        for name, size in zip("abcdefgh", sizes):
            setattr(self, name, nn.Parameter(torch.rand(*size) + 0.5))

    def forward(self, *x):
        return self.fn(self, *x)


# ---- convolution ---------------------------------------------------------------------------------------------------


def conv2d():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2, padding=1, groups=4, bias=False),
        nn.ReLU(inplace=True), nn.Conv2d(16, 16, 3, padding=1, groups=16), nn.Conv2d(16, 16, 3, padding=2, dilation=2),
        nn.ReLU(inplace=True), nn.Conv2d(16, 8, 1), nn.Conv2d(8, 8, 5, padding="same"), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10))


def conv_transpose():
    return nn.Sequential(
        nn.Conv2d(3, 8, 4, stride=2, padding=1), nn.ReLU(), nn.ConvTranspose2d(8, 8, 4, stride=2, padding=1),
        nn.ReLU(inplace=True), nn.ConvTranspose2d(8, 4, 3, stride=2, padding=1, output_padding=1, groups=2, bias=False), nn.Tanh())


def conv1d():
    return nn.Sequential(nn.Conv1d(3, 8, 3, padding=1), nn.ReLU(), nn.ConvTranspose1d(8, 4, 2, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 32, 10))


def conv3d():
    return nn.Sequential(nn.Conv3d(2, 4, 3, padding=1), nn.ReLU(), nn.ConvTranspose3d(4, 2, 2, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(2 * 8 * 8 * 8, 10))


# ---- matrix products -------------------------------------------------------------------------------------------------


def linear():
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 32, bias=False), nn.ReLU(), nn.Linear(32, 10))


def linear3(s, x):  # [B, T, 8] contiguous, then not
    x = F.linear(x, s.a, s.b)
    x = F.linear(x.transpose(1, 2), s.c, s.d)
    x = F.linear(x, s.e)
    return x


def products(s, x):  # [B, 6, 8]
    x = torch.matmul(x, s.a)
    x = torch.matmul(s.b, x)
    x = torch.bmm(x, x.transpose(1, 2))
    x = torch.matmul(x, s.c)
    x = torch.baddbmm(s.d, x, x)
    x = x.flatten(1)
    x = torch.mm(x, s.e)
    x = torch.addmm(s.f, x, s.g)
    return torch.matmul(x, s.h)


def heads(s, x):  # q k^T v by hand over 4-d operands, both copied by reshape
    x = F.linear(x, s.a).unflatten(2, (3, 2, 8)).permute(2, 0, 3, 1, 4)
    x = torch.matmul(torch.softmax(torch.matmul(x[0], x[1].transpose(-2, -1)) * 0.35, -1), x[2])
    x = x.transpose(1, 2).reshape(-1, 6, 16)
    return F.linear(x, s.b)


# ---- normalisation ------------------------------------------------------------------------------------------------------


def batch_norm():
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8),
                         nn.Flatten(), nn.Linear(8 * 64, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 10))


def layer_norm():
    return nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 16), nn.LayerNorm([6, 16]), nn.Linear(16, 8), nn.LayerNorm(8, elementwise_affine=False), nn.Linear(8, 8))


def group_norm():
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.InstanceNorm2d(8, affine=True), nn.ReLU(),
                         nn.Conv2d(8, 4, 1), nn.InstanceNorm2d(4))


# ---- activations ---------------------------------------------------------------------------------------------------------


def activations(inplace):
    acts = [nn.ReLU(inplace), nn.ReLU6(inplace), nn.Hardtanh(-2, 2, inplace), nn.LeakyReLU(0.1, inplace), nn.ELU(1.0, inplace), nn.SELU(inplace), nn.CELU(1.0, inplace),
            nn.SiLU(inplace), nn.Mish(inplace), nn.Hardswish(inplace), nn.Hardsigmoid(inplace), nn.Threshold(0.1, 0.2, inplace)]
    if not inplace:
        acts += [nn.GELU(), nn.GELU(approximate="tanh"), nn.Sigmoid(), nn.Tanh(), nn.Softplus(), nn.Softshrink(), nn.Hardshrink(), nn.LogSigmoid(), nn.PReLU(16), nn.PReLU()]
    layers = [nn.Linear(16, 16)]
    for a in acts:
        layers += [a, nn.Linear(16, 16)] if inplace else [a]
    if not inplace:
        layers += [nn.Linear(16, 16), nn.GLU(), nn.Linear(8, 8)]
    return nn.Sequential(*layers)


def inplace_functions(s, x):
    x = F.linear(x, s.a)
    x.sigmoid_()
    x = F.linear(x, s.b)
    x.tanh_()
    x = F.linear(x, s.c)
    x.add_(1.5).mul_(2.0)
    x.mul_(s.d)
    x.add_(s.d).sub_(0.5).div_(4.0)
    return x


def inplace_views(s, x):  # writing into a view rewrites the history of its base
    x = F.linear(x, s.a, s.b)  # 3-d: itself a view
    x = F.relu(x, inplace=True)
    x = F.linear(x, s.a)
    x = x.flatten(1)
    x.mul_(s.c)
    x = F.linear(x, s.d)
    x[:, :3].mul_(s.e)
    x = F.silu(x, inplace=True)
    return x


# ---- pools -----------------------------------------------------------------------------------------------------------------


def pools():
    return nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.MaxPool2d(2), nn.Conv2d(4, 4, 3, padding=1), nn.AvgPool2d(3, stride=1, padding=1), nn.Conv2d(4, 4, 3, padding=1),
                         nn.AdaptiveAvgPool2d(4), nn.Conv2d(4, 4, 3, padding=1), nn.AdaptiveMaxPool2d(2), nn.Conv2d(4, 4, 1), nn.AdaptiveAvgPool2d((1, 1)), nn.Flatten(), nn.Linear(4, 10))


def pools1d():
    return nn.Sequential(nn.Conv1d(3, 4, 3, padding=1), nn.MaxPool1d(2), nn.Conv1d(4, 4, 1), nn.AvgPool1d(2), nn.Conv1d(4, 4, 1), nn.AdaptiveAvgPool1d(2), nn.Conv1d(4, 4, 1),
                         nn.AdaptiveMaxPool1d(1), nn.Flatten(), nn.Linear(4, 4))


def pools3d():
    return nn.Sequential(nn.Conv3d(2, 4, 3, padding=1), nn.MaxPool3d(2), nn.Conv3d(4, 4, 1), nn.AvgPool3d(2), nn.Conv3d(4, 4, 1), nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(4, 4))


# ---- dropout, softmax ----------------------------------------------------------------------------------------------------------


def dropout():
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.Dropout2d(0.5), nn.Conv2d(8, 8, 3, padding=1), nn.Dropout(0.5), nn.Flatten(), nn.Linear(8 * 64, 16), nn.Dropout(0.2),
                         nn.Linear(16, 16), nn.Dropout(0.2, inplace=True), nn.Linear(16, 10), nn.Dropout(0.0))


def softmax(s, x):
    x = torch.softmax(F.linear(x, s.a), 1)
    x = F.log_softmax(F.linear(x, s.b), dim=-1)
    return x


# ---- arithmetic ---------------------------------------------------------------------------------------------------------------


def arithmetic(s, x):  # x and a..c are [B, 8] and [8] and [1]: broadcasting on either side
    x = x * s.a
    x = x + s.b
    x = x - s.a
    x = s.b - x
    x = x / s.a
    x = s.b / x
    x = x * s.c
    x = x * 2.0
    x = x + 1
    x = x - 0.5
    x = 3.0 - x
    x = x / 4.0
    x = (x * x).reciprocal() * 2.0
    x = torch.add(x, s.a, alpha=2)
    return x


def functions(s, x):
    x = x * s.a
    x = x.pow(2)
    x = x.sqrt()
    x = x.exp()
    x = x.log()
    x = x.abs()
    x = x.rsqrt()
    x = x.reciprocal()
    x = x.sin()
    x = x.cos()
    x = -x
    x = x.square()
    x = x.floor()
    x = x * 0.5
    return x


def choices(s, x, y):
    x = x * s.a
    x = x.clamp(0.1, 5.0)
    x = x.clamp(min=0.2)
    x = torch.maximum(x, s.a)
    x = torch.minimum(x, s.a)
    x = torch.where(y > 0.9, x, s.a)
    x = x.masked_fill(y > 1.4, 0.0)
    return x


def reductions(s, x):  # [B, 6, 8]
    x = x * s.a
    x = x - x.mean(1, keepdim=True)
    x = x / (x.var(2, keepdim=True) + 1.0)
    x = x * x.amax(2, keepdim=True)
    x = x + x.std(1, keepdim=True)
    x = x.sum(1)
    x = x * x.max(1, keepdim=True)[0]
    x = x * x.mean()
    x = x * x.sum()
    return x


# ---- joins, views, copies --------------------------------------------------------------------------------------------------------


def joins(s, x):  # [B, 8]
    x = F.linear(x, s.a)
    x = torch.cat(x.split(2, 1)[1:], 1)
    x = F.linear(x, s.b)
    x = torch.cat([x, F.linear(x, s.a)], 1)
    x = torch.stack(x.chunk(2, 1), 1)
    x = torch.stack(x.unbind(1), 2)
    return x


def views(s, x):  # [B, 6, 8]
    x = F.linear(x, s.a)
    x = x.permute(2, 0, 1).permute(1, 2, 0)
    x = x.view(-1, 2, 3, 8).transpose(1, 2).reshape(-1, 6, 8)
    x = F.linear(x, s.a)
    x = x.unsqueeze(1).squeeze(1).transpose(1, 2).contiguous()
    x = x.transpose(1, 2).flatten(1).unflatten(1, (8, 6))
    x = F.linear(x, s.b)
    x = x[:, 1:5] * 2.0
    x = x.narrow(1, 1, 3) * 2.0
    x = x.select(1, 1)
    x = x.unsqueeze(1).expand(-1, 3, -1) * 2.0
    x = x.clone().view_as(x).detach() + x
    return x.reshape(-1, 18)


def copies():
    return nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ZeroPad2d(1), nn.Conv2d(4, 4, 3), nn.ReflectionPad2d(1), nn.Conv2d(4, 4, 3), nn.ReplicationPad2d((1, 2, 1, 2)), nn.Conv2d(4, 4, 3),
                         nn.Upsample(scale_factor=2), nn.Conv2d(4, 4, 3, stride=2, padding=1), nn.Upsample(scale_factor=2, mode="bilinear"), nn.Conv2d(4, 4, 3, padding=1),
                         nn.Upsample(size=(10, 10), mode="bicubic", align_corners=True), nn.Conv2d(4, 4, 3, padding=1), nn.PixelShuffle(2))


def moved(s, x):  # [B, 6, 8]
    x = F.linear(x, s.a)
    x = x.roll(2, 1)
    x = x.flip(1)
    x = x.repeat(1, 2, 1)
    x = F.linear(x, s.a)
    x = x.tril()
    x = x.triu(-2)
    x = F.pad(x, (1, 1))
    return x


# ---- indexing --------------------------------------------------------------------------------------------------------------------


def embedding(s, t):
    x = F.embedding(t, s.a)
    x = F.linear(x, s.b)
    return x


def sparse(s, t, u):
    """Sparse gradients: of a table looked up twice, by indices of 32 bits, of one that is also a linear layer's."""
    x = F.embedding(t, s.a, sparse=True)
    x = x + F.embedding(u, s.a, sparse=True).sum()
    x = x * F.embedding(t.int(), s.b, sparse=True)
    x = x + F.embedding(t, s.c, sparse=True)
    x = F.linear(x, s.c)
    return x


def sparse_tied(s, t):
    """The other order: the sparse gradient comes first."""
    x = F.linear(s.b, s.a).sum()
    x = x * F.embedding(t, s.a, sparse=True)
    return x


def sparse_sum(s, t):
    """What comes into the embedding is one number expanded: no parameter can take that over."""
    return F.embedding(t, s.a, sparse=True)


def bags(s, t, u, w):
    x = F.embedding_bag(t, s.a, mode="mean")
    x = x + F.embedding_bag(t, s.a, mode="max")
    x = x * F.embedding_bag(u.flatten(), s.b, torch.arange(0, 24, 6, device=u.device), mode="sum", per_sample_weights=s.c * w)
    return x


def sparse_bags(s, t, u, w):
    x = F.embedding_bag(t, s.a, mode="mean", sparse=True)
    x = x * F.embedding_bag(u, s.b, mode="sum", per_sample_weights=w, sparse=True)
    return x


def indexing(s, x, t):
    x = F.linear(x, s.a)
    x = x.index_select(1, t)
    x = F.linear(x, s.b)
    return x


def gathering(s, x, t):
    x = F.linear(x, s.a)
    x = x.gather(1, t)
    x = x[:, :, None] * 2.0
    return x


def advanced(s, x, t):
    x = F.linear(x, s.a)
    x = x[:, t]
    x = F.linear(x, s.b)
    x = x[t]
    return x


# ---- the rest of ops.def -----------------------------------------------------------------------------------------------------------


def made(s, x):  # tensors out of nothing, comparisons, casts
    x = x * s.a
    x = x + torch.zeros(8)
    x = x * torch.full_like(x, 2.0)
    x = x + torch.ones_like(x)
    x = x - x.new_zeros(8)
    x = x * (x > 0.5).to(torch.float32)
    x = x.to(torch.float64)
    x = x * 2.0
    x = x.to(torch.float32)
    x = x.clamp_min(0.1)
    x = x.clamp_max(50.0)
    return x


def more_reductions(s, x):  # [B, 6, 8]
    x = x * s.a
    x = x + x.amin((1, 2), keepdim=True)
    x = x * x.min(2, keepdim=True)[0]
    x = x - x.var((1, 2), keepdim=True)
    x = x - x.std((0, 1))
    x = x.gather(1, x.argmax(1, keepdim=True))
    x = x.squeeze(1) + x.mean((0, 1))
    return x


def more_joins(s, x):  # [B, 8]
    x = F.linear(x, s.a)
    x = torch.concat(x.split([1, 2, 5], 1), 1)
    x = x + F.linear(x[:, :1].expand_as(x), s.a)
    x = torch.cat([x, x], 0)
    x = x.view(-1, 2, 2, 2)
    x = F.channel_shuffle(x, 2)
    x = F.relu6(x.flatten(1))
    return x


def scaled_products(p, x):
    y = torch.addmm(p.a, x.flatten(1), p.b, beta=0.5, alpha=2).unflatten(1, (6, 8))
    y = torch.baddbmm(y, x, p.c, alpha=0.5)
    return torch.baddbmm(p.d, y, p.c, beta=3)


def more_products(s, x):  # [B, 6, 8]
    x = torch.matmul(x.transpose(1, 2), s.a)
    x = torch.matmul(s.b, x)
    x = torch.matmul(x.unsqueeze(1), s.c)
    x = torch.matmul(s.d, x)
    x = torch.matmul(x, s.e)
    x = torch.matmul(s.f, x)
    return x


def vectors(s, x):  # [B, 8]
    x = F.linear(x, s.a)
    x = x.sum(0)
    x = F.linear(x, s.a, s.b)
    x = torch.matmul(x, s.a)
    return torch.matmul(x, s.b)


def resizes():
    return nn.Sequential(nn.Conv1d(3, 4, 3, padding=1), nn.Upsample(scale_factor=2), nn.Conv1d(4, 4, 1), nn.Unflatten(1, (2, 2)), nn.Unflatten(3, (4, 8)), nn.Conv3d(2, 2, 1),
                         nn.Upsample(scale_factor=2), nn.Conv3d(2, 2, 1), nn.Upsample(scale_factor=0.5, mode="trilinear"))


def softmaxes(s, x):  # [B, 6, 8]
    x = F.linear(x, s.a)
    x = torch.softmax(x, 1)
    x = F.linear(x, s.a)
    x = torch.log_softmax(x.transpose(1, 2), 2)
    x = torch.softmax(x * 2.0, 0, dtype=torch.float64)
    return x.to(torch.float32)


# ---- who holds what --------------------------------------------------------------------------------------------------------------------


class Shared(nn.Module):
    """One weight in three places: its gradients meet."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(20, 8)
        self.mix = nn.Linear(8, 8)
        self.head = nn.Linear(8, 20, bias=False)
        self.head.weight = self.table.weight

    def forward(self, t):
        x = self.table(t)
        x = self.mix(x)
        x = self.mix(x)
        return self.head(x).flatten(0, 1)


def frozen():
    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(512, 10))
    for p in list(net[0].parameters()) + list(net[1].parameters()) + list(net[5].parameters()) + [net[8].weight]:
        p.requires_grad_(False)
    return net


def channels_last():
    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3, padding=1), nn.AvgPool2d(2), nn.Conv2d(8, 8, 3, padding=1), nn.AdaptiveAvgPool2d(1),
                        nn.Flatten(), nn.Linear(8, 10))
    return net.to(memory_format=torch.channels_last)


# ---- losses ------------------------------------------------------------------------------------------------------------------------


def both_kl(x, y):
    return F.kl_div(x, y, reduction="sum") + F.kl_div(x, y.log(), log_target=True, reduction="sum")


def rms_norm(s, x):
    x = F.rms_norm(x, (8,), s.a)
    x = F.rms_norm(x, (6, 8), s.b)
    x = F.rms_norm(x, (8,))
    return x


def loss_of(fn, before=None):
    def forward(s, x, y):
        x = F.linear(x, s.a)
        if before:
            x = before(x)
        return fn(x, y)

    return lambda: Fn(forward, (10, 10))


def weighted(p, x, y):
    """Class weights with smoothing, and with probabilities as targets."""
    x, w = F.linear(x, p.a), p.b.detach()
    soft = F.cross_entropy(x, x.detach(), weight=w)
    return soft + F.cross_entropy(x, y, weight=w, label_smoothing=0.1) + F.cross_entropy(x, y, weight=w, label_smoothing=0.1, reduction="sum")


def both_l1(x, y):
    return F.l1_loss(x, y) + F.smooth_l1_loss(x, y)


# ---- attention and blocks -------------------------------------------------------------------------------------------------------------


def masked_attention(s, x, m):
    x = F.linear(x, s.a, s.b).unflatten(2, (3, 2, 8)).permute(2, 0, 3, 1, 4)
    x = F.scaled_dot_product_attention(x[0], x[1], x[2], attn_mask=m)
    x = x.transpose(1, 2).reshape(-1, 8, 16)
    return F.linear(x, s.c, s.d)


def experts(p, x):
    """Rows by the matrices of their experts: weights as linear layers have them, and as products have."""
    ends = torch.arange(1, 3, dtype=torch.int32, device=x.device) * (x.shape[0] * 3)
    y = F.grouped_mm(x.flatten(0, 1).bfloat16(), p.a.bfloat16().transpose(1, 2), offs=ends)
    return F.grouped_mm(F.silu(y), p.b.bfloat16(), offs=ends).view(x.shape).float()


def biased_attention(p, x):
    """Masks that are learned, as relative position biases are: rows of 8, and of 6."""
    x = F.linear(x, p.a).unflatten(2, (3, 2, 8)).permute(2, 0, 3, 1, 4)
    y = F.scaled_dot_product_attention(x[0], x[1], x[2], attn_mask=p.b)
    x = x[:, :, :, :6]
    x = F.scaled_dot_product_attention(x[0], x[1], x[2], attn_mask=p.c)
    return torch.cat([y, x], 2).transpose(1, 2).reshape(-1, 14, 16)


def causal_attention(s, x):
    x = F.linear(x, s.a, s.b).unflatten(2, (3, 2, 8)).permute(2, 0, 3, 1, 4)
    x = F.scaled_dot_product_attention(x[0], x[1], x[2], is_causal=True)
    x = x.transpose(1, 2).reshape(-1, 6, 16)
    return F.linear(x, s.c, s.d)


def attention(s, x):  # [B, 6, 16], two heads
    x = F.linear(x, s.a, s.b).unflatten(2, (3, 2, 8)).permute(2, 0, 3, 1, 4)
    x = F.scaled_dot_product_attention(x[0], x[1], x[2])
    x = x.transpose(1, 2).reshape(-1, 6, 16)
    return F.linear(x, s.c, s.d)


class Residual(nn.Module):
    def __init__(self, c, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(c, c, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(c)
        self.conv2 = nn.Conv2d(c, c, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(c)
        self.relu = nn.ReLU(inplace=True)
        self.down = nn.Conv2d(c, c, 1, stride) if stride > 1 else None

    def forward(self, x):
        identity = x
        out = self.conv1(x)
        out = self.bn1(out)
        out = self.relu(out)
        out = self.conv2(out)
        out = self.bn2(out)
        if self.down is not None:
            identity = self.down(x)
        out += identity
        out = self.relu(out)
        return out


class Auxiliary(nn.Module):
    """Two heads that both go into the loss."""

    def __init__(self):
        super().__init__()
        self.body = nn.Linear(16, 16)
        self.side = nn.Linear(16, 10)
        self.main = nn.Linear(16, 10)

    def forward(self, x):
        x = self.body(x)
        side = self.side(x)
        x = F.relu(x)
        return self.main(x), side


def bits(m):
    n = m & m
    n = n ^ m
    n = n.long()
    n = torch.bitwise_and(n, n)
    n = torch.bitwise_xor(n, n)
    n = torch.bitwise_or(n, n)
    return n.float()


def comparisons(s, x, y):  # bool results, and where they are used
    m = (x == y) | (x != y)
    m = torch.logical_or(m, torch.logical_and(x < y, x <= y))
    m = torch.logical_and(m, torch.logical_not(x >= y))
    x = x + bits(m)
    x = x * s.a
    x = torch.where(m, x, x + 1)
    return torch.where(x.argmin(1, keepdim=True) == 0, x, x * 2)


def factories(s, x):
    x = x + torch.ones(8)
    x = x + torch.full((8,), 2.0)
    x = x + torch.rand(8)
    x = x + torch.randn(8)
    x = x * torch.zeros_like(x).fill_(3.0)
    x = x + torch.rand_like(x)
    x = x + torch.randn_like(x)
    x = x + x.new_ones(8)
    x = x + x.new_full((8,), 4.0)
    x = x + x.new_empty(8).zero_()
    x = x + torch.empty(8).copy_(s.b)
    x = x + (x * 2).copy_(s.b)
    x = x + torch.empty_like(x).bernoulli_(0.5)
    x = x * torch.bernoulli(torch.zeros_like(x))
    return x * s.a


aten = torch.ops.aten


def core(s, x):  # as a decomposed export has it
    x = aten.constant_pad_nd.default(x, [1, 1, 1, 1], 0.5)
    x = aten.max_pool2d_with_indices.default(x * s.a, [2, 2], [2, 2])[0]
    x = aten.alias.default(x)
    x = aten._unsafe_view.default(x * 2, [x.shape[0], 75])
    x = aten.addmm.default(s.c, x, aten.t.default(s.b))
    x = x + aten.var.correction(x, [1], correction=1, keepdim=True)
    x = x * aten.std.correction(x, [1], correction=0, keepdim=True)
    x = aten._to_copy.default(x, dtype=torch.float64)
    return aten._to_copy.default(x, dtype=torch.float32)


def both_nll(x, y):
    flat = aten.nll_loss.default(x, y)
    return flat + aten.nll_loss2d.default(x[:, :, None, None] * 1, y[:, None, None])


def ranges(s, x):  # [B, 8]; numbers that a kernel makes up
    x = x + torch.arange(8)
    x = x + torch.arange(1, 9)
    x = x + torch.arange(0.5, 4.5, 0.5)
    x = x + torch.linspace(0, 1, 8)
    x = x + torch.eye(8)[0]
    x = x + torch.eye(4, 8)[1]
    x = x + torch.randint(5, (8,))
    x = x + torch.randint(2, 5, (8,))
    x = x + torch.randint_like(x, 5)
    x = x + torch.randint_like(x, 2, 5)
    x = x + torch.tril_indices(4, 2, 1)[0, 0]
    x = x + torch.triu_indices(3, 4)[0, :8]
    x = x * torch.empty(8).uniform_()
    x = x * torch.empty(8).normal_()
    x = x * aten.scalar_tensor.default(2.0)
    return x * s.a


def turned(s, x):  # [B, 6, 8]
    x = F.linear(x, s.a)
    x = x.swapaxes(1, 2).swapdims(1, 2)
    x = x.movedim(2, 1).moveaxis((0, 1), (1, 0))
    x = aten.numpy_T.default(aten.numpy_T.default(x)).transpose(0, 1)
    x = x.mT.adjoint().mT
    x = x.reshape_as(s.b) + s.b.broadcast_to((4, 6, 8))
    x = x.diagonal(0, 1, 2) * 2.0
    x = F.linear(x, s.c)
    x = x.unfold(1, 4, 2) * 2.0
    x = x.unfold(1, 1, 1).squeeze(3) * 2.0
    return x


def parts(s, x):  # [B, 10]
    x = F.linear(x, s.a)
    x = torch.cat(x.tensor_split(3, 1)[1:], 1)
    x = torch.cat(x.tensor_split((2, 4), 1), 1)
    x = torch.cat(torch.unsafe_split(x, 2, 1), 1)
    x = torch.cat(torch.unsafe_chunk(x, 3, 1), 1)
    x = torch.hstack([x, x])
    x = torch.vstack([x, x[0]])
    return x.type_as(x) * 2.0


def tiled(s, x):  # [B, 6]
    x = F.linear(x, s.a)
    x = x.tile(2)
    x = x.repeat_interleave(2, 1)
    x = F.linear(x, s.b)
    x = x.unflatten(1, (2, 3))
    x = x.rot90(1, (1, 2))
    x = x.rot90(2, (1, 2))
    x = x.flatten(1)
    x = F.linear(x, s.a)
    x = x.slice_scatter(s.c, 1, 1, 3)
    x = x.select_scatter(s.d, 1, 2)
    a, b = torch.meshgrid(x.sum(0), s.e, indexing="xy")
    x = x + a[0] * b[0, 0]
    return x


def columns():
    return nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.Unfold(2, stride=2), nn.Fold((8, 8), 2, stride=2), nn.PixelUnshuffle(2), nn.Conv2d(16, 4, 1))


def more_functions(s, x):
    x = x * s.a
    x = x.exp2()
    x = x.expm1()
    x = x.log2()
    x = x.log10()
    x = x.log1p()
    x = x.tan()
    x = x.sinh()
    x = x.cosh()
    x = x.asin()
    x = x.acos()
    x = x.atan()
    x = x.erf()
    x = x.erfc()
    x = x.ceil()
    x = x.round()
    x = x.trunc()
    x = x.sign()
    return x * 0.5


def pairs(s, x):  # [B, 8]
    x = x * s.a
    x = x.remainder(s.b)
    x = x.remainder(3.0)
    x = x.fmod(s.b)
    x = torch.atan2(x, s.b)
    x = torch.addcmul(x, s.a, s.b, value=0.5)
    x = torch.addcdiv(x, s.a, s.b)
    x = torch.lerp(x, s.a, 0.3)
    x = torch.lerp(x, s.c, s.b)
    x = torch.max(x, s.a)
    x = torch.min(x, s.a)
    x = x.pow(s.b)
    x = torch.pow(2.0, x)
    x = x.diff(dim=1)
    x = F.pad(x, (0, 1))
    return x


def crossed(s, x):  # [B, 3]
    x = F.linear(x, s.a)
    x = torch.linalg.cross(x, s.b)
    return x


def masks(s, x):  # no gradients
    m = torch.logical_xor(x.isnan(), x.isinf())
    m = torch.logical_or(m, x.isfinite())
    m = m.bitwise_not()
    m = m | m.any()
    m = m | m.all()
    m = m | m.any(1, keepdim=True)
    m = m | m.all(1, keepdim=True)
    m = x * m
    m = m + torch.arange(8) // 3
    m = m + torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])
    return m * s.a


def norms(s, x):  # [B, 6, 8]
    x = x * s.a
    x = F.normalize(x, dim=2)
    x = x * torch.linalg.vector_norm(x, dim=(1, 2), keepdim=True)
    x = x * aten.norm.Scalar(x, 2)
    x = x * aten.norm.ScalarOpt_dim(x, 2, [1], True)
    x = x * x.prod()
    x = x - x.logsumexp(2, keepdim=True)
    x = x * torch.var_mean(x, 2, keepdim=True)[0]
    x = x * torch.std_mean(x, (0, 1))[1]
    x = x * torch.cat(aten.var_mean.correction(x, [2], correction=0, keepdim=True), 2).sum()
    x = x * torch.cat(aten.std_mean.correction(x, [2], correction=0, keepdim=True), 2).sum()
    x = x * x.detach().max()
    x = x * x.detach().min()
    return x.logsumexp(1)


def ordered(s, x):  # [B, 8]
    x = x * s.a
    x = x.sort(1)[0]
    x = x.sort(dim=1, stable=True, descending=True)[0]
    x = x * x.detach().argsort(1)
    x = x.topk(6, 1)[0]
    x = x.cumsum(1)
    x = x.cumprod(1)
    x = x * torch.ones(6, dtype=torch.int64).cumsum(0)
    x = x * torch.histc(x.detach(), 6, 0.0, 1.0)
    return x


def solved(s, x):  # [B, 8]
    """Triangular systems: whose matrix is asked for a gradient, transposed, and in neither order."""
    t = x.reshape(-1, 1, 2, 4).transpose(1, 2) * s.a.reshape(2, 4)
    m = torch.matmul(t.transpose(-2, -1), t)
    y = torch.linalg.solve_triangular(m, t.transpose(-2, -1) * 2, upper=False, unitriangular=True)
    z = torch.linalg.solve_triangular(m.transpose(-2, -1), t * 3, upper=True, left=False)
    w = torch.linalg.solve_triangular((m * 2)[..., ::2, ::2], y[..., ::2, :] + 1, upper=False)
    return y.sum((1, 2, 3)) + z.sum((1, 2, 3)) + w.sum((1, 2, 3))


def scattered(s, x, t, i):  # [B, 8], t [B, 3], i [3]
    x = F.linear(x, s.a)
    x = x.scatter(1, t, s.b)
    x = x.scatter(1, t, 0.5)
    x = x.scatter_add(1, t, s.b)
    x = x.take_along_dim(x.detach().argsort(1), 1)
    x = x.index_add(1, i, s.b)
    x = x.index_copy(1, i, s.b)
    x = x.index_fill(1, i, 0.5)
    x = x.index_put((s.t, i), s.c)
    x = x * F.one_hot(i, 8).sum(0)
    return x


class Scattered(Fn):
    def __init__(self):
        super().__init__(scattered, (8, 8), (B, 3), (3,))
        self.register_buffer("t", torch.tensor([0, 1, 2]))


def sampled(s, x):
    x = F.conv2d(x, s.a)
    x = F.grid_sample(x, s.b, align_corners=False)
    x = x * 2.0
    return x


def rotated(p, x):
    """Rotary embedding by complex numbers; lengths and angles that are learned; a real factor of a complex number."""
    turn = torch.polar(torch.ones_like(p.c), p.c.detach())
    z = torch.view_as_complex(x.transpose(1, 2).contiguous().view(-1, 8, 3, 2) * p.a)
    z = z * turn
    z = z * torch.polar(p.c, p.b)
    z = z * p.b
    return torch.view_as_real(z.transpose(1, 2)).flatten(2)


def letters(s, x):  # [B, 6, 8]
    x = torch.einsum("bth,oh->bto", x, s.a)
    x = torch.einsum("bto,bso->bts", x, x)
    x = torch.einsum("bij,jk->bik", x, s.b)
    x = torch.einsum("...ij,...jk", x, x)
    x = torch.einsum("bij,j->bi", x, s.c)
    x = torch.einsum("bi,i->bi", x, s.c)
    x = torch.einsum("bi,ij,j->bj", x, s.b, s.c)
    x = torch.einsum("bi->ib", x)
    return torch.einsum("ib,kl->b", x, s.b)


def other_names(s, x):  # [B, 8]
    x = torch.multiply(x, s.a)
    x = torch.subtract(x, s.b)
    x = torch.divide(x, s.b)
    x = torch.true_divide(x, 2.0)
    x = x.negative()
    x = x.absolute()
    x = x.clip(0.0, 9.0)
    x = x.nan_to_num()
    x = F.linear(x, aten._weight_norm(s.c, s.d))
    x = x.masked_scatter(torch.ones(8) > 0.5, s.b.detach().expand(4, 8))
    x = x + torch.empty(8).exponential_()
    x = x * torch.bucketize(x.detach(), torch.linspace(0, 1, 4))
    x = x.sum(0)
    return torch.outer(x, s.b)


def more_resizes():
    return nn.Sequential(nn.Conv1d(3, 4, 3, padding=1), nn.Upsample(scale_factor=2, mode="linear"), nn.Conv1d(4, 4, 1), nn.Upsample(scale_factor=0.5, mode="nearest-exact"), nn.Conv1d(4, 4, 1),
                         nn.Unflatten(2, (4, 4)), nn.Upsample(scale_factor=2, mode="nearest-exact"), nn.Conv2d(4, 4, 1), Smoothed("bilinear"), nn.Conv2d(4, 4, 1), Smoothed("bicubic"), nn.Conv2d(4, 4, 1),
                         nn.Unflatten(3, (2, 2)), nn.Upsample(scale_factor=2, mode="nearest-exact"), nn.Conv3d(4, 4, 1), nn.AdaptiveMaxPool3d(2))


class Smoothed(nn.Module):
    def __init__(self, mode):
        super().__init__()
        self.mode = mode

    def forward(self, x):
        return F.interpolate(x, size=(4, 4), mode=self.mode, antialias=True)


class Recurrent(nn.Module):
    def __init__(self, kind, **kw):
        super().__init__()
        self.net = kind(8, 6, **kw)
        self.head = nn.Linear(6 * (2 if kw.get("bidirectional") else 1), 8)

    def forward(self, x):
        x = self.net(x)[0]
        return self.head(x)


def residual():
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), Residual(8), Residual(8, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10))


def whole(name, **kw):
    def make():
        import torchvision

        return getattr(torchvision.models, name)(weights=None, **kw)

    return make


def fn(function, *sizes):
    return lambda: Fn(function, *sizes)


NETS = {
    "conv2d": (conv2d, [f(B, 3, 16, 16)], "cross_entropy"),
    "conv_transpose": (conv_transpose, [f(B, 3, 8, 8)], "mse"),
    "conv1d": (conv1d, [f(B, 3, 16)], "cross_entropy"),
    "conv3d": (conv3d, [f(B, 2, 4, 4, 4)], "cross_entropy"),
    "linear": (linear, [f(B, 16)], "cross_entropy"),
    "linear3": (fn(linear3, (8, 8), (8,), (8, 6), (8,), (5, 8)), [f(B, 6, 8)], "mse"),
    "products": (fn(products, (8, 8), (6, 6), (6, 6), (6, 6), (36, 8), (8,), (8, 8), (8,)), [f(B, 6, 8)], "sum"),
    "heads": (fn(heads, (48, 16), (16, 16)), [f(B, 6, 16)], "mse"),
    "batch_norm": (batch_norm, [f(B, 3, 8, 8)], "cross_entropy"),
    "layer_norm": (layer_norm, [f(B, 6, 16)], "mse"),
    "group_norm": (group_norm, [f(B, 3, 8, 8)], "mse"),
    "activations": (lambda: activations(False), [f(B, 16)], "mse"),
    "activations_inplace": (lambda: activations(True), [f(B, 16)], "mse"),
    "inplace_functions": (fn(inplace_functions, (8, 8), (8, 8), (8, 8), (8,)), [f(B, 8)], "mse"),
    "inplace_views": (fn(inplace_views, (8, 8), (8,), (48,), (6, 48), (3,)), [f(B, 6, 8)], "mse"),
    "pools": (pools, [f(B, 3, 16, 16)], "cross_entropy"),
    "pools1d": (pools1d, [f(B, 3, 16)], "cross_entropy"),
    "pools3d": (pools3d, [f(B, 2, 8, 8, 8)], "cross_entropy"),
    "dropout": (dropout, [f(B, 3, 8, 8)], "cross_entropy"),
    "softmax": (fn(softmax, (8, 8), (8, 8)), [f(B, 8)], "mse"),
    "arithmetic": (fn(arithmetic, (8,), (1, 8), (1,)), [f(B, 8)], "mse"),
    "functions": (fn(functions, (8,)), [f(B, 8)], "mse"),
    "choices": (fn(choices, (8,)), [f(B, 8), f(B, 8)], "mse"),
    "reductions": (fn(reductions, (8,)), [f(B, 6, 8)], "mse"),
    "joins": (fn(joins, (8, 8), (8, 6)), [f(B, 8)], "mse"),
    "views": (fn(views, (8, 8), (6, 6)), [f(B, 6, 8)], "mse"),
    "copies": (copies, [f(B, 3, 8, 8)], "mse"),
    "moved": (fn(moved, (8, 8)), [f(B, 6, 8)], "mse"),
    "embedding": (fn(embedding, (50, 8), (8, 8)), [ids(50, B, 6)], "mse"),
    "sparse": (fn(sparse, (50, 8), (40, 8), (30, 8)), [ids(30, B, 6), ids(30, 3)], "mse"),
    "sparse_tied": (fn(sparse_tied, (50, 8), (3, 8)), [ids(50, B, 6)], "mse"),
    "sparse_sum": (fn(sparse_sum, (50, 8)), [ids(50, B, 6)], "sum"),
    "bags": (fn(bags, (50, 8), (50, 8), (24,)), [ids(50, B, 6), ids(50, 4, 6), f(24)], "mse"),
    "sparse_bags": (fn(sparse_bags, (50, 8), (50, 8)), [ids(50, B, 6), ids(50, B, 6), f(B, 6)], "mse"),
    "indexing": (fn(indexing, (8, 8), (5, 5)), [f(B, 8), ids(8, 5)], "mse"),
    "gathering": (fn(gathering, (8, 8)), [f(B, 8), ids(8, B, 5)], "mse"),
    "loss_nll": (loss_of(F.nll_loss, lambda x: F.log_softmax(x, 1)), [f(B, 10), ids(10, B)], "sum"),
    "loss_cross_entropy": (loss_of(F.cross_entropy), [f(B, 10), ids(10, B)], "sum"),
    "loss_smooth": (loss_of(functools.partial(F.cross_entropy, label_smoothing=0.1)), [f(B, 10), ids(10, B)], "sum"),
    "loss_weighted": (fn(weighted, (10, 10), (10,)), [f(B, 10), ids(10, B)], "sum"),
    "loss_soft": (loss_of(F.cross_entropy), [f(B, 10), f(B, 10)], "sum"),
    "loss_kl": (loss_of(both_kl, lambda x: F.log_softmax(x, 1)), [f(B, 10), f(B, 10)], "sum"),
    "rms_norm": (fn(rms_norm, (8,), (6, 8)), [f(B, 6, 8)], "mse"),
    "loss_mse": (loss_of(F.mse_loss), [f(B, 10), f(B, 10)], "sum"),
    "loss_bce": (loss_of(F.binary_cross_entropy, torch.sigmoid), [f(B, 10), f(B, 10) / 2], "sum"),
    "loss_bce_logits": (loss_of(F.binary_cross_entropy_with_logits), [f(B, 10), f(B, 10)], "sum"),
    "loss_l1": (loss_of(both_l1), [f(B, 10), f(B, 10)], "sum"),
    "loss_huber": (loss_of(F.huber_loss), [f(B, 10), f(B, 10)], "sum"),
    "logits_bce": (linear, [f(B, 16)], "bce"),
    "segmentation": (lambda: nn.Sequential(nn.Conv2d(3, 5, 3, padding=1)), [f(B, 3, 8, 8)], "cross_entropy"),
    "attention": (fn(attention, (48, 16), (48,), (16, 16), (16,)), [f(B, 6, 16)], "mse"),
    "causal_attention": (fn(causal_attention, (48, 16), (48,), (16, 16), (16,)), [f(B, 6, 16)], "mse"),
    "masked_attention": (fn(masked_attention, (48, 16), (48,), (16, 16), (16,)), [f(B, 8, 16), torch.zeros(8, 8)], "mse"),
    "biased_attention": (fn(biased_attention, (48, 16), (1, 2, 8, 8), (2, 6, 6)), [f(B, 8, 16)], "mse"),
    "advanced": (fn(advanced, (8, 8), (5, 5)), [f(B, 8), ids(3, 5)], "mse"),
    "made": (fn(made, (8,)), [f(B, 8)], "mse"),
    "more_reductions": (fn(more_reductions, (8,)), [f(B, 6, 8)], "mse"),
    "more_joins": (fn(more_joins, (8, 8)), [f(B, 8)], "mse"),
    "more_products": (fn(more_products, (6, 5), (8, 8), (2, 5, 5), (B, 2, 3, 8), (5,), (2,)), [f(B, 6, 8)], "mse"),
    "scaled_products": (fn(scaled_products, (48,), (48, 48), (B, 8, 8), (B, 6, 8)), [f(B, 6, 8)], "mse"),
    "experts": (fn(experts, (2, 16, 8), (2, 16, 8)), [f(B, 6, 8)], "mse"),
    "vectors": (fn(vectors, (8, 8), (8,)), [f(B, 8)], "sum"),
    "resizes": (resizes, [f(B, 3, 16)], "mse"),
    "softmaxes": (fn(softmaxes, (8, 8)), [f(B, 6, 8)], "mse"),
    "shared": (Shared, [ids(20, B, 6)], "cross_entropy"),
    "frozen": (frozen, [f(B, 3, 8, 8)], "cross_entropy"),
    "channels_last": (channels_last, [f(B, 3, 8, 8).contiguous(memory_format=torch.channels_last)], "cross_entropy"),
    "auxiliary": (Auxiliary, [f(B, 16)], "cross_entropy"),
    "comparisons": (fn(comparisons, (8,)), [f(B, 8), f(B, 8)], "mse"),
    "factories": (fn(factories, (8,), (8,)), [f(B, 8)], "mse"),
    "core": (fn(core, (1,), (8, 75), (8,)), [f(B, 3, 8, 8)], "mse"),
    "loss_core": (loss_of(both_nll, lambda x: F.log_softmax(x, 1)), [f(B, 10), ids(10, B)], "sum"),
    "adam_foreach": (linear, [f(B, 16)], "cross_entropy", "adam,impl=foreach"),
    "momentum_forloop": (linear, [f(B, 16)], "cross_entropy", "sgd,momentum=0.9,impl=forloop"),
    "ranges": (fn(ranges, (8,)), [f(B, 8)], "mse"),
    "turned": (fn(turned, (8, 8), (B, 6, 8), (8, 6)), [f(B, 6, 8)], "mse"),
    "parts": (fn(parts, (10, 10)), [f(B, 10)], "mse"),
    "tiled": (fn(tiled, (6, 6), (6, 24), (B, 2), (B,), (6,)), [f(B, 6)], "mse"),
    "columns": (columns, [f(B, 3, 8, 8)], "mse"),
    "more_functions": (fn(more_functions, (8,)), [f(B, 8)], "mse"),
    "pairs": (fn(pairs, (8,), (8,), (8,)), [f(B, 8)], "mse"),
    "crossed": (fn(crossed, (3, 3), (B, 3)), [f(B, 3)], "mse"),
    "masks": (fn(masks, (8,)), [f(B, 8)], "mse"),
    "norms": (fn(norms, (8,)), [f(B, 6, 8)], "mse"),
    "ordered": (fn(ordered, (8,)), [f(B, 8)], "mse"),
    "solved": (fn(solved, (8,)), [f(B, 8)], "mse"),
    "scattered": (Scattered, [f(B, 8), ids(8, B, 3), ids(8, 3)], "mse"),
    "sampled": (fn(sampled, (4, 3, 1, 1), (B, 5, 5, 2)), [f(B, 3, 8, 8)], "mse"),
    "rotated": (fn(rotated, (2,), (3,), (8, 3)), [f(B, 6, 8)], "mse"),
    "letters": (fn(letters, (8, 8), (6, 6), (6,)), [f(B, 6, 8)], "mse"),
    "other_names": (fn(other_names, (8,), (8,), (8, 8), (8, 1)), [f(B, 8)], "mse"),
    "more_resizes": (more_resizes, [f(B, 3, 16)], "mse"),
    "lstm": (lambda: Recurrent(nn.LSTM), [f(5, B, 8)], "mse"),
    "gru": (lambda: Recurrent(nn.GRU, batch_first=True), [f(B, 5, 8)], "mse"),
    "rnn": (lambda: Recurrent(nn.RNN, bias=False), [f(5, B, 8)], "mse"),
    "rnn_relu": (lambda: Recurrent(nn.RNN, nonlinearity="relu", bias=False, bidirectional=True), [f(5, B, 8)], "mse"),
    "residual": (residual, [f(B, 3, 8, 8)], "cross_entropy"),
    "resnet18": (whole("resnet18"), [f(2, 3, 64, 64)], "cross_entropy"),
    "mobilenet_v2": (whole("mobilenet_v2"), [f(2, 3, 64, 64)], "cross_entropy"),
    "vit_b_16": (whole("vit_b_16", image_size=32), [f(2, 3, 32, 32)], "cross_entropy"),
}


# ---- losses --------------------------------------------------------------------------------------------------------

LOSSES = {
    "cross_entropy": (lambda out: torch.randint(out.shape[1], out.shape[:1] + out.shape[2:]), F.cross_entropy),
    "mse": (torch.rand_like, F.mse_loss),
    "bce": (torch.rand_like, F.binary_cross_entropy_with_logits),
    "sum": (lambda out: None, lambda out, y: out.sum()),
}


def score(fn, out, y):
    """The loss; auxiliary heads count 0.4 each, as the models that have them are trained."""
    if isinstance(out, torch.Tensor):
        return fn(out, y)
    total = fn(out[0], y)
    for o in out[1:]:
        aux = fn(o, y)
        total = total + aux * 0.4
        del aux
    return total


def main_head(out):
    return (out if isinstance(out, torch.Tensor) else out[0]).detach()
