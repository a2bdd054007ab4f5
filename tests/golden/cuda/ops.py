"""The ops that record.py calls: (name, function, inputs...); see tensor() there for how an input is written."""


def cases(torch):
    nn, F = torch.nn, torch.nn.functional
    yield from matmul(torch, F)
    yield from norm(torch, F)
    yield from index(torch, F)
    yield from reduce(torch, F)
    yield from loss(torch, F)
    yield from attention(torch, F)
    yield from conv(torch, F)
    yield from recurrent(torch, nn)
    yield from pool(torch, F)
    yield from pointwise(torch, F)
    yield from many(torch, nn)


def matmul(torch, F):
    for t in ("f32", "f16", "bf16", "f64"):
        yield "mm", torch.mm, f"{t}[64,128]*", f"{t}[128,256]*"
        yield "linear", F.linear, f"{t}[64,128]*", f"{t}[256,128]*", f"{t}[256]*"
        yield "linear no bias", F.linear, f"{t}[64,128]*", f"{t}[256,128]*"
    yield "linear 3d", F.linear, "f32[4,16,128]*", "f32[256,128]*", "f32[256]*"
    yield "linear 3d", F.linear, "bf16[4,16,128]*", "bf16[256,128]*", "bf16[256]*"
    yield "linear 3d T", F.linear, "f32[4,16,128]T*", "f32[256,128]*", "f32[256]*"
    yield "linear width 1", F.linear, "f32[64,128]*", "f32[1,128]*", "f32[1]*"
    yield "linear relu", lambda x, w, b: F.relu(F.linear(x, w, b)), "f32[64,128]*", "f32[256,128]*", "f32[256]*"
    yield "linear no grad of x", F.linear, "f32[64,128]", "f32[256,128]*", "f32[256]*"
    yield "addmm", torch.addmm, "f32[256]*", "f32[64,128]*", "f32[128,256]*"
    yield "addmm 2d", torch.addmm, "f32[64,256]*", "f32[64,128]*", "f32[128,256]*"
    yield "addmm beta", lambda b, x, w: torch.addmm(b, x, w, beta=0.5), "f32[256]*", "f32[64,128]*", "f32[128,256]*"
    yield "bmm", torch.bmm, "f32[8,64,128]*", "f32[8,128,32]*"
    yield "bmm T", torch.bmm, "f32[8,64,128]*", "f32[8,128,32]T*"
    yield "baddbmm", torch.baddbmm, "f32[8,64,32]*", "f32[8,64,128]*", "f32[8,128,32]*"
    yield "matmul 4d", torch.matmul, "f32[2,4,64,32]*", "f32[2,4,32,64]*"
    yield "matmul 4d T", torch.matmul, "f32[2,4,64,32]*", "f32[2,4,32,64]T*"
    yield "mv", torch.mv, "f32[64,128]*", "f32[128]*"
    yield "dot", torch.dot, "f32[4096]*", "f32[4096]*"
    yield "outer", torch.outer, "f32[64]*", "f32[128]*"
    yield "einsum bij,bjk", lambda a, b: torch.einsum("bij,bjk->bik", a, b), "f32[8,64,128]*", "f32[8,128,32]*"
    yield "einsum bhqd,bhkd", lambda a, b: torch.einsum("bhqd,bhkd->bhqk", a, b), "f32[2,4,64,32]*", "f32[2,4,64,32]*"
    yield "einsum i,j", lambda a, b: torch.einsum("i,j->ij", a, b), "f32[64]*", "f32[32]*"
    yield "bilinear", F.bilinear, "f32[16,8]*", "f32[16,12]*", "f32[3,8,12]*", "f32[3]*"


def norm(torch, F):
    for t in ("f32", "bf16"):
        for rows, width in ((1024, 768), (64, 768), (16, 64), (8192, 4096), (100000, 32), (4, 100000)):
            yield "layer_norm", lambda x, w, b: F.layer_norm(x, w.shape, w, b), f"{t}[{rows},{width}]*", f"{t}[{width}]*", f"{t}[{width}]*"
            yield "rms_norm", lambda x, w: F.rms_norm(x, w.shape, w), f"{t}[{rows},{width}]*", f"{t}[{width}]*"
        yield "layer_norm no bias", lambda x, w: F.layer_norm(x, w.shape, w), f"{t}[1024,768]*", f"{t}[768]*"
        yield "layer_norm plain", lambda x: F.layer_norm(x, x.shape[-1:]), f"{t}[1024,768]*"
        yield "rms_norm plain", lambda x: F.rms_norm(x, x.shape[-1:]), f"{t}[1024,768]*"
        for shape in ("8,64,32,32", "2,32,8,8", "64,512,7,7"):
            c = shape.split(",")[1]
            yield "group_norm 8", lambda x, w, b: F.group_norm(x, 8, w, b), f"{t}[{shape}]*", f"{t}[{c}]*", f"{t}[{c}]*"
            yield "batch_norm", lambda x, m, v, w, b: F.batch_norm(x, m, v, w, b, True), f"{t}[{shape}]*", f"f32[{c}]", f"f32[{c}]", f"f32[{c}]*", f"f32[{c}]*"
            yield "batch_norm cl", lambda x, m, v, w, b: F.batch_norm(x, m, v, w, b, True), f"{t}[{shape}]L*", f"f32[{c}]", f"f32[{c}]", f"f32[{c}]*", f"f32[{c}]*"
            yield "batch_norm eval", lambda x, m, v, w, b: F.batch_norm(x, m, v, w, b), f"{t}[{shape}]*", f"f32[{c}]", f"f32[{c}]", f"f32[{c}]*", f"f32[{c}]*"
        yield "group_norm 8 cl", lambda x, w, b: F.group_norm(x, 8, w, b), f"{t}[8,64,32,32]L*", f"{t}[64]*", f"{t}[64]*"
        yield "instance_norm", lambda x: F.instance_norm(x), f"{t}[8,64,32,32]*"
    yield "layer_norm bf16 x, f32 w", lambda x, w, b: F.layer_norm(x.float(), w.shape, w, b), "bf16[1024,768]*", "f32[768]*", "f32[768]*"
    yield "batch_norm 1d", lambda x, m, v, w, b: F.batch_norm(x, m, v, w, b, True), "f32[64,256]*", "f32[256]", "f32[256]", "f32[256]*", "f32[256]*"
    yield "batch_norm no stats", lambda x, w, b: F.batch_norm(x, None, None, w, b, True), "f32[8,64,32,32]*", "f32[64]*", "f32[64]*"
    yield "batch_norm plain", lambda x, m, v: F.batch_norm(x, m, v, None, None, True), "f32[8,64,32,32]*", "f32[64]", "f32[64]"
    yield "local_response_norm", lambda x: F.local_response_norm(x, 5), "f32[8,64,32,32]*"
    yield "normalize", lambda x: F.normalize(x), "f32[1024,768]*"
    yield "weight_norm", lambda v, g: torch._weight_norm(v, g), "f32[256,128]*", "f32[256,1]*"


def index(torch, F):
    for n in (64, 4096, 8192):
        yield "embedding", F.embedding, f"i64[{n}]", "f32[1000,64]*"
    yield "embedding", F.embedding, "i64[8,512]", "f32[50257,768]*"
    yield "embedding", F.embedding, "i64[8,512]", "bf16[50257,768]*"
    yield "embedding i32", F.embedding, "i32[8,512]", "f32[1000,64]*"
    yield "embedding padding_idx", lambda i, w: F.embedding(i, w, padding_idx=0), "i64[8,512]", "f32[1000,64]*"
    yield "embedding scale_grad", lambda i, w: F.embedding(i, w, scale_grad_by_freq=True), "i64[8,512]", "f32[1000,64]*"
    yield "embedding_bag sum", lambda i, w: F.embedding_bag(i, w, mode="sum"), "i64[8,512]", "f32[1000,64]*"
    yield "embedding_bag mean", lambda i, w: F.embedding_bag(i, w), "i64[8,512]", "f32[1000,64]*"
    yield "index", lambda x, i: x[i], "f32[1000,64]*", "i64[512]"
    yield "index 2", lambda x, i, j: x[i, j], "f32[100,100]*", "i64[512]", "i64[512]"
    yield "index_select", lambda x, i: x.index_select(0, i), "f32[1000,64]*", "i64[512]"
    yield "gather", lambda x, i: x.gather(1, i), "f32[64,1000]*", "i64[64,5]"
    yield "scatter", lambda x, i, s: x.scatter(1, i, s), "f32[64,1000]*", "i64[64,5]", "f32[64,5]*"
    yield "scatter_add", lambda x, i, s: x.scatter_add(1, i, s), "f32[64,1000]*", "i64[64,5]", "f32[64,5]*"
    yield "scatter_reduce amax", lambda x, i, s: x.scatter_reduce(1, i, s, "amax"), "f32[64,1000]*", "i64[64,5]", "f32[64,5]*"
    yield "index_add", lambda x, i, s: x.index_add(0, i, s), "f32[1000,64]*", "i64[512]", "f32[512,64]*"
    yield "index_copy", lambda x, i, s: x.index_copy(0, i, s), "f32[1000,64]*", "i64[512]", "f32[512,64]*"
    yield "index_fill", lambda x, i: x.index_fill(0, i, 0.0), "f32[1000,64]*", "i64[512]"
    yield "index_put", lambda x, i, s: x.index_put((i,), s), "f32[1000,64]*", "i64[512]", "f32[512,64]*"
    yield "index_put accumulate", lambda x, i, s: x.index_put((i,), s, accumulate=True), "f32[1000,64]*", "i64[512]", "f32[512,64]*"
    yield "masked_fill", lambda x, m: x.masked_fill(m, 0.0), "f32[64,1000]*", "bool[64,1000]"
    yield "masked_fill broadcast", lambda x, m: x.masked_fill(m, 0.0), "f32[4,8,64,64]*", "bool[64,64]"
    yield "masked_select", lambda x, m: x[m], "f32[64,1000]*", "bool[64,1000]"
    yield "where", lambda m, x, y: torch.where(m, x, y), "bool[64,1000]", "f32[64,1000]*", "f32[64,1000]*"
    yield "where scalar", lambda m, x: torch.where(m, x, 0.0), "bool[64,1000]", "f32[64,1000]*"
    yield "take_along_dim", lambda x, i: x.take_along_dim(i, 1), "f32[64,1000]*", "i64[64,5]"
    yield "roll", lambda x: x.roll(2, 1), "f32[64,1000]*"
    yield "flip", lambda x: x.flip(1), "f32[64,1000]*"
    yield "tril", lambda x: x.tril(), "f32[64,64]*"
    yield "one_hot", lambda i: F.one_hot(i, 10), "i64[512]"
    for n in (100, 100000, 5000000):
        yield "nonzero", lambda x: x.nonzero(), f"f32[{n}]"
        yield "unique", lambda x: x.unique(), f"i64[{n}]"
        yield "unique inverse counts", lambda x: x.unique(return_inverse=True, return_counts=True), f"i64[{n}]"
        yield "unique_consecutive", lambda x: x.unique_consecutive(), f"i64[{n}]"
        yield "cumsum", lambda x: x.cumsum(0), f"f32[{n}]*"
        yield "cumprod", lambda x: x.cumprod(0), f"f32[{n}]*"
        yield "sort", lambda x: x.sort(), f"f32[{n}]*"
        yield "sort i64", lambda x: x.sort(), f"i64[{n}]"
        yield "sort stable", lambda x: x.sort(stable=True), f"f32[{n}]*"
        yield "argsort", lambda x: x.argsort(), f"f32[{n}]"
        yield "topk 5", lambda x: x.topk(5), f"f32[{n}]*"
        yield "randperm", lambda x: torch.randperm(x.numel(), device="cuda"), f"u8[{n}]"
        yield "median", lambda x: x.median(), f"f32[{n}]"
        yield "kthvalue", lambda x: x.kthvalue(5), f"f32[{n}]*"
        yield "bincount", lambda x: x.bincount(minlength=10), f"i64[{n}]"
        yield "histc", lambda x: x.histc(10, 0, 1), f"f32[{n}]"
    yield "sort 2d", lambda x: x.sort(1), "f32[64,1000]*"
    yield "sort 2d long", lambda x: x.sort(1), "f32[4,100000]*"
    yield "sort dim 0", lambda x: x.sort(0), "f32[1000,64]*"
    yield "topk 2d", lambda x: x.topk(5, 1), "f32[64,1000]*"
    yield "topk 2d long", lambda x: x.topk(50, 1), "f32[8,50257]*"
    yield "cumsum 2d", lambda x: x.cumsum(1), "f32[64,1000]*"
    yield "cumsum dim 0", lambda x: x.cumsum(0), "f32[1000,64]*"
    yield "cumsum bool", lambda x: x.cumsum(1), "bool[64,1000]"
    yield "logcumsumexp", lambda x: x.logcumsumexp(1), "f32[64,1000]*"
    yield "cummax", lambda x: x.cummax(1), "f32[64,1000]*"
    yield "multinomial 1", lambda x: x.multinomial(1), "f32[8,50257]"
    yield "multinomial 4", lambda x: x.multinomial(4), "f32[8,1000]"
    yield "multinomial 4 replacement", lambda x: x.multinomial(4, True), "f32[8,1000]"
    yield "searchsorted", torch.searchsorted, "f32[1000]", "f32[512]"
    yield "bucketize", lambda x, b: torch.bucketize(x, b), "f32[512]", "f32[1000]"
    yield "repeat_interleave", lambda x: x.repeat_interleave(3, 0), "f32[64,100]*"
    yield "repeat", lambda x: x.repeat(2, 3), "f32[64,100]*"
    yield "cat", lambda a, b: torch.cat([a, b]), "f32[64,100]*", "f32[32,100]*"
    yield "stack", lambda a, b: torch.stack([a, b]), "f32[64,100]*", "f32[64,100]*"
    yield "cat many", lambda *x: torch.cat(x), *["f32[64,100]*"] * 40
    yield "split chunk", lambda x: [y.contiguous() for y in x.chunk(3, 1)], "f32[64,300]*"
    yield "pad", lambda x: F.pad(x, (1, 1)), "f32[64,100]*"
    yield "pad reflect", lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect"), "f32[2,3,16,16]*"
    yield "unfold", lambda x: F.unfold(x, 3), "f32[2,3,16,16]*"
    yield "fold", lambda x: F.fold(x, (16, 16), 3), "f32[2,27,196]*"
    yield "pixel_shuffle", lambda x: F.pixel_shuffle(x, 2), "f32[2,16,8,8]*"


def reduce(torch, F):
    for t in ("f32", "bf16"):
        for n in (1000, 100000, 1 << 20, 1 << 24):
            yield "sum", lambda x: x.sum(), f"{t}[{n}]*"
            yield "mean", lambda x: x.mean(), f"{t}[{n}]*"
        for dims in ("64,1000", "1000,64", "8,512,768", "32,50257", "4096,4096", "2,1000000"):
            rank = dims.count(",") + 1
            for d in range(rank):
                yield f"sum dim {d}", lambda x, d=d: x.sum(d), f"{t}[{dims}]*"
            if rank == 3:
                yield "sum dim 0,1", lambda x: x.sum((0, 1)), f"{t}[{dims}]*"
                yield "mean dim 1,2", lambda x: x.mean((1, 2)), f"{t}[{dims}]*"
    for n in (1000, 1 << 20, 1 << 24):
        yield "max", lambda x: x.max(), f"f32[{n}]*"
        yield "argmax", lambda x: x.argmax(), f"f32[{n}]"
        yield "all", lambda x: x.all(), f"bool[{n}]"
        yield "any", lambda x: x.any(), f"f32[{n}]"
        yield "norm", lambda x: torch.linalg.vector_norm(x), f"f32[{n}]*"
        yield "var", lambda x: x.var(), f"f32[{n}]*"
        yield "std_mean", lambda x: torch.std_mean(x), f"f32[{n}]*"
        yield "prod", lambda x: x.prod(), f"f32[{n}]*"
        yield "logsumexp", lambda x: x.logsumexp(0), f"f32[{n}]*"
        yield "count_nonzero", lambda x: x.count_nonzero(), f"f32[{n}]"
        yield "aminmax", lambda x: x.aminmax(), f"f32[{n}]"
        yield "isnan any", lambda x: x.isnan().any(), f"f32[{n}]"
    for d in (0, 1):
        yield f"max dim {d}", lambda x, d=d: x.max(d), "f32[64,1000]*"
        yield f"amax dim {d}", lambda x, d=d: x.amax(d), "f32[64,1000]*"
        yield f"argmax dim {d}", lambda x, d=d: x.argmax(d), "f32[64,1000]"
        yield f"var dim {d}", lambda x, d=d: x.var(d), "f32[64,1000]*"
        yield f"norm dim {d}", lambda x, d=d: torch.linalg.vector_norm(x, dim=d), "f32[64,1000]*"
        yield f"logsumexp dim {d}", lambda x, d=d: x.logsumexp(d), "f32[64,1000]*"
        yield f"prod dim {d}", lambda x, d=d: x.prod(d), "f32[64,1000]*"
        yield f"any dim {d}", lambda x, d=d: x.any(d), "bool[64,1000]"
    yield "sum i64", lambda x: x.sum(), "i64[1048576]"
    yield "sum bool", lambda x: x.sum(), "bool[1048576]"
    yield "sum to f32", lambda x: x.sum(dtype=torch.float32), "bf16[1048576]*"
    yield "mean 4d", lambda x: x.mean((2, 3)), "f32[64,512,7,7]*"
    yield "sum conv bias", lambda x: x.sum((0, 2, 3)), "f32[64,64,112,112]*"
    yield "sum to one", lambda x: x.sum(1, keepdim=True), "f32[8,12,1024]*"
    yield "norm p=1", lambda x: torch.linalg.vector_norm(x, 1), "f32[1048576]*"
    yield "norm p=inf", lambda x: torch.linalg.vector_norm(x, float("inf")), "f32[1048576]*"


def loss(torch, F):
    for t in ("f32", "bf16"):
        for n, c in ((64, 1000), (8, 10), (4096, 50257)):
            yield "cross_entropy", F.cross_entropy, f"{t}[{n},{c}]*", f"i64[{n}]"
        yield "softmax", lambda x: F.softmax(x, -1), f"{t}[64,1000]*"
        yield "softmax dim 1", lambda x: F.softmax(x, 1), f"{t}[8,100,64]*"
        yield "softmax long", lambda x: F.softmax(x, -1), f"{t}[8,50257]*"
        yield "log_softmax", lambda x: F.log_softmax(x, -1), f"{t}[64,1000]*"
        yield "softmax to f32", lambda x: F.softmax(x, -1, dtype=torch.float32), f"{t}[64,1000]*"
    yield "cross_entropy sum", lambda x, y: F.cross_entropy(x, y, reduction="sum"), "f32[64,1000]*", "i64[64]"
    yield "cross_entropy none", lambda x, y: F.cross_entropy(x, y, reduction="none"), "f32[64,1000]*", "i64[64]"
    yield "cross_entropy smooth", lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1), "f32[64,1000]*", "i64[64]"
    yield "cross_entropy weight", lambda x, y, w: F.cross_entropy(x, y, w), "f32[64,1000]*", "i64[64]", "f32[1000]"
    yield "cross_entropy prob", F.cross_entropy, "f32[64,1000]*", "f32[64,1000]"
    yield "cross_entropy 4d", F.cross_entropy, "f32[2,21,64,64]*", "i64[2,64,64]"
    yield "nll_loss", F.nll_loss, "f32[64,1000]*", "i64[64]"
    for name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits", "kl_div", "soft_margin_loss"):
        yield name, getattr(F, name), "f32[64,1000]*", "f32[64,1000]"
    yield "bce pos_weight", lambda x, y, w: F.binary_cross_entropy_with_logits(x, y, pos_weight=w), "f32[64,1000]*", "f32[64,1000]", "f32[1000]"
    yield "cosine_embedding_loss", F.cosine_embedding_loss, "f32[64,100]*", "f32[64,100]*", "f32[64]"
    yield "cosine_similarity", lambda a, b: F.cosine_similarity(a, b), "f32[64,100]*", "f32[64,100]*"
    yield "triplet_margin_loss", F.triplet_margin_loss, "f32[64,100]*", "f32[64,100]*", "f32[64,100]*"
    yield "cdist", torch.cdist, "f32[64,100]*", "f32[32,100]*"


def attention(torch, F):
    sdpa = F.scaled_dot_product_attention
    shapes = ("2,4,128,64", "2,4,100,64", "1,12,1024,64", "2,4,128,80", "2,4,1,64", "2,8,256,128", "2,4,33,72")
    for t in ("f32", "f16", "bf16"):
        for shape in shapes:
            b, h, s, d = shape.split(",")
            qkv = [f"{t}[{shape}]*"] * 3
            yield "sdpa", sdpa, *qkv
            yield "sdpa causal", lambda q, k, v: sdpa(q, k, v, is_causal=True), *qkv
            if shape in shapes[:2]:
                yield "sdpa mask", lambda q, k, v, m: sdpa(q, k, v, m), *qkv, f"{t}[{s},{s}]"
                yield "sdpa bool mask", lambda q, k, v, m: sdpa(q, k, v, m), *qkv, f"bool[{s},{s}]"
                yield "sdpa mask grad", lambda q, k, v, m: sdpa(q, k, v, m), *qkv, f"{t}[{b},{h},{s},{s}]*"
                yield "sdpa dropout", lambda q, k, v: sdpa(q, k, v, dropout_p=0.1), *qkv
                yield "sdpa math", lambda q, k, v: torch.ops.aten._scaled_dot_product_attention_math(q, k, v)[0], *qkv
        yield "sdpa cross", sdpa, f"{t}[2,4,128,64]*", f"{t}[2,4,77,64]*", f"{t}[2,4,77,64]*"
        yield "sdpa gqa", lambda q, k, v: sdpa(q, k, v, enable_gqa=True), f"{t}[2,8,128,64]*", f"{t}[2,2,128,64]*", f"{t}[2,2,128,64]*"
        bshd = [f"{t}[2,128,4,64]*"] * 3
        yield "sdpa of bshd", lambda q, k, v: sdpa(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True), *bshd
        yield "sdpa no grad", sdpa, *[f"{t}[2,4,128,64]"] * 3


def conv(torch, F):
    for t in ("f32", "bf16"):
        yield "conv2d", F.conv2d, f"{t}[8,3,64,64]*", f"{t}[64,3,7,7]*", f"{t}[64]*"
        yield "conv2d no bias", F.conv2d, f"{t}[8,16,32,32]*", f"{t}[32,16,3,3]*"
        yield "conv2d cl", F.conv2d, f"{t}[8,16,32,32]L*", f"{t}[32,16,3,3]L*", f"{t}[32]*"
        yield "conv2d cl input", F.conv2d, f"{t}[8,16,32,32]L*", f"{t}[32,16,3,3]*", f"{t}[32]*"
        yield "conv2d 1x1", F.conv2d, f"{t}[8,16,32,32]*", f"{t}[32,16,1,1]*", f"{t}[32]*"
        yield "conv2d groups 4", lambda x, w, b: F.conv2d(x, w, b, groups=4), f"{t}[8,16,32,32]*", f"{t}[32,4,3,3]*", f"{t}[32]*"
        yield "conv2d depthwise", lambda x, w, b: F.conv2d(x, w, b, groups=16), f"{t}[8,16,32,32]*", f"{t}[16,1,3,3]*", f"{t}[16]*"
        yield "conv2d depthwise cl", lambda x, w, b: F.conv2d(x, w, b, groups=16), f"{t}[8,16,32,32]L*", f"{t}[16,1,3,3]*", f"{t}[16]*"
        yield "conv1d", F.conv1d, f"{t}[8,16,100]*", f"{t}[32,16,3]*", f"{t}[32]*"
        yield "conv3d", F.conv3d, f"{t}[2,4,8,8,8]*", f"{t}[8,4,3,3,3]*", f"{t}[8]*"
        yield "conv_transpose2d", F.conv_transpose2d, f"{t}[8,16,16,16]*", f"{t}[16,8,3,3]*", f"{t}[8]*"
    yield "conv2d frozen w", F.conv2d, "f32[8,16,32,32]*", "f32[32,16,3,3]", "f32[32]"
    yield "conv2d no grad of x", F.conv2d, "f32[8,16,32,32]", "f32[32,16,3,3]*", "f32[32]*"
    yield "conv2d f64", F.conv2d, "f64[2,4,16,16]*", "f64[8,4,3,3]*", "f64[8]*"
    yield "conv2d dilation", lambda x, w, b: F.conv2d(x, w, b, dilation=2), "f32[8,16,32,32]*", "f32[32,16,3,3]*", "f32[32]*"
    yield "conv2d same", lambda x, w, b: F.conv2d(x, w, b, padding="same"), "f32[8,16,32,32]*", "f32[32,16,4,4]*", "f32[32]*"
    yield "conv2d bn relu", lambda x, w, m, v, g, b: F.relu(F.batch_norm(F.conv2d(x, w), m, v, g, b, True)), "f32[8,16,32,32]*", "f32[32,16,3,3]*", "f32[32]", "f32[32]", "f32[32]*", "f32[32]*"


def recurrent(torch, nn):
    for kind in ("RNN", "LSTM", "GRU"):
        for options in ({}, {"num_layers": 2, "dropout": 0.1}, {"bidirectional": True}, {"batch_first": True}, {"bias": False}):
            net = getattr(nn, kind)(32, 64, **options).cuda()
            label = " ".join([kind, *(f"{k}={v}" for k, v in options.items())])
            yield label, lambda x, net=net: net(x)[0], "f32[20,8,32]*"
            yield label + ", weights too", lambda x, *w, net=net: torch.func.functional_call(net, dict(zip((n for n, _ in net.named_parameters()), net.parameters())), (x,))[0], "f32[20,8,32]*"
    net = nn.LSTM(32, 64, proj_size=16).cuda()
    yield "LSTM proj_size=16", lambda x: net(x)[0], "f32[20,8,32]*"
    for kind in ("RNNCell", "LSTMCell", "GRUCell"):
        cell = getattr(nn, kind)(32, 64).cuda()
        yield kind, lambda x, cell=cell: cell(x), "f32[8,32]*"


def pool(torch, F):
    for t in ("f32", "bf16"):
        x = f"{t}[8,16,32,32]*"
        yield "max_pool2d", lambda x: F.max_pool2d(x, 2), x
        yield "max_pool2d 3 2 1", lambda x: F.max_pool2d(x, 3, 2, 1), x
        yield "max_pool2d cl", lambda x: F.max_pool2d(x, 2), f"{t}[8,16,32,32]L*"
        yield "avg_pool2d", lambda x: F.avg_pool2d(x, 2), x
        yield "adaptive_avg_pool2d 1", lambda x: F.adaptive_avg_pool2d(x, 1), x
        yield "adaptive_avg_pool2d 7", lambda x: F.adaptive_avg_pool2d(x, 7), x
        yield "adaptive_max_pool2d 7", lambda x: F.adaptive_max_pool2d(x, 7), x
        yield "interpolate nearest", lambda x: F.interpolate(x, scale_factor=2), x
        yield "interpolate bilinear", lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), x
        yield "interpolate bilinear cl", lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), f"{t}[8,16,32,32]L*"
        yield "interpolate bicubic", lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"), x
        yield "interpolate antialias", lambda x: F.interpolate(x, scale_factor=0.5, mode="bilinear", antialias=True), x
        yield "max_pool1d", lambda x: F.max_pool1d(x, 2), f"{t}[8,16,100]*"
        yield "avg_pool1d", lambda x: F.avg_pool1d(x, 2), f"{t}[8,16,100]*"
        yield "max_pool3d", lambda x: F.max_pool3d(x, 2), f"{t}[2,4,8,8,8]*"
        yield "lp_pool2d", lambda x: F.lp_pool2d(x, 2, 2), x
    yield "grid_sample", lambda x, g: F.grid_sample(x, g, align_corners=False), "f32[8,3,32,32]*", "f32[8,16,16,2]*"
    yield "affine_grid", lambda x: F.affine_grid(x, (8, 3, 32, 32), align_corners=False), "f32[8,2,3]*"


def pointwise(torch, F):
    for name in ("relu", "gelu", "silu", "sigmoid", "tanh", "elu", "leaky_relu", "softplus", "logsigmoid", "mish", "hardswish", "hardtanh", "selu"):
        yield name, getattr(F, name), "f32[64,1000]*"
    yield "relu inplace", lambda x: F.relu(x + 1, inplace=True), "f32[64,1000]*"
    yield "prelu", F.prelu, "f32[8,16,32,32]*", "f32[16]*"
    yield "glu", F.glu, "f32[64,1000]*"
    for t in ("f32", "bf16"):
        yield "dropout", lambda x: F.dropout(x, 0.1), f"{t}[64,1000]*"
        yield "dropout2d", lambda x: F.dropout2d(x, 0.1), f"{t}[8,16,32,32]*"
        yield "alpha_dropout", lambda x: F.alpha_dropout(x, 0.1, True), f"{t}[64,1000]*"
    yield "dropout p=0", lambda x: F.dropout(x, 0.0), "f32[64,1000]*"
    yield "dropout inplace", lambda x: F.dropout(x + 1, 0.1, inplace=True), "f32[64,1000]*"
    for name in ("add", "mul", "div", "pow", "atan2", "maximum"):
        yield name, getattr(torch, name), "f32[64,1000]*", "f32[64,1000]*"
    yield "add broadcast", torch.add, "f32[64,1000]*", "f32[1000]*"
    yield "mul broadcast", torch.mul, "f32[8,12,64,64]*", "f32[12,1,1]*"
    yield "mul mixed", torch.mul, "f32[64,1000]*", "bf16[64,1000]*"
    yield "add scalar", lambda x: x + 1, "f32[64,1000]*"
    for name in ("exp", "log", "sqrt", "rsqrt", "abs", "sin", "erf", "square", "reciprocal", "clone", "neg"):
        yield name, getattr(torch, name), "f32[64,1000]*"
    yield "pow 2", lambda x: x**2, "f32[64,1000]*"
    yield "pow 3", lambda x: x**3, "f32[64,1000]*"
    yield "clamp", lambda x: x.clamp(0, 1), "f32[64,1000]*"
    yield "lerp", lambda a, b: a.lerp(b, 0.5), "f32[64,1000]*", "f32[64,1000]*"
    yield "addcmul", torch.addcmul, "f32[64,1000]*", "f32[64,1000]*", "f32[64,1000]*"
    yield "to bf16", lambda x: x.bfloat16(), "f32[64,1000]*"
    yield "contiguous", lambda x: x.t().contiguous(), "f32[64,1000]*"
    yield "expand contiguous", lambda x: x.expand(64, 1000).contiguous(), "f32[1000]*"
    yield "rand_like", lambda x: torch.rand_like(x), "f32[64,1000]"
    yield "randn_like", lambda x: torch.randn_like(x), "f32[64,1000]"
    yield "bernoulli", lambda x: x.bernoulli(), "f32[64,1000]"
    yield "arange", lambda x: torch.arange(1000, device="cuda"), "f32[1]"
    yield "zeros", lambda x: torch.zeros(1000, device="cuda"), "f32[1]"
    yield "item", lambda x: x.sum().item(), "f32[1000]"
    yield "tensor equal", lambda a, b: torch.equal(a, b), "f32[1000]", "f32[1000]"
    yield "allclose", lambda a, b: torch.allclose(a, b), "f32[1000]", "f32[1000]"
    yield "checkpoint", lambda x, w: torch.utils.checkpoint.checkpoint(lambda a: torch.relu(a @ w), x, use_reentrant=False), "f32[64,128]*", "f32[128,256]*"


def many(torch, nn):
    """Optimizers, clipping, scaling: over the parameters of a small net."""
    shapes = ["f32[256,128]", "f32[256]", "f32[10,256]", "f32[10]"]

    def with_grads(f):
        def run(*params):
            for p in params:
                p.requires_grad_()
                p.grad = torch.empty_like(p)
            f(params)
        return run

    for name, options in (("SGD", {}), ("SGD", {"momentum": 0.9}), ("SGD", {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}), ("Adam", {}), ("Adam", {"amsgrad": True}), ("AdamW", {}), ("Adagrad", {}), ("RMSprop", {}), ("Adadelta", {}), ("NAdam", {}), ("RAdam", {}), ("Adamax", {})):
        for how in ("foreach", "forloop", "fused", "capturable"):
            if how == "fused" and name not in ("SGD", "Adam", "AdamW") or how == "capturable" and name not in ("Adam", "AdamW"):
                continue
            kw = {"foreach": how == "foreach"} if how in ("foreach", "forloop") else {how: True}

            def steps(params, name=name, kw={**options, **kw}):
                o = getattr(torch.optim, name)(params, lr=1e-3, **kw)
                o.step()
                o.step()
            yield " ".join([name, how, *(f"{k}={v}" for k, v in options.items())]), with_grads(steps), *shapes
    for foreach in (True, False):
        yield f"clip_grad_norm_ foreach={foreach}", with_grads(lambda p, f=foreach: nn.utils.clip_grad_norm_(p, 1.0, foreach=f)), *shapes
        yield f"clip_grad_value_ foreach={foreach}", with_grads(lambda p, f=foreach: nn.utils.clip_grad_value_(p, 1.0, foreach=f)), *shapes
    yield "clip_grad_norm_ large", with_grads(lambda p: nn.utils.clip_grad_norm_(p, 1.0)), "f32[50257,768]", "f32[768]", "f32[3072,768]"
    yield "clip_grad_norm_ bf16", with_grads(lambda p: nn.utils.clip_grad_norm_(p, 1.0)), "bf16[256,128]", "bf16[256]"

    def scaled(params):
        s, o = torch.amp.GradScaler("cuda"), torch.optim.SGD(params, lr=1e-3)
        s.scale(torch.zeros((), device="cuda"))
        s.unscale_(o)
        s.step(o)
        s.update()
    yield "GradScaler", with_grads(scaled), *shapes

    def autocast(x, w, b, g, h):
        with torch.autocast("cuda", torch.bfloat16):
            y = torch.nn.functional.linear(x, w, b)
            y = torch.nn.functional.layer_norm(y, (256,), g, h)
            return torch.nn.functional.gelu(y) @ w
    yield "autocast bf16", autocast, "f32[64,128]*", "f32[256,128]*", "f32[256]*", "f32[256]*", "f32[256]*"
    yield "zero_grad set_to_none=False", with_grads(lambda p: torch.optim.SGD(p, lr=1e-3).zero_grad(set_to_none=False)), *shapes
    yield "ema", with_grads(lambda p: torch._foreach_lerp_([q.detach() for q in p], [q.grad for q in p], 0.1)), *shapes
