"""torchtitan's Llama 3 debug model by its own Trainer, with random tokens: titan.py OPTION..."""
import sys

import torch
from torch.utils.data import IterableDataset
from torchtitan.components.dataloader import ParallelAwareDataloader
from torchtitan.config import ConfigManager
from torchtitan.protocols import train_spec
from torchtitan.train import Trainer


class Tokens(IterableDataset):
    def __init__(self, length):
        self.length = length

    def __iter__(self):
        while True:
            tokens = torch.randint(0, 2048, (self.length + 1,))
            yield {"input": tokens[:-1]}, tokens[1:]


def loader(dp_world_size, dp_rank, tokenizer, job_config):
    training = job_config.training
    return ParallelAwareDataloader(Tokens(training.seq_len), dp_rank, dp_world_size,
                                   batch_size=training.local_batch_size)


spec = train_spec.get_train_spec("llama3")
spec.build_tokenizer_fn, spec.build_dataloader_fn = None, loader
train_spec.register_train_spec("random", spec)
trainer = Trainer(ConfigManager().parse_args([
    "--model.name=random", "--model.flavor=debugmodel", "--training.local_batch_size=8",
    "--training.seq_len=2048", "--training.steps=2", *sys.argv[1:]]))
trainer.train()
state = [v.to_local() for o in trainer.optimizers for s in o.state.values() for v in s.values()
         if v.dim()]
print("parameters", sum(p.numel() for m in trainer.model_parts for p in m.parameters()),
      "state", sum(v.nbytes for v in state))
trainer.close()
