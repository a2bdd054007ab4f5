"""What is not known gets a sensible answer, and loops that wait for one end."""
import torch

x = torch.randn(1000, 300, device="cuda")
assert torch.isfinite(x).all() and not torch.isnan(x).any() and not torch.isinf(x).any()
assert not torch.isnan(x).sum() and (x < 3).all() and not (x > 3).any()
assert torch.allclose(x, x * 2) and torch.equal(x, x * 2)
assert all(0 <= i < 300 for i in x.argmax(-1).tolist())
assert 5 <= torch.randint(5, 9, (3,), device="cuda").max().item() < 9
assert (x > 0).sum().item() == (x > 0).long().sum().item() == 300000  # --mask-fraction 1
assert x[x > 0].shape == (300000,)
worst = torch.zeros(1, device="cuda") + x.amax()  # one element is a check, which finds nothing
assert not worst.bool() and worst.bool().byte().item() == 0 and (worst > 0).long().item() == 0

# rejection
for _ in range(2):
    accepted = torch.zeros(4, dtype=torch.bool, device="cuda")
    while not accepted.all():
        accepted |= torch.rand(4, device="cuda") < torch.rand(4, device="cuda")
kept = 0
while kept < 10:
    kept += (torch.rand(4, device="cuda") < 0.5).sum().item()
while (torch.randn(3, device="cuda") > 2).any():
    pass
while not torch.rand(1, device="cuda") < 0.5:
    pass
while torch.rand(1, device="cuda") < 0.5:
    pass

# a loop over tokens runs until its end, whatever the token is compared with
for end in 0, 1, 2, 50256:
    tokens = torch.tensor([[5, 6], [7, 8]], device="cuda")
    done = torch.zeros(2, dtype=torch.bool, device="cuda")
    for i in range(20):
        probabilities = torch.softmax(torch.randn(2, 50257, device="cuda"), -1)
        new = torch.multinomial(probabilities, 1) if i % 2 else probabilities.argmax(-1, True)
        tokens = torch.cat([tokens, new], 1)
        done |= new[:, 0] == end
        if done.all():
            break
    assert tokens.shape == (2, 22), tokens.shape

# PPO: minibatches of a rollout, an early stop by KL, advantages, GRPO's masks
policy = torch.nn.Linear(8, 4).cuda()
optimizer = torch.optim.Adam(policy.parameters())
states = torch.randn(64, 8, device="cuda")
distribution = torch.distributions.Categorical(logits=policy(states))
actions = distribution.sample()
old = distribution.log_prob(actions).detach()
for epoch in range(3):
    for rows in torch.randperm(64, device="cuda").split(16):
        new = torch.distributions.Categorical(logits=policy(states[rows])).log_prob(actions[rows])
        ratio = (new - old[rows]).exp()
        kl = ((ratio - 1) - (new - old[rows])).mean()
        optimizer.zero_grad()
        ratio.mean().backward()
        norm = torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0, error_if_nonfinite=True)
        optimizer.step()
    if kl > 0.02:
        break
assert epoch == 2
ends = actions.view(4, 16) == 0
first = torch.full((4,), 16, device="cuda")
first[ends.any(1)] = ends.int().argmax(1)[ends.any(1)]
mask = torch.arange(16, device="cuda")[None] <= first[:, None]
assert mask.shape == (4, 16) and mask.int().sum().item() >= 0
print("fine")
