"""PyTorch's DCGAN example: two nets, two optimizers."""
# peak: 57637932
import torch
from torch import nn

up = lambda a, b, s, p: [nn.ConvTranspose2d(a, b, 4, s, p, bias=False), nn.BatchNorm2d(b), nn.ReLU(True)]
down = lambda a, b: [nn.Conv2d(a, b, 4, 2, 1, bias=False), nn.BatchNorm2d(b), nn.LeakyReLU(0.2, True)]
generator = nn.Sequential(*up(100, 256, 1, 0), *up(256, 128, 2, 1), *up(128, 64, 2, 1),
                          nn.ConvTranspose2d(64, 3, 4, 2, 1, bias=False), nn.Tanh()).cuda()
critic = nn.Sequential(nn.Conv2d(3, 64, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, True), *down(64, 128),
                       *down(128, 256), nn.Conv2d(256, 1, 4, 1, 0, bias=False), nn.Sigmoid()).cuda()
optimizer_g = torch.optim.Adam(generator.parameters(), 2e-4, betas=(0.5, 0.999))
optimizer_d = torch.optim.Adam(critic.parameters(), 2e-4, betas=(0.5, 0.999))
criterion = nn.BCELoss()
for step in range(3):
    real = torch.randn(64, 3, 32, 32).cuda()
    critic.zero_grad()
    label = torch.full((64,), 1.0, device="cuda")
    error_real = criterion(critic(real).view(-1), label)
    error_real.backward()
    fake = generator(torch.randn(64, 100, 1, 1, device="cuda"))
    label.fill_(0.0)
    error_fake = criterion(critic(fake.detach()).view(-1), label)
    error_fake.backward()
    optimizer_d.step()
    generator.zero_grad()
    label.fill_(1.0)
    error_g = criterion(critic(fake).view(-1), label)
    error_g.backward()
    optimizer_g.step()
    print(f"{step}: {(error_real + error_fake).item():.4f} {error_g.item():.4f}")
