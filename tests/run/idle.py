"""A script that asks nothing of its card."""
import torch

assert torch.cuda.is_available()
