import torch
from torch import nn

generator = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 128), nn.Tanh()).cuda()
critic = nn.Sequential(nn.Linear(128, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1)).cuda()
step_g = torch.optim.Adam(generator.parameters(), betas=(0.5, 0.999))
step_d = torch.optim.Adam(critic.parameters(), betas=(0.5, 0.999))
criterion = nn.BCEWithLogitsLoss()
g_losses, d_losses = [], []
for i in range(8):
    real = torch.randn(32, 128, device="cuda")
    ones, zeros = torch.ones(32, 1, device="cuda"), torch.zeros(32, 1, device="cuda")
    step_d.zero_grad()
    loss_real = criterion(critic(real), ones)
    loss_real.backward()
    fake = generator(torch.randn(32, 16, device="cuda"))
    loss_fake = criterion(critic(fake.detach()), zeros)
    loss_fake.backward()
    step_d.step()
    step_g.zero_grad()
    loss_g = criterion(critic(fake), ones)
    loss_g.backward()
    step_g.step()
    g_losses.append(loss_g.item())
    d_losses.append((loss_real + loss_fake).item())
