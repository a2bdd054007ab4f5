"""Reductions that record.py calls: ops, types, layouts and dims by chance, always the same."""
import random

SIZES = (1, 2, 3, 4, 5, 7, 8, 12, 16, 31, 32, 33, 64, 96, 127, 128, 129, 192, 224, 256, 257, 384, 512, 640, 1000, 1024, 1025, 2048, 3000, 4096, 5000, 8192, 16384, 50257, 65536, 100000)
FLOATS = ("f32", "bf16", "f32", "bf16", "f16", "f64")
MOST, LEAST, CASES = 1 << 29, 1 << 13, 320


def cases(torch):
    norm = torch.linalg.vector_norm
    several = {
        "sum": torch.sum,
        "mean": torch.mean,
        "norm": lambda x, d: norm(x, dim=d),
        "amax": torch.amax,
        "amin": torch.amin,
        "var": torch.var,
        "std_mean": torch.std_mean,
    }
    one = {
        "prod": torch.prod,
        "max": torch.max,
        "min": torch.min,
        "argmax": torch.argmax,
        "any": torch.any,
        "all": torch.all,
        "aminmax": lambda x, d: torch.aminmax(x, dim=d),
    }
    dice = random.Random(11)
    seen = set()
    while len(seen) < CASES:
        shape = [dice.choice(SIZES) for _ in range(dice.randint(1, 4))]
        numel = 1
        for n in shape:
            numel *= n
        name = dice.choice([*several, *several, *one])
        dims = tuple(sorted(dice.sample(range(len(shape)), dice.randint(1, len(shape)))))
        layout = dice.choice(("", "", "T" if len(shape) > 1 else "", "L" if len(shape) == 4 else ""))
        kind = dice.choice(("bool", "u8", "f32")) if name in ("any", "all") else dice.choice(FLOATS)
        if name in one:
            dims = dims[:1]
        key = f"{name} {','.join(map(str, dims))} {kind}[{','.join(map(str, shape))}]{layout}"
        if not LEAST <= numel <= MOST or key in seen:
            continue
        seen.add(key)
        f, d = (several[name], dims) if name in several else (one[name], dims[0])
        yield f"{name} {','.join(map(str, dims))}", (lambda x, f=f, d=d: f(x, d)), key.split()[-1]
