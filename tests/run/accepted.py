"""Calls at the edges that PyTorch accepts: tensors without dimensions or elements, broadcasting,
negative dimensions, views.  Each must give on the card what it gives on the CPU: the same shapes,
strides and dtypes.  See both.py for the names."""

import itertools
import json

import both

# Each of these, of each of the tensors x ...
X = ["z()", "z(0)", "z(1)", "z(0, 3)", "z(2, 0, 3)", "z(2, 3)", "z(2, 3).t()", "z(3, 1).expand(3, 4)",
     "z(4, 6)[::2, 1::2]", "h(2, 3)", "bf(2, 3, 4)", "l(2, 3)", "b(2, 3)", "i(3)",
     "z(2, 3, 4, 5).to(memory_format=torch.channels_last)"]
UNARY = """
x + x
x + 1
x * 1.5
x / 2
x > 0
x == x
x.to(torch.float64)
x.to(torch.float16)
x.clone()
x.contiguous()
x.sum()
x.sum(-1)
x.sum(-1, keepdim=True)
x.float().mean()
x.float().mean(-1)
x.float().exp()
x.float().sigmoid_()
x.float().abs().sqrt()
x.float().softmax(-1)
x.float().log_softmax(0)
x.float().var(-1)
x.float().norm()
x.any()
x.all(-1)
x.cumsum(-1)
x.sort(-1)
x.argsort(-1)
x.float().logsumexp(-1)
x.unsqueeze(-1)
x.squeeze()
x.flatten()
x.reshape(-1)
x.ravel()
x.repeat(2, 1, 1, 1)
x.flip(-1)
x.roll(1, -1)
x.masked_fill(x > 0, 1)
x.clamp(min=0)
x.where(x > 0, x)
torch.zeros_like(x)
torch.empty_like(x, dtype=torch.float16)
torch.ones_like(x).add_(x)
torch.cat([x.flatten(), x.flatten()])
torch.stack([x, x], -1)
torch.broadcast_to(x, (2, *x.shape))
torch.logical_and(x, x)
torch.logical_not(x)
torch.maximum(x, x)
torch.isnan(x)
F.relu(x.float())
F.gelu(x.float())
F.dropout(x.float())
F.mse_loss(x.float(), x.float())
F.pad(x, (1, 1)) if x.dim() else x
""".split("\n")[1:-1]

PAIRS = list(itertools.product(
    ["z()", "z(0)", "z(3)", "z(2, 3)", "z(2, 1, 3)", "z(1, 1)", "h(3)", "l(2, 3)", "b(3)", "2",
     "2.5", "z(3, 2).t()"], repeat=2))
BINARY = ["{} + {}", "{} * {}", "{} / {}", "{} < {}", "{} ** {}"]

CALLS = """
z(2, 3) @ z(3, 4)
z(3) @ z(3)
z(2, 3) @ z(3)
z(5, 1, 2, 3) @ z(4, 3, 2)
z(0, 3) @ z(3, 4)
z(2, 0) @ z(0, 4)
z(2, 0, 3) @ z(3, 4)
torch.mm(z(3, 2).t(), z(3, 4))
torch.bmm(z(0, 2, 3), z(0, 3, 4))
torch.addmm(z(4), z(2, 3), z(3, 4))
torch.addmm(z(), z(2, 3), z(3, 4))
torch.baddbmm(z(1, 4), z(5, 2, 3), z(5, 3, 4))
torch.einsum("bij,bjk->bik", z(2, 3, 4), z(2, 4, 5))
torch.einsum("...ij->...ji", z(2, 3, 4))
torch.outer(z(2), z(0))
torch.dot(z(0), z(0))
torch.cdist(z(2, 3), z(4, 3))
F.linear(z(3), z(4, 3))
F.linear(z(2, 5, 3), z(4, 3), z(4))
F.linear(z(0, 3), z(4, 3), z(4))
F.linear(z(2, 3), z(3))
F.layer_norm(z(2, 3), (3,))
F.layer_norm(z(2, 3, 4), (3, 4), z(3, 4), z(3, 4))
F.layer_norm(z(0, 3), (3,))
F.layer_norm(z(2, 3), (3,), z(3))
F.layer_norm(bf(2, 3), (3,), bf(3), bf(3))
F.rms_norm(z(2, 3), (3,), z(3))
F.group_norm(z(2, 6), 3)
F.group_norm(z(2, 6, 4, 4), 3, z(6), z(6))
F.batch_norm(z(2, 3), z(3), z(3))
F.batch_norm(z(2, 3, 4, 4), z(3), z(3), training=True)
F.batch_norm(h(2, 3, 4, 4), z(3), z(3), z(3), z(3), training=True)
F.batch_norm(bf(2, 3, 4), z(3), z(3), z(3), z(3))
F.instance_norm(z(2, 3, 4))
F.conv2d(z(1, 3, 8, 8), z(4, 3, 3, 3))
F.conv2d(z(3, 8, 8), z(4, 3, 3, 3), z(4))
F.conv2d(z(0, 3, 8, 8), z(4, 3, 3, 3))
F.conv2d(z(1, 4, 8, 8), z(8, 1, 3, 3), groups=4)
F.conv2d(z(1, 3, 8, 8), z(4, 3, 3, 3), padding="same")
F.conv2d(z(1, 3, 8, 8), z(4, 3, 3, 3), stride=2, padding=1, dilation=2)
F.conv1d(z(1, 3, 8), z(4, 3, 3))
F.conv3d(z(1, 3, 4, 4, 4), z(4, 3, 3, 3, 3))
F.conv_transpose2d(z(1, 3, 4, 4), z(3, 4, 3, 3), stride=2, output_padding=1)
F.max_pool2d(z(1, 3, 8, 8), 2)
F.max_pool2d(z(3, 8, 8), 3, stride=2, padding=1, ceil_mode=True)
F.max_pool2d(z(1, 3, 8, 8), 2, return_indices=True)
F.avg_pool2d(z(1, 3, 7, 7), 2, ceil_mode=True)
F.adaptive_avg_pool2d(z(1, 3, 8, 8), 1)
F.adaptive_avg_pool2d(z(1, 3, 8, 8), (None, 2))
F.adaptive_max_pool2d(z(3, 8, 8), 2)
F.interpolate(z(1, 3, 4, 4), scale_factor=2)
F.interpolate(z(1, 3, 4, 4), size=(7, 5), mode="bilinear")
F.interpolate(u(1, 3, 4, 4), scale_factor=2)
F.unfold(z(1, 3, 8, 8), 3)
F.fold(z(1, 12, 16), (5, 5), 2)
F.pixel_shuffle(z(1, 8, 4, 4), 2)
F.pixel_shuffle(z(2, 9, 4, 4), 3)
F.pixel_unshuffle(z(1, 2, 4, 4), 2)
F.grid_sample(z(1, 3, 8, 8), z(1, 4, 4, 2))
F.pad(z(1, 2, 3), (2, 2), mode="reflect")
F.pad(z(2, 3), (-1, 0, 0, -1))
F.embedding(l(2, 3), z(5, 4))
F.embedding(i(3), z(5, 4))
F.embedding(l(0), z(5, 4))
F.embedding(l(), z(5, 4), padding_idx=-1)
F.embedding_bag(l(2, 3), z(5, 4))
F.embedding_bag(l(3), z(5, 4), l(1))
F.one_hot(l(2, 3), 4)
F.cross_entropy(z(3, 5), l(3))
F.cross_entropy(z(3, 5), z(3, 5))
F.cross_entropy(z(3, 5), u(3))
F.cross_entropy(z(5), l())
F.cross_entropy(z(2, 5, 4, 4), l(2, 4, 4))
F.cross_entropy(z(2, 5, 4, 4), z(2, 5, 4, 4))
F.cross_entropy(z(3, 5), l(3), weight=z(5), reduction="none")
F.cross_entropy(z(0, 5), l(0), reduction="sum")
F.cross_entropy(h(3, 5), l(3), label_smoothing=0.1)
(lambda x: torch.autograd.grad(F.softmax(x, -1, dtype=torch.float32).sum(), x)[0])(h(2, 3).requires_grad_())
(lambda x: torch.autograd.grad(F.log_softmax(x, -1, dtype=torch.float32).sum(), x)[0])(h(2, 3).requires_grad_())
F.nll_loss(z(3, 5), l(3), ignore_index=0)
F.binary_cross_entropy(z(3), z(3))
F.binary_cross_entropy_with_logits(z(3), z(3), pos_weight=z(3))
F.binary_cross_entropy_with_logits(z(3, 2), z(3, 2), pos_weight=z(2))
F.kl_div(z(3), z(3), reduction="batchmean")
F.smooth_l1_loss(z(3), z(3), beta=0.0)
F.huber_loss(z(3), z(3), reduction="none")
F.triplet_margin_loss(z(2, 3), z(2, 3), z(2, 3))
F.cosine_similarity(z(2, 3), z(3))
F.multi_margin_loss(z(2, 3), l(2))
F.ctc_loss(z(5, 2, 4).log_softmax(-1), l(2, 3) + 1, torch.tensor([5, 5]), torch.tensor([3, 3]))
F.glu(z(2, 4), -1)
F.prelu(z(2, 3), z(1))
F.prelu(z(2, 3), z(3))
F.normalize(z(2, 3), dim=-1)
F.scaled_dot_product_attention(z(2, 4, 8), z(2, 6, 8), z(2, 6, 5))
F.scaled_dot_product_attention(z(2, 4, 8), z(2, 4, 8), z(2, 4, 8), is_causal=True)
F.scaled_dot_product_attention(z(2, 4, 8), z(2, 4, 8), z(2, 4, 8), b(4, 4))
F.scaled_dot_product_attention(z(2, 4, 8), z(2, 4, 8), z(2, 4, 8), z(1, 4))
z(2, 3)[0]
z(2, 3)[-1, -1]
z(2, 3)[..., None]
z(2, 3)[:, 1:]
z(2, 3)[5:]
z(2, 3)[l(2)]
z(2, 3)[:, l(4)]
z(2, 3)[l(2), l(2)]
z(2, 3)[l(2, 1), l(2)]
z(2, 3)[l(0)]
z(2, 3)[i(2)]
z(2, 3)[b(2)]
z(2, 3)[b(2, 3)]
z(2, 3)[:, b(3)]
z(2, 3).masked_fill(b(3), 1)
z(2, 3).masked_fill(b(2, 1), z())
z(2, 3).masked_scatter(b(2, 3), z(6))
z(2, 3).index_select(-1, l(4))
z(2, 3).index_select(0, l())
z(2, 3).gather(-1, l(2, 1))
z(2, 3).gather(0, l(0, 3))
z(2, 3).scatter(1, l(2, 3), 1.0)
z(2, 3).scatter(1, l(2, 1), z(2, 3))
z(2, 3).scatter_add(-1, l(2, 3), z(2, 3))
z(2, 3).scatter_reduce(0, l(2, 3), z(2, 3), "amax")
z(2, 3).index_add(-1, l(3), z(2, 3))
z(2, 3).index_copy(0, l(2), z(2, 3))
z(2, 3).index_fill(-1, l(1), 1)
z(2, 3).index_put((l(2),), z(3))
z(2, 3).index_put((l(2),), z())
z(2, 3).take(l(4))
z(2, 3).put(l(2), z(2))
torch.take_along_dim(z(2, 3), l(2, 1), -1)
z(3).repeat_interleave(2)
z(2, 3).repeat_interleave(2, -1)
z(3, 4).tril(-1)
z(2, 0).triu()
torch.diag(z(3))
torch.diag(z(3, 4), -1)
torch.diagonal(z(2, 3, 4), dim1=-2, dim2=-1)
torch.diag_embed(z(2, 3))
z(2, 3).view(3, 2)
z(2, 3).view(-1)
z(0, 3).view(-1, 3)
z(2, 3).view(torch.int32)
z(2, 4).view(torch.float64)
z(2, 3).reshape(1, -1)
z(2, 3).t().reshape(-1)
z(1, 3).expand(2, -1)
z(2, 3).expand(4, -1, -1)
z(2, 3).expand(0, 2, 3)
z(2, 3, 4).permute(-1, 0, 1)
z(2, 3, 4).transpose(-1, -2)
z(2, 3, 4).movedim(0, -1)
z(2, 3).unflatten(-1, (3, 1))
z(2, 3).unfold(-1, 2, 1)
z(7, 3).split(3)
z(7, 3).split([2, 5])
z(2, 3).split(1, -1)
z(7).chunk(3)
z(2, 3).unbind(-1)
z(7).tensor_split(3)
z(7).tensor_split((2, 5))
z(2, 3).narrow(-1, 1, 1)
z(2, 3).select(-1, -1)
torch.cat([z(0), z(2, 3)])
torch.cat([z(2, 3), z(2, 3)], -1)
torch.cat([z(2), l(2)])
torch.cat([h(2), z(2)])
torch.stack([z(), z()])
torch.hstack([z(2), z(3)])
torch.vstack([z(3), z(3)])
torch.meshgrid(z(2), z(3), indexing="ij")
torch.block_diag(z(2, 2), z(3))
torch.cartesian_prod(z(2), z(3))
torch.broadcast_tensors(z(2, 1), z(3))
torch.atleast_2d(z())
torch.where(b(2, 1), z(3), 0)
torch.where(b(3), l(3), z(3))
torch.where(b(3), 1, 0)
torch.lerp(z(2, 3), z(3), 0.5)
torch.addcmul(z(2, 3), z(3), z(2, 1))
torch.clamp(z(2, 3), z(3), z(2, 1))
torch.bitwise_and(b(3), l(3))
b(3) & b(3)
~b(3)
l(3) // 2
l(3) % 2
l(3) / 2
l(3) ** 2
-l(3)
b(3) + b(3)
u(3) + 300
l(3).float().add_(l(3))
z(3).add_(l(3))
z(3).add_(b(3))
z(2, 3).copy_(z(3))
z(2, 3).copy_(l(3))
z(2, 3).add(z(3), alpha=2)
l(3).add(l(3), alpha=2)
z(2, 3).max()
z(2, 3).max(-1)
z(2, 3).min(0, keepdim=True)
z(0, 3).max(1)
z(2, 3).argmax()
z(2, 3).argmax(-1, keepdim=True)
z(0, 3).argmax(1)
l(2, 3).amax((0, 1))
z(2, 3).std()
z(2, 3).var((0, 1), keepdim=True)
z(2, 3).prod(-1)
b(2, 3).sum()
b(2, 3).sum(-1, dtype=torch.float32)
l(2, 3).float().mean((0, -1))
l(2, 3).mean(dtype=torch.float32)
z(2, 3).norm(dim=-1)
z(2, 3).norm(p=1)
torch.linalg.vector_norm(z(2, 3), dim=(0, 1))
torch.linalg.norm(z(2, 3))
z(2, 3).median()
z(2, 3).median(-1)
z(2, 3).mode(-1)
z(2, 3).kthvalue(2, -1)
z(2, 3).topk(2)
z(2, 3).topk(0)
z(2, 3).topk(1, 0, largest=False)
z(2, 3).cummax(-1)
l(2, 3).cumprod(0)
b(2, 3).cumsum(0)
torch.count_nonzero(z(2, 3))
torch.count_nonzero(z(2, 3), -1)
torch.searchsorted(z(3), z(2, 2))
torch.bucketize(z(2, 2), z(3))
torch.bincount(l(3), minlength=1)
torch.histc(z(3), bins=4)
torch.trace(z(2, 3))
torch.cross(z(2, 3), z(2, 3), dim=-1)
torch.kron(z(2, 2), z(3))
torch.isin(l(3), l(2))
torch.multinomial(z(2, 3) + 1, 2)
torch.multinomial(z(3) + 1, 5, replacement=True)
torch.bernoulli(z(2, 3))
torch.normal(z(2, 3), z(3) + 1)
torch.rand_like(h(2, 3))
torch.randint_like(z(2, 3), 5)
l(2, 3).random_(5)
l(2, 3).bernoulli_(0.5)
z(2, 3).uniform_(-1, -1)
z(2, 3).normal_(0, 0)
z(2, 3).exponential_()
torch.polar(z(2), z(2))
torch.complex(z(2), z(2))
torch.view_as_real(c(2))
torch.view_as_complex(z(3, 2))
c(2).abs()
c(2).real
c(2) + z(2)
c(2).conj() * 2
torch.fft.fft(z(2, 3))
torch.fft.rfft(z(2, 8))
torch.fft.irfft(c(2, 5))
torch.linalg.inv(z(2, 3, 3) + torch.eye(3, device=dev))
torch.linalg.solve(torch.eye(3, device=dev), z(3, 2))
torch.linalg.cholesky(torch.eye(3, device=dev))
torch.linalg.qr(z(4, 3))
torch.linalg.svd(z(4, 3), full_matrices=False)
torch.linalg.eigh(torch.eye(3, device=dev))
torch.linalg.det(torch.eye(3, device=dev))
torch.linalg.lstsq(z(4, 3) + torch.eye(4, 3, device=dev), z(4, 2))
torch.matrix_exp(z(3, 3))
torch.add(z(2), z(2), out=z(0))
torch.mm(z(2, 3), z(3, 4), out=z(0))
torch.cat([z(2), z(2)], out=z(0))
torch.sum(z(2, 3), 0, out=z(0))
torch.logical_or(z(2), z(2), out=z(2))
torch.logical_or(z(2), z(2), out=b(0))
torch._foreach_add([z(2), z(3)], 1)
torch._foreach_mul([z(2), h(3)], [1.0, 2.0])
torch._foreach_norm([z(2), z(3)])
nn.utils.rnn.pad_sequence([z(2, 3), z(4, 3)], batch_first=True)
on(nn.LSTM(3, 4))(z(5, 2, 3))
on(nn.LSTM(3, 4))(z(5, 3))
on(nn.LSTM(3, 4, 2, bidirectional=True, batch_first=True))(z(2, 5, 3))
on(nn.GRU(3, 4))(z(5, 2, 3), z(1, 2, 4))
on(nn.LSTMCell(3, 4))(z(2, 3))
on(nn.GRUCell(3, 4))(z(3))
on(nn.MultiheadAttention(4, 2))(z(5, 2, 4), z(5, 2, 4), z(5, 2, 4))
on(nn.TransformerEncoderLayer(4, 2, batch_first=True).eval())(z(2, 5, 4))
on(nn.Embedding(5, 4, padding_idx=0))(l(2, 3))
on(nn.BatchNorm1d(3))(z(4, 3))
on(nn.Linear(3, 4).bfloat16())(bf(2, 3))
torch.autograd.grad(w(2, 3).sum(), [w(2, 3)], allow_unused=True)
(w(2, 3) * 2).sum().backward()
z(2, 3).tolist()
z().item()
bool(l(1))
len(z(2, 3))
z(2, 3).numel()
""".split("\n")[1:-1]

# On a card the results lie otherwise: as PyTorch's CUDA code has them.
# src: PyTorch 2.13, cuda/TensorTransformations.cu (roll), BatchLinearAlgebra.cpp (linalg_svd)
LAST = "z(2, 3, 4, 5).to(memory_format=torch.channels_last)"
CUDA = {
    f"(lambda x: x.roll(1, -1))({LAST})": ((2, 3, 4, 5), (60, 20, 5, 1), "torch.float32"),
    "torch.linalg.svd(z(4, 3), full_matrices=False)": [
        ((4, 3), (1, 4), "torch.float32"), ((3,), (1,), "torch.float32"),
        ((3, 3), (3, 1), "torch.float32")],
}

# Known to lie otherwise than on a card, where they are contiguous.
KNOWN = {"2 ** z(3, 2).t()", "2.5 ** z(3, 2).t()"}


def calls():
    for x, call in itertools.product(X, UNARY):
        yield f"(lambda x: {call})({x})"
    for (a, b), call in itertools.product(PAIRS, BINARY):
        if "(" in a + b:
            yield call.format(a, b)
    yield from CALLS


def main():
    differ, accepted, refused = [], 0, []
    for call in calls():
        here = both.outcome(call, "cpu")
        if call in KNOWN:
            continue
        if isinstance(here, both.Refused):
            refused.append(call)
            continue
        accepted += 1
        want = CUDA.get(call, both.describe(here))
        got = both.describe(both.outcome(call, "cuda"))
        if got != want:
            differ.append((call, want, got))
    print(json.dumps({"accepted": accepted, "refused": refused, "differ": differ}))


main()
