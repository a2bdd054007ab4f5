"""torchvision's nms, and what a detector makes of it, without torchvision."""
import torch

library = torch.library.Library("torchvision", "DEF")
library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


def on_cpu(boxes, scores, threshold):
    kept = []
    for i in scores.argsort(descending=True).tolist():
        low = torch.maximum(boxes[i, :2], boxes[kept, :2])
        high = torch.minimum(boxes[i, 2:], boxes[kept, 2:])
        both = (high - low).clamp(min=0).prod(1)
        area = (boxes[:, 2:] - boxes[:, :2]).prod(1)
        if not (both / (area[i] + area[kept] - both) > threshold).any():
            kept.append(i)
    return torch.tensor(kept)


library.impl("nms", on_cpu, "CPU")
nms = torch.ops.torchvision.nms

# known boxes: those that the CPU keeps
corner = torch.tensor([[0, 0], [1, 1], [20, 20], [0, 1], [50, 0]]).float()
boxes, scores = torch.cat([corner, corner + 10], 1), torch.tensor([0.5, 0.9, 0.3, 0.8, 0.1])
kept = nms(boxes.cuda(), scores.cuda(), 0.5)
assert kept.tolist() == nms(boxes, scores, 0.5).tolist() == [1, 2, 4], kept
assert nms(boxes[:0].cuda(), scores[:0].cuda(), 0.5).shape == (0,)

# boxes with unknown values: all, by default; a bit for each pair is its largest tensor
n = 9000
boxes, scores = torch.rand(n, 4, device="cuda"), torch.rand(n, device="cuda")
torch.cuda.reset_peak_memory_stats()
before = torch.cuda.memory_allocated()
kept = nms(boxes, scores, 0.5)
assert kept.shape == (n,)
pairs = n * ((n + 63) // 64) * 8
assert pairs < torch.cuda.max_memory_allocated() - before < pairs + 60 * n

# a detector: the best of each class above a threshold
labels = torch.arange(90, device="cuda").expand(1000, -1).reshape(-1)
scores = torch.rand(90000, device="cuda")
found = torch.where(scores > 0.05)[0]
scores, labels = scores[found], labels[found]
seen = 0
for label in torch.unique(labels):
    rows = torch.where(labels == label)[0]
    seen += nms(torch.rand(len(rows), 4, device="cuda"), scores[rows], 0.5).numel()
assert seen == 90000, seen
print("fine")
