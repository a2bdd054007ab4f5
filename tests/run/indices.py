"""What indexing by several tensors requests, as PyTorch's CUDA code does: this script is run on
both routes, with a CPU build and with a CUDA build on stub libraries."""
import torch

torch.cuda.memory._record_memory_history()
x = torch.zeros(4, 128, dtype=torch.long, device="cuda")
y = torch.zeros(4, 128, 64, device="cuda", requires_grad=True)
z = torch.zeros(4, 128, 64, device="cuda")
column = torch.arange(128, device="cuda")
rows, same = column[:4, None], column[:4]

CASES = [
    ("as many rows as columns", lambda: x[same, same], "+32"),
    ("rows and columns", lambda: x[rows, column], "+4096 +4096 +4096 -4096 -4096"),
    ("a slice in between", lambda: z[rows, :, column[None, :7] % 64], "+56 +224 +224 +14336 -224 -224 -56"),
    ("32-bit indices", lambda: x[same.int()], "+16 +32 +4096 -16 -32"),
    ("a number written", lambda: x.__setitem__((rows, column), 1), "+8 +4096 +4096 -4096 -4096 -8"),
    ("the gradient of all", lambda: y[rows, column].sum().backward(),
     "+4096 +4096 +131072 -4096 -4096 +4 -131072 +4 +131072 +4096 +4096 -4096 +4096 +4096 -4096 -4096 "
     "+131072 +4096 +4096 +4096 +1 -1 -131072 -4096 -4096 -4096 -4096 -4 -4"),
]


def events():
    signs = {"alloc": "+", "free_completed": "-"}
    return [signs[e["action"]] + str(e["size"])
            for e in torch.cuda.memory._snapshot()["device_traces"][0] if e["action"] in signs]


def settled(words):
    """What is released between two requests, in any order."""
    out, released = [], []
    for word in words:
        if word[0] == "-":
            released.append(word)
        else:
            out += sorted(released) + [word]
            released = []
    return out + sorted(released)


for name, run, wanted in CASES:
    before = len(events())
    kept = run()
    made = settled(events()[before:])
    assert made == settled(wanted.split()), (name, made)
    kept = None
print("fine")
