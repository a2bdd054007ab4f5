"""REINFORCE: an episode's log-probabilities are collected, used once, and cleared."""
import collections

import torch
from torch import nn
from torch.distributions import Categorical


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 32), nn.Dropout(0.6), nn.ReLU(), nn.Linear(32, 2))
        self.log_probs, self.rewards = [], []

    def forward(self, x):
        return self.layers(x).softmax(dim=1)


def finish_episode():
    future, returns = 0, collections.deque()
    for reward in policy.rewards[::-1]:
        future = reward + 0.99 * future
        returns.appendleft(future)
    returns = torch.tensor(returns)
    returns = (returns - returns.mean()) / (returns.std() + 1e-6)
    losses = [-p * r for p, r in zip(policy.log_probs, returns.to("cuda"))]
    optimizer.zero_grad()
    torch.cat(losses).sum().backward()
    optimizer.step()
    del policy.rewards[:]
    del policy.log_probs[:]


policy = Policy().cuda()
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
for episode in range(8):
    for _ in range(4 + episode):
        state = torch.randn(1, 4).cuda()
        action = Categorical(policy(state), validate_args=False)
        policy.log_probs.append(action.log_prob(action.sample()))
        policy.rewards.append(1.0)
    finish_episode()
