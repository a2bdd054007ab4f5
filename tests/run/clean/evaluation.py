import torch
from torch import nn


@torch.no_grad()
def evaluate(model, batches):
    model.eval()
    outputs = [model(x) for x in batches]
    model.train()
    return torch.cat(outputs).mean()


def main():
    model = nn.Sequential(nn.Linear(128, 128), nn.BatchNorm1d(128), nn.Linear(128, 4)).cuda()
    optimizer = torch.optim.Adam(model.parameters(), amsgrad=True)
    batches = [torch.randn(32, 128, device="cuda") for _ in range(3)]
    best, best_state = None, None
    for step in range(12):
        loss = model(batches[step % 3]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 2 == 1:
            score = evaluate(model, batches)
            if best is None or step % 4 == 1:
                best = score
                best_state = {k: v.clone() for k, v in model.state_dict().items()}


main()
