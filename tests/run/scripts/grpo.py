"""Group-relative policy optimization: sampled answers, rewarded, then learned from."""
# peak: 14570376
import copy

import torch
from torch import nn
from torch.nn import functional as F

vocabulary, end, group = 512, 1, 8
policy = nn.Sequential(nn.Embedding(vocabulary, 128), nn.Linear(128, 256), nn.GELU(),
                       nn.Linear(256, vocabulary)).cuda()
reference = copy.deepcopy(policy).eval().requires_grad_(False)
optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-5)


@torch.no_grad()
def generate(tokens, most=24):
    done = torch.zeros(tokens.size(0), dtype=torch.bool, device="cuda")
    for _ in range(most):
        chances = F.softmax(policy(tokens)[:, -1] / 0.9, dim=-1)
        token = torch.multinomial(chances, 1).squeeze(1).masked_fill(done, end)
        tokens = torch.cat([tokens, token[:, None]], 1)
        done |= token == end
        if done.all():
            break
    return tokens


def log_probs(model, tokens):
    return F.log_softmax(model(tokens[:, :-1]), -1).gather(2, tokens[:, 1:, None]).squeeze(2)


for step in range(2):
    tokens = generate(torch.randint(2, vocabulary, (4, 16)).repeat_interleave(group, 0).cuda())
    rewards = torch.tensor([float(len(set(row.tolist()))) for row in tokens]).cuda().view(-1, group)
    advantage = ((rewards - rewards.mean(1, True)) / (rewards.std(1, keepdim=True) + 1e-4)).view(-1, 1)
    with torch.no_grad():
        kept = log_probs(reference, tokens)
    new = log_probs(policy, tokens)
    penalty = (kept - new).exp() - (kept - new) - 1
    loss = -((new - new.detach()).exp() * advantage - 0.04 * penalty).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {step}: {tokens.size(1) - 16} tokens, loss {loss.item():.4f}")
