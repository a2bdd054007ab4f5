"""A small network under lightning.Trainer, with the callback."""
import json
import sys

import lightning
import torch
from torch import nn

from plimsoll.callbacks import LightningMemory


class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 10))

    def training_step(self, batch, i):
        x, y = batch
        loss = nn.functional.cross_entropy(self.net(x), y)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())


lines = []
callback = LightningMemory(lines.append)
data = torch.utils.data.TensorDataset(torch.randn(256, 512), torch.randint(10, (256,)))
lightning.Trainer(max_steps=3, logger=False, enable_checkpointing=False, enable_progress_bar=False,
                  enable_model_summary=False, callbacks=[callback]).fit(Net(), torch.utils.data.DataLoader(data, 64))
monitor = callback.monitor
print(json.dumps({"lines": lines, "why": monitor.why, "measured": monitor.measured,
                  "predicted": monitor.prediction and monitor.prediction.to_dict()["memory"]}), file=sys.stderr)
