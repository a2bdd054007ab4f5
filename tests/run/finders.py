"""finders.py WHICH START -- the batch with which a library's batch finder ends, for ResNet-18.

`power` and `binsearch` are modes of Lightning's Tuner; `accelerate` is find_executable_batch_size."""
import pathlib
import runpy
import sys
import tempfile

import torch
from torch.nn import functional as F

which, start = sys.argv[1], int(sys.argv[2])
sys.argv = ["resnet18_plain.py", "--batch", "1", "--steps", "0"]
example = pathlib.Path(__file__).parents[2] / "examples" / "resnet18_plain.py"
ResNet18 = runpy.run_path(str(example))["ResNet18"]
for name in "model", "optimizer":  # of the example: they take memory
    del ResNet18.forward.__globals__[name]


def loss_of(model, x, y):
    return F.cross_entropy(model(x), y)


def optimizer_of(model):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)


def accelerate():
    from accelerate.utils import find_executable_batch_size

    @find_executable_batch_size(starting_batch_size=start)
    def train(batch):
        model = ResNet18().cuda()
        optimizer = optimizer_of(model)
        for _ in range(2):
            x, y = torch.randn(batch, 3, 224, 224).cuda(), torch.randint(1000, (batch,)).cuda()
            loss = loss_of(model, x, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return batch
    return train()


def lightning(mode):
    import lightning
    from lightning.pytorch.tuner import Tuner
    from torch.utils.data import DataLoader

    class Pictures:
        def __len__(self):
            return 4096

        def __getitem__(self, i):
            return torch.zeros(3, 224, 224), i % 1000

    class Net(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net, self.batch_size = ResNet18(), start

        def training_step(self, batch, i):
            return loss_of(self.net, *batch)

        def configure_optimizers(self):
            return optimizer_of(self)

        def train_dataloader(self):
            return DataLoader(Pictures(), self.batch_size)

    with tempfile.TemporaryDirectory() as folder:
        trainer = lightning.Trainer(accelerator="gpu", devices=1, logger=False, max_steps=2,
                                    default_root_dir=folder, enable_checkpointing=False,
                                    enable_progress_bar=False)
        return Tuner(trainer).scale_batch_size(Net(), mode=mode, steps_per_trial=2, init_val=start)


print("batch", accelerate() if which == "accelerate" else lightning(which))
