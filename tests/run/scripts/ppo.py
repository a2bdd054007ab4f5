"""Proximal policy optimization, with an environment that lives on the CPU."""
# peak: 228424
import torch
from torch import nn
from torch.distributions import Categorical

actor = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 4)).cuda()
critic = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 1)).cuda()
optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=2.5e-4)
for update in range(2):
    states, actions, logs, rewards, values = [], [], [], [], []
    state = torch.zeros(16, 8)
    for _ in range(32):
        with torch.no_grad():
            policy = Categorical(logits=actor(state.cuda()))
            action = policy.sample()
            values.append(critic(state.cuda()).flatten())
        states.append(state.cuda()), actions.append(action), logs.append(policy.log_prob(action))
        state = state + action.cpu().float()[:, None]
        rewards.append(state.mean(1).cuda())
    gain, returns = torch.zeros(16, device="cuda"), []
    for reward in reversed(rewards):
        gain = reward + 0.99 * gain
        returns.insert(0, gain)
    s, a, old, r, v = (torch.cat(x) for x in (states, actions, logs, returns, values))
    for epoch in range(2):
        for index in torch.randperm(len(s), device="cuda").split(128):
            policy = Categorical(logits=actor(s[index]))
            ratio = (policy.log_prob(a[index]) - old[index]).exp()
            advantage = r[index] - v[index]
            loss = -torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean() + 0.5 * (
                critic(s[index]).flatten() - r[index]).square().mean() - 0.01 * policy.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(actor.parameters(), 0.5)
            optimizer.step()
    print(f"update {update}: loss {loss.item():.3f}")
