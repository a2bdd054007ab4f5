"""Three tensors' life: what PyTorch's allocator keeps."""
import torch


def show():
    print(f"{torch.cuda.memory_allocated()}/{torch.cuda.memory_reserved()}")


x = torch.empty(5, 1024, 1024, device="cuda")
show()
del x
y = torch.empty(4, 1024, 1024, device="cuda")
show()
del y
torch.cuda.empty_cache()
show()
