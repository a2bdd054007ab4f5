// values.h -- what is known of the values of tensors.
#pragma once
#include "tensors.h"

namespace {

uint64_t address(const Tensor &t)
{
    return t.has_storage() ? (uint64_t)(uintptr_t)t.storage().data_ptr().get() : 0;
}
void forget(const Tensor &t)
{
    if (!on(t))
        return;
    std::lock_guard<std::mutex> lock(g.mu);
    g.contents.erase(address(t));
}
bool covers(const Tensor &t) // all of its storage, in order
{
    return on(t) && t.numel() && t.is_contiguous() && !t.storage_offset() &&
           t.nbytes() == t.storage().nbytes() && t.nbytes() <= kKeep;
}
void remember(const Tensor &t, const void *data)
{
    std::lock_guard<std::mutex> lock(g.mu);
    const uint8_t *p = static_cast<const uint8_t *>(data);
    g.contents[address(t)] = std::vector<uint8_t>(p, p + t.nbytes());
}
// The tensor on the CPU, if its storage is known.
Tensor recall(const Tensor &t)
{
    std::lock_guard<std::mutex> lock(g.mu);
    auto it = g.contents.find(address(t));
    if (it == g.contents.end() || !t.numel() ||
        span(t.sizes(), t.strides(), t, t.storage_offset()) > it->second.size())
        return Tensor();
    uint8_t *p = it->second.data() + t.storage_offset() * (int64_t)t.itemsize();
    return at::from_blob(p, t.sizes(), t.strides(), at::TensorOptions(t.scalar_type()))
        .clone();
}

std::string policy_text() { return std::isnan(g.scalar) ? "nan" : g.scalar == 1 ? "1" : "0"; }
void caveat(const std::string &what)
{
    const char *line = line_now();
    plim_vgpu_note(g.cards[0], line ? line : "", what.c_str(), nullptr);
}
at::Scalar policy_scalar(ScalarType t)
{
    if (t == ScalarType::Bool)
        return at::Scalar(g.scalar == 1);
    if (at::isFloatingType(t) || at::isComplexType(t))
        return at::Scalar(g.scalar);
    return at::Scalar((int64_t)(g.scalar == 1));
}

} // namespace
