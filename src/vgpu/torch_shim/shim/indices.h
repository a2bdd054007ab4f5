// indices.h -- what indexing by tensors takes for itself.
#pragma once
#include "shapes.h"

namespace {

// A number from the host goes to the card, 32-bit indices become 64-bit ones, and, of several
// index tensors whose strides differ once they are broadcast, each that is not contiguous is
// copied.  To be held until the op is done.
// src: TensorAdvancedIndexing.cpp _index_put_impl_, make_info, AdvancedIndex
std::vector<Tensor> index_copies(const Call &c,
                                 const std::vector<std::optional<Tensor>> &indices)
{
    std::vector<Tensor> held, wide;
    Tensor number = c.tensor("values");
    if (!on(c.tensor("self")))
        return held;
    if (number.defined() && !on(number) && number.dim() == 0)
        held.push_back(contig({}, number.scalar_type()));
    if (c.flag("accumulate"))
        return held;
    for (const auto &t : indices)
        if (t)
            wide.push_back(as_meta(*t));
    try {
        wide = at::expand_outplace(wide);
    } catch (const c10::Error &) {
        return held; // the op itself refuses them
    }
    bool alike = true;
    for (Tensor &t : wide) {
        if (t.scalar_type() == ScalarType::Int) {
            held.push_back(like(t, ScalarType::Long));
            t = as_meta(held.back());
        }
        alike = alike && t.strides() == wide[0].strides();
    }
    for (const Tensor &t : wide)
        if (!alike && !t.is_contiguous())
            held.push_back(contig(t.sizes(), ScalarType::Long));
    return held;
}

} // namespace
