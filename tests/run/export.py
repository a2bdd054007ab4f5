"""export.py NET FILE -- the net as torch.export saves it."""
import sys

import torch
from nets import NETS

net, data, _, _ = NETS[sys.argv[1]]
torch.export.save(torch.export.export(net(), (data(),)), sys.argv[2])
