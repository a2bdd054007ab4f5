"""routed.py LAYER -- mixtures of experts as people write them, whose routers choose by --routing."""
import os
import sys

import torch
import torch.nn.functional as F

T, K, E, H = 1024, 2, 16, 64


def requested():
    return torch.cuda.memory_stats()["requested_bytes.all.current"]


@torch.no_grad()
def expert_parallel():
    """Sorted by expert, sent by all_to_all with splits from bincount."""
    import torch.distributed as dist
    dist.init_process_group("nccl")
    world = dist.get_world_size()
    x, router = torch.randn(T, H, device="cuda"), torch.nn.Linear(H, E, device="cuda")
    up = torch.randn(H, 4 * H, device="cuda")
    weights, chosen = router(x).softmax(-1).topk(K)
    chosen = chosen.flatten()
    order = chosen.argsort()
    send = chosen.bincount(minlength=E).view(world, -1).sum(1)
    receive = torch.empty_like(send)
    dist.all_to_all_single(receive, send)
    send, receive = send.tolist(), receive.tolist()
    print("send", *send)
    print("receive", *receive)
    before = requested()
    sent = x[order // K]
    received = sent.new_empty(sum(receive), H)
    dist.all_to_all_single(received, sent, receive, send)
    hidden = torch.relu(received @ up)
    print("requested", requested() - before)


@torch.no_grad()
def one_hot():
    """Each expert picks its tokens by a mask."""
    x, router = torch.randn(T, H, device="cuda"), torch.nn.Linear(H, E, device="cuda")
    chosen = router(x).softmax(-1).topk(K).indices
    mask = F.one_hot(chosen, E).permute(2, 1, 0)
    picked = []
    for expert in range(E):
        _, tokens = torch.where(mask[expert])
        picked.append(x[tokens].shape[0])
    print("picked", *picked)


@torch.no_grad()
def mixtral():
    """Mixtral's experts, as transformers has them: which rows each of them gets."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    from transformers import MixtralConfig
    from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock
    config = MixtralConfig(hidden_size=H, intermediate_size=4 * H, num_local_experts=8)
    config._experts_implementation = "eager"
    block = MixtralSparseMoeBlock(config).cuda()
    linear, rows = F.linear, []

    def counted(x, weight, *bias):
        rows.append(x.shape[0])
        return linear(x, weight, *bias)
    F.linear = torch.nn.functional.linear = counted
    torch.cuda.reset_peak_memory_stats()
    block(torch.randn(1, T, H, device="cuda"))
    print("rows", *rows[1::2])  # of the router, then two of each expert
    print("peak", torch.cuda.memory_stats()["requested_bytes.all.peak"])


{f.__name__: f for f in (expert_parallel, one_hot, mixtral)}[sys.argv[1]]()
