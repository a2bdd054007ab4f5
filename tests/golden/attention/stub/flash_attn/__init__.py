"""Stands in for flash-attn where there is no card: it makes the tensors of the package's functions, in their order, and computes nothing.

src: flash-attention 2.8 flash_attn/flash_attn_interface.py, csrc/flash_attn/flash_api.cpp mha_fwd, mha_bwd, mha_varlen_fwd, mha_varlen_bwd
"""
import math

import torch

__version__ = "2.8.3"


def rounded(size, multiple):
    return -(-size // multiple) * multiple


def rounded_head(size):
    return rounded(size, 32 if size <= 128 else 64)


def ready(*tensors):
    return [t if t.stride(-1) == 1 else t.contiguous() for t in tensors]


def number_of_splits(row_blocks, slots, key_blocks):
    if row_blocks >= 0.8 * slots:
        return 1
    efficiency = {}
    for n in range(1, min(128, slots, key_blocks) + 1):
        if n == 1 or -(-key_blocks // n) != -(-key_blocks // (n - 1)):
            waves = row_blocks * n / slots
            efficiency[n] = waves / math.ceil(waves)
    return min(n for n, e in efficiency.items() if e >= 0.85 * max(efficiency.values()))


def check(q, k, v):
    if q.dtype not in (torch.float16, torch.bfloat16):
        raise RuntimeError("FlashAttention only support fp16 and bf16 data type")
    assert q.dtype == k.dtype == v.dtype and q.shape[-1] <= 256


def forward(q, k, v, dropout, window):
    q, k, v = ready(q, k, v)
    check(q, k, v)
    batch, rows, heads, size = q.shape
    shared = k.shape[2]
    swapped = rows == 1 and heads > shared and min(window) < 0 and not dropout
    if swapped:
        q = q.reshape(batch, shared, heads // shared, size).transpose(1, 2)
    of_rows, of_heads = q.shape[1:3]
    out = torch.empty_like(q)
    lse = torch.empty(batch, of_heads, of_rows, dtype=torch.float32, device=q.device)
    sums = None
    if not dropout:
        slots = 2 * torch.cuda.get_device_properties(q.device).multi_processor_count
        width = 256 if size <= 64 else 128 if size <= 128 else 64
        splits = number_of_splits(batch * of_heads * -(-of_rows // 64), slots, -(-k.shape[1] // width))
        if splits > 1:
            sums = (torch.empty(splits, batch, of_heads, of_rows, dtype=torch.float32, device=q.device),
                    torch.empty(splits, batch, of_heads, of_rows, rounded_head(size), dtype=torch.float32, device=q.device))
    state = torch.empty(2, dtype=torch.int64, device=q.device)
    if swapped:
        out = out.transpose(1, 2).reshape(batch, 1, heads, size)
        lse = lse.reshape(batch, heads, 1)
    del sums
    return out, lse, state


def forward_uneven(q, k, v):
    q, k, v = ready(q, k, v)
    check(q, k, v)
    out = torch.empty_like(q)
    return out, torch.empty(q.shape[1], q.shape[0], dtype=torch.float32, device=q.device), torch.empty(2, dtype=torch.int64, device=q.device)


def backward(dout, q, k, v, out, of_sequences):
    """of_sequences: how many there are, if their lengths differ."""
    dout, q, k, v, out = ready(dout, q, k, v, out)
    *tokens, heads, size = q.shape
    if of_sequences:
        rows = tokens[0] + 128 * of_sequences
        sums, totals = (heads, rows), (rows, heads)
    else:
        rows = rounded(tokens[1], 128)
        sums, totals = (tokens[0], heads, rows), (tokens[0], rows, heads)
    sums = torch.empty(sums, dtype=torch.float32, device=q.device)
    totals = torch.empty(*totals, rounded_head(size), dtype=torch.float32, device=q.device)
    each = [torch.empty(*k.shape[:-2], heads, size, dtype=q.dtype, device=q.device) for _ in range(2) if k.shape[-2] != heads]
    del sums, totals, each


def padded(size):
    return [0, -size % 8]


class Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, dropout, window, starts, longest, grad):
        size, saves = q.shape[-1], grad and any(t.requires_grad for t in (q, k, v))
        if size % 8:
            q, k, v = (torch.nn.functional.pad(t, padded(size)) for t in (q, k, v))
        out, lse, state = forward(q, k, v, dropout, window) if starts is None else forward_uneven(q, k, v)
        if saves:
            ctx.longest = longest
            ctx.save_for_backward(q, k, v, out, lse, *(starts or ()), state)
        return out[..., :size]

    @staticmethod
    def backward(ctx, dout):
        q, k, v, out, _, *starts, _ = ctx.saved_tensors
        dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        size = dout.shape[-1]
        made = dout if size % 8 == 0 else torch.nn.functional.pad(dout, padded(size))
        backward(made, q, k, v, out, starts[0].numel() - 1 if starts else 0)
        return dq[..., :size], dk[..., :size], dv[..., :size], *[None] * 5


def flash_attn_func(q, k, v, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, alibi_slopes=None,
                    deterministic=False, return_attn_probs=False):
    return Attention.apply(q, k, v, dropout_p, window_size, None, None, torch.is_grad_enabled())


def flash_attn_varlen_func(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p=0.0, softmax_scale=None, causal=False,
                           window_size=(-1, -1), softcap=0.0, alibi_slopes=None, deterministic=False, return_attn_probs=False,
                           block_table=None):
    return Attention.apply(q, k, v, dropout_p, window_size, (cu_seqlens_q, cu_seqlens_k), (max_seqlen_q, max_seqlen_k),
                           torch.is_grad_enabled())


def flash_attn_with_kvcache(*args, **kwargs):
    raise NotImplementedError
