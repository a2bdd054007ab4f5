"""loop.py NAME SETTING -- two training steps of a model of models.py on the GPU, as
most scripts write them.  Run it with `plimsoll run`."""

import copy
import sys

import torch
import torch.nn.functional as F

import models

SETTINGS = {  # name: (optimizer, autocast, checkpoint)
    "sgd": (lambda p: torch.optim.SGD(p, lr=1e-3), False, False),
    "adamw": (lambda p: torch.optim.AdamW(p, lr=1e-3), False, False),
    "autocast": (lambda p: torch.optim.AdamW(p, lr=1e-3), True, False),
    "checkpoint": (lambda p: torch.optim.SGD(p, lr=1e-3), False, True),
}


def target_of(out):
    if out.dim() == 3:  # scored token by token
        return torch.zeros(out.shape[:2], dtype=torch.long)
    return torch.zeros((out.shape[0],) + tuple(out.shape[2:]), dtype=torch.long)


def loss_of(out, target):
    """The model's own loss, or cross entropy of each head, auxiliary ones at 0.4."""
    heads = heads_of(out)
    if heads[0].dim() == 0:
        return heads[0]
    heads = [h for h in heads if torch.is_tensor(h) and h.shape == heads[0].shape]

    def one(head):
        if head.dim() == 3:
            return F.cross_entropy(head.reshape(-1, head.shape[2]), target.reshape(-1))
        return F.cross_entropy(head, target)

    loss = one(heads[0])
    for head in heads[1:]:
        loss = loss + 0.4 * one(head)
    return loss


def first_output(model, args, kwargs):
    """The first output on the meta device: for the size of what is to be scored."""
    def meta(x):
        return x.to("meta") if torch.is_tensor(x) else x
    twin = copy.deepcopy(model).to("meta")
    with torch.no_grad():
        return heads_of(twin(*map(meta, args), **{k: meta(v) for k, v in kwargs.items()}))[0]


def heads_of(out):
    """What a model returned, as a list: a dict or tuple of tensors, or one."""
    values = list(out.values()) if isinstance(out, dict) else out
    return list(values) if isinstance(values, (tuple, list)) else [values]


def main(name, setting):
    make_optimizer, autocast, checkpoint = SETTINGS[setting]
    model, args, kwargs = models.make(name)
    scores_itself = "labels" in kwargs or "return_loss" in kwargs
    target = None if scores_itself else target_of(first_output(model, args, kwargs))
    if checkpoint:
        models.checkpoint(name, model)
    model.cuda()
    optimizer = make_optimizer(model.parameters())
    host = args, kwargs, target
    for _ in range(2):
        args, kwargs, target = move(host)
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
            out = model(*args, **kwargs)
            loss = loss_of(out, target)
        loss.backward()
        optimizer.step()


def move(host):
    args, kwargs, target = host
    return (tuple(a.cuda() for a in args),
            {k: v.cuda() if torch.is_tensor(v) else v for k, v in kwargs.items()},
            None if target is None else target.cuda())


if __name__ == "__main__":
    main(*sys.argv[1:])
