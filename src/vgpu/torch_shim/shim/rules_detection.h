// rules_detection.h -- rules: ops of torchvision.
#pragma once
#include "rules_values.h"

namespace {

// The boxes that torchvision on the CPU keeps, if the boxes are known.
Tensor kept_boxes(const c10::OperatorHandle &op, const Call &c)
{
    try {
        Stack out = on_cpu(op, c);
        return out.empty() ? Tensor() : out[0].toTensor();
    } catch (const c10::NotImplementedError &) {
        return Tensor();
    }
}

// src: torchvision ops/cuda/nms_kernel.cu, since it gathers what is kept on the card: a bit for
// each pair of boxes
void nms(const c10::OperatorHandle &op, Stack *stack)
{
    InOp in("nms");
    Call c(op, stack);
    Tensor boxes = c.tensor("dets"), scores = c.tensor("scores");
    TORCH_CHECK(boxes.dim() == 2 && boxes.size(1) == 4,
                "boxes should be a 2d tensor of 4 columns");
    TORCH_CHECK(scores.dim() == 1 && scores.size(0) == boxes.size(0),
                "boxes and scores should have same number of elements in dimension 0, got ",
                boxes.size(0), " and ", scores.size(0));
    if (!boxes.numel()) {
        stack->push_back(contig({0}, ScalarType::Long));
        return;
    }
    int64_t n = boxes.size(0);
    Tensor order = std::get<1>(scores.sort(true, 0, true));
    Tensor sorted = boxes.index_select(0, order).contiguous();
    Tensor pairs = contig({n * ((n + 63) / 64)}, ScalarType::Long);
    Tensor keep = contig({n}, ScalarType::Bool), known = kept_boxes(op, c);
    if (known.defined())
        remember(keep, at::isin(recall(order, ASSUMED), known));
    stack->push_back(order.masked_select(keep));
}

} // namespace

TORCH_LIBRARY_IMPL(torchvision, CUDA, m) { RULE("nms", nms); }
