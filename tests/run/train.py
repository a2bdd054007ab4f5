"""train.py NET OPTIMIZER -- two steps of the loop that predictions assume."""
import sys

import torch
from nets import NETS, OPTIMIZERS
from torch.nn import functional as F

net, data, target, loss_name = NETS[sys.argv[1]]
criterion = {"mse": F.mse_loss, "cross_entropy": F.cross_entropy}[loss_name]
model = net().cuda()
optimizer = OPTIMIZERS[sys.argv[2]](model.parameters())
data, target = data(), target()
for _ in range(2):
    x, y = data.cuda(), target.cuda()
    optimizer.zero_grad()
    output = model(x)
    loss = criterion(output, y)
    loss.backward()
    optimizer.step()
