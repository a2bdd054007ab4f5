"""pyg.py -- graph convolution and pooling of PyTorch Geometric, on batches of random graphs of different size."""
import torch
import torch.nn.functional as F
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GCNConv, global_mean_pool


def graph(i):
    nodes = 20 + i % 30
    return Data(x=torch.randn(nodes, 32), edge_index=torch.randint(nodes, (2, 4 * nodes)), y=torch.tensor([i % 5]))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = GCNConv(32, 64), GCNConv(64, 64)
        self.last = torch.nn.Linear(64, 5)

    def forward(self, data):
        x = F.relu(self.first(data.x, data.edge_index))
        x = F.relu(self.second(x, data.edge_index))
        return self.last(F.dropout(global_mean_pool(x, data.batch), training=self.training))


model = Net().cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
loader = DataLoader([graph(i) for i in range(256)], batch_size=64, shuffle=True)
for epoch in range(2):
    model.train()
    for data in loader:
        data = data.to("cuda")
        optimizer.zero_grad()
        F.cross_entropy(model(data), data.y).backward()
        optimizer.step()
    model.eval()
    right = sum(int((model(data.to("cuda")).argmax(-1) == data.y.cuda()).sum()) for data in loader)
    print(f"epoch {epoch}: {right} of 256")
